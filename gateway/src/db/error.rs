//! Why the metadata store cannot be used, and whose fault that is.

use super::DatabaseUrl;
use sqlx::migrate::MigrateError;
use std::time::Duration;

/// The file is malformed (SQLite result codes).
const SQLITE_CORRUPT: u32 = 11;
/// The file is no database, or a sealed one.
const SQLITE_NOTADB: u32 = 26;

/// What is wrong. Addresses are shown without their password.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// The address has no form that is known.
    #[error(
        "database_url (--database-url) '{url}' cannot be used: {why}; give sqlite:PATH or postgres://USER@HOST/NAME"
    )]
    Address {
        /// Which.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// Files there are not shared reliably between processes.
    #[error(
        "database_url (--database-url): {path} is on a network file system ({kind}), where SQLite files get damaged; \
             keep it on a local disk, or use Postgres: --database-url postgres://USER@HOST/NAME"
    )]
    NetworkFileSystem {
        /// The database file.
        path: String,
        /// Of the file system.
        kind: &'static str,
    },
    /// The file is locked by another process for too long.
    #[error("{path} is being set up by another process for over {} s; is one stopped?", waited.as_secs())]
    Locked {
        /// The lock file.
        path: String,
        /// So long.
        waited: Duration,
    },
    /// A file operation failed.
    #[error("metadata store {path}")]
    File {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Postgres was tried until patience ended.
    #[error("the Postgres at {server} cannot be reached (tried for {} s, database_wait): start it, or correct \
             database_url (--database-url)", waited.as_secs_f32())]
    Unreachable {
        /// Host and port, or socket.
        server: String,
        /// So long.
        waited: Duration,
        /// The last failure.
        source: sqlx::Error,
    },
    /// No answer.
    #[error("the metadata store did not answer within {} s", .0.as_secs())]
    Slow(Duration),
    /// SQL failed.
    #[error("metadata store")]
    Sql(#[from] sqlx::Error),
    /// The file cannot be read as a database, or not all of it.
    #[error(
        "metadata store {url} is damaged, or is no database: put back a copy of the file, or move it away to begin with a \
             new one, which refuses the receipts and cursors given out so far"
    )]
    Damaged {
        /// Which.
        url: String,
        /// What SQLite says.
        source: Box<DbError>,
    },
    /// The file is a database of something else.
    #[error(
        "metadata store {path} is the database of another application (it has a table '{table}' and none of gantry's): \
             give another database_url (--database-url), or move the file away"
    )]
    Foreign {
        /// Which file.
        path: String,
        /// One that gantry does not make.
        table: String,
    },
    /// A newer Gantry has changed the store.
    #[error(
        "the metadata store has migration {0}, which this version of gantry does not know: a newer one has used it; \
             start that version, or give another database_url"
    )]
    Newer(i64),
    /// A migration failed.
    #[error("metadata store: migration")]
    Migrate(#[source] MigrateError),
    /// The master key file.
    #[error("master_key_file (--master-key-file) {path}: {why}")]
    MasterKey {
        /// Which file.
        path: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A stored secret does not open with this master key.
    #[error(
        "master_key_file (--master-key-file): this master key does not open what the metadata store holds ({row}); give the \
         master key this store was made with, the same for all its gateways"
    )]
    WrongMasterKey {
        /// Table, column and row.
        row: String,
    },
    /// A secret is stored in the clear.
    #[error(
        "the metadata store holds a secret in the clear ({row}), as insecure_plain_secrets (--insecure-plain-secrets) \
         makes them, and this gateway has a master key: start it with that flag, or give another database_url"
    )]
    Plain {
        /// Table, column and row.
        row: String,
    },
    /// Nothing could be signed.
    #[error(
        "the metadata store holds keys of kind '{kind}' in table signing_keys, none of them in state 'active', so that \
         nothing could be signed: set the state of the newest to 'active'"
    )]
    NoActiveKey {
        /// Of the keys.
        kind: String,
    },
    /// No random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

impl DbError {
    /// The same, naming the store where its file is damaged.
    #[must_use]
    pub(crate) fn of(self, url: &DatabaseUrl) -> Self {
        let failed = match &self {
            Self::Sql(error)
            | Self::Migrate(
                MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _),
            ) => error,
            _ => return self,
        };
        let code = failed.as_database_error().and_then(|error| error.code());
        let code = code.and_then(|code| code.parse::<u32>().ok()).unwrap_or(0);
        // The low byte of an extended code is the code.
        if url.is_postgres() || !matches!(code & 0xFF, SQLITE_CORRUPT | SQLITE_NOTADB) {
            return self;
        }
        Self::Damaged {
            url: url.to_string(),
            source: Box::new(self),
        }
    }

    /// Whether the file cannot be used as it is (exit code 4).
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Foreign { .. })
    }

    /// Whether command line or configuration must be changed (exit code 2), not just the moment.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::Address { .. }
                | Self::NetworkFileSystem { .. }
                | Self::MasterKey { .. }
                | Self::WrongMasterKey { .. }
                | Self::Plain { .. }
        )
    }
}

impl From<MigrateError> for DbError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::VersionMissing(version) => Self::Newer(version),
            other => Self::Migrate(other),
        }
    }
}
