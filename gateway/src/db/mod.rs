//! The metadata store, on SQLite or Postgres behind one API: connection, migrations; one file per table beside this one.

mod error;
mod key_file;
pub mod master_key;
mod postgres;
pub mod signing_keys;
mod sqlite;
mod url;

pub use error::DbError;
pub use key_file::SecretsConfig;
pub use url::DatabaseUrl;

use sqlx::{PgPool, SqlitePool};
use std::time::Duration;

/// Waits for a connection of the pool and for one statement at most so long.
const STATEMENT_LIMIT: Duration = Duration::from_secs(10);
/// A server that is cut off does not take the farewell.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// Connections of one gateway to its store.
const CONNECTIONS: u32 = 4;

/// The store. One SQL text serves both kinds: statements use `$1` placeholders, TEXT, BIGINT and BOOLEAN only, and go
/// through `on!`.
#[derive(Clone, Debug)]
pub enum Db {
    /// Embedded; several gateways of one machine may share the file.
    Lite(SqlitePool),
    /// A server.
    Postgres(PgPool),
}

/// Runs an expression with the pool of whichever kind: `on!(db, pool => query(SQL).fetch_all(pool).await)`.
macro_rules! on {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Lite($pool) => $body,
            $crate::db::Db::Postgres($pool) => $body,
        }
    };
}
pub(crate) use on;

impl Db {
    /// Opens the store (an SQLite file is created where there is none) and brings its schema up to date. A Postgres that
    /// cannot be reached is tried again for `patience`.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn open(url: &DatabaseUrl, patience: Duration) -> Result<Self, DbError> {
        match url.kind()? {
            url::Kind::Lite(path) => sqlite::open(&path).await.map(Self::Lite),
            url::Kind::Postgres(options) => {
                let pool = postgres::open(*options, patience).await?;
                Ok(Self::Postgres(pool))
            }
        }
    }

    /// Ends all connections; one that is stuck is left to the end of the process.
    pub async fn close(&self) {
        let closed = async { on!(self, pool => pool.close().await) };
        tokio::time::timeout(CLOSE_LIMIT, closed).await.ok();
    }
}

/// A statement that is given up after [`STATEMENT_LIMIT`]: a server that is cut off says nothing.
async fn limited<T>(statement: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, DbError> {
    match tokio::time::timeout(STATEMENT_LIMIT, statement).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(DbError::Slow(STATEMENT_LIMIT)),
    }
}
