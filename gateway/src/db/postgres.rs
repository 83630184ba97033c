//! A Postgres server as the store: reached with patience, migrated under the server's own lock.

use super::{CONNECTIONS, DbError, STATEMENT_LIMIT};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool};
use std::time::Duration;
use tokio::time::Instant;

/// One try to connect; a host that is off does not answer at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(250);

/// Connects, trying again for `patience` while the server cannot be reached, and migrates.
///
/// # Errors
/// [`DbError::Unreachable`], [`DbError::Sql`], [`DbError::Newer`], [`DbError::Migrate`].
pub(super) async fn open(options: PgConnectOptions, patience: Duration) -> Result<PgPool, DbError> {
    let options = options.application_name("gantry-gateway");
    reach(&options, patience).await?.close().await?;
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(STATEMENT_LIMIT)
        .connect_lazy_with(options);
    sqlx::migrate!("../migrations").run(&pool).await?;
    Ok(pool)
}

async fn reach(options: &PgConnectOptions, patience: Duration) -> Result<PgConnection, DbError> {
    let began = Instant::now();
    loop {
        let failed = match tokio::time::timeout(CONNECT_LIMIT, options.connect()).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()),
        };
        if !passes(&failed) {
            return Err(failed.into());
        }
        let waited = began.elapsed();
        if waited >= patience {
            return Err(DbError::Unreachable {
                server: server(options),
                waited,
                source: failed,
            });
        }
        tracing::warn!(server = server(options), error = %failed, "the metadata store cannot be reached yet");
        tokio::time::sleep(RETRY.min(patience - waited)).await;
    }
}

/// Whether the server may be there a moment later: refused, cut off, starting, stopping, full.
fn passes(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(answer) => answer
            .code()
            .is_some_and(|code| code.starts_with("57P") || code == "53300"),
        _ => false,
    }
}

fn server(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(folder) => format!("{}, port {}", folder.display(), options.get_port()),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}
