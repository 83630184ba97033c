//! The metadata store: connection, migrations; one file per table beside this one.

pub mod master_key;
pub mod signing_keys;

use crate::error::{ApiError, Code};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use std::path::Path;
use std::time::Duration;

/// Why the metadata store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// The address has another form than `sqlite:PATH`.
    #[error("database address '{0}' cannot be used: sqlite:PATH is what there is so far")]
    Address(String),
    /// SQL failed.
    #[error("metadata store")]
    Sql(#[from] sqlx::Error),
    /// A migration failed.
    #[error("metadata store: migration")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// The master key file.
    #[error("master key file {path}: {why}")]
    MasterKey {
        /// Which file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A stored secret does not open with this master key.
    #[error(
        "the master key does not open what is stored; give the master key of this metadata store"
    )]
    WrongMasterKey,
}

impl From<DbError> for ApiError {
    fn from(error: DbError) -> Self {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "metadata store failed"
        );
        Self::new(
            Code::MetadataUnavailable,
            "the metadata store cannot be used now",
        )
    }
}

/// The store. One SQL text serves every kind: statements use `$1` placeholders, TEXT, BIGINT and BOOLEAN only, and go
/// through `on!`, so that a second kind is one more arm.
#[derive(Clone, Debug)]
pub enum Db {
    /// Embedded.
    Lite(SqlitePool),
}

/// Runs an expression with the pool of whichever kind: `on!(db, pool => query(SQL).fetch_all(pool).await)`.
macro_rules! on {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Lite($pool) => $body,
        }
    };
}
pub(crate) use on;

impl Db {
    /// Opens or creates the store at `sqlite:PATH` and brings its schema up to date.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn open(url: &str) -> Result<Self, DbError> {
        let path = url
            .strip_prefix("sqlite://")
            .or_else(|| url.strip_prefix("sqlite:"));
        let Some(path) = path.filter(|p| !p.is_empty()) else {
            return Err(DbError::Address(url.to_owned()));
        };
        let options = SqliteConnectOptions::new()
            .filename(Path::new(path))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(5));
        let pool = SqlitePoolOptions::new()
            .max_connections(4)
            .connect_with(options)
            .await?;
        sqlx::migrate!("../migrations").run(&pool).await?;
        Ok(Self::Lite(pool))
    }

    /// Whether the store answers.
    ///
    /// # Errors
    /// [`DbError::Sql`].
    pub async fn ping(&self) -> Result<(), DbError> {
        on!(self, pool => sqlx::query("SELECT 1").execute(pool).await)?;
        Ok(())
    }

    /// Ends all connections.
    pub async fn close(&self) {
        on!(self, pool => pool.close().await);
    }
}
