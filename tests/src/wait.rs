//! Bounded waiting: every test has a limit, and every expectation a deadline.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// The limit of an everyday test.
pub const USUAL: Duration = Duration::from_secs(60);
/// The limit of a test that has to wait something out or moves many messages.
pub const SLOW: Duration = Duration::from_secs(300);

/// What a busy machine may add to a time that the product promises.
pub const BUSY: Duration = Duration::from_secs(2);

/// Runs a test body on a runtime of its own and fails it when it takes longer than `limit`.
///
/// # Panics
/// When the limit is reached.
pub fn within<F: Future<Output = ()>>(limit: Duration, body: F) {
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(cause) => panic!("no runtime: {cause}"),
    };
    runtime.block_on(async {
        if tokio::time::timeout(limit, body).await.is_err() {
            panic!("the test did not end within {limit:?}");
        }
    });
}

/// Asks `probe` every 20 ms until it answers a value, at most for `limit`.
///
/// # Panics
/// When the limit is reached.
pub async fn eventually<T, F, P>(limit: Duration, what: &str, mut probe: P) -> T
where
    F: Future<Output = Option<T>>,
    P: FnMut() -> F,
{
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        if Instant::now() >= end {
            panic!("not within {limit:?}: {what}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
