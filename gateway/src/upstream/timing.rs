//! How long a request has waited for brokers, for the header `Server-Timing`.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// Time in which at least one call was out.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    total: Duration,
    /// Calls out now, and since when there is one.
    out: u32,
    since: Option<Instant>,
}

tokio::task_local! {
    static SPENT: Cell<Spent>;
}

/// Runs a request; with its output comes the time in which the same task waited for brokers, calls at once counted once.
pub(crate) async fn measured<F: Future>(request: F) -> (F::Output, Duration) {
    SPENT
        .scope(Cell::default(), async {
            let output = request.await;
            (output, SPENT.with(Cell::get).total)
        })
        .await
}

/// One call to a broker, from its making to its drop. Counts nothing outside of [`measured`].
pub(super) struct BrokerCall;

impl BrokerCall {
    pub(super) fn begin() -> Self {
        change(|spent| {
            spent.out += 1;
            spent.since.get_or_insert_with(Instant::now);
        });
        Self
    }
}

impl Drop for BrokerCall {
    fn drop(&mut self) {
        change(|spent| {
            spent.out = spent.out.saturating_sub(1);
            if spent.out == 0
                && let Some(since) = spent.since.take()
            {
                spent.total += since.elapsed();
            }
        });
    }
}

fn change(how: impl FnOnce(&mut Spent)) {
    // Tasks of the gateway's own have no request to tell.
    SPENT
        .try_with(|cell| {
            let mut spent = cell.get();
            how(&mut spent);
            cell.set(spent);
        })
        .ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn call(ms: u64) {
        let _call = BrokerCall::begin();
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn calls_at_once_count_once_and_what_is_between_does_not() {
        let request = async {
            tokio::join!(call(30), call(50));
            tokio::time::sleep(Duration::from_millis(100)).await;
            call(20).await;
        };
        let ((), spent) = measured(request).await;
        assert_eq!(spent, Duration::from_millis(70));
        call(10).await;
    }
}
