//! The embedded store: one file, shared by the gateways of one machine.

use super::{CONNECTIONS, DbError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqlitePool};
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

/// A statement waits so long for another process that writes.
const BUSY: Duration = Duration::from_secs(5);
/// A start waits so long for another one that migrates.
const SETUP_LIMIT: Duration = Duration::from_secs(30);
const TABLES: &str =
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name";
const SETUP_POLL: Duration = Duration::from_millis(10);

/// Opens or creates the file and migrates it, one process at a time.
///
/// # Errors
/// [`DbError::NetworkFileSystem`], [`DbError::Locked`], [`DbError::File`], [`DbError::Foreign`], [`DbError::Sql`],
/// [`DbError::Newer`], [`DbError::Migrate`].
pub(super) async fn open(path: &Path) -> Result<SqlitePool, DbError> {
    let file = |source| DbError::File {
        path: path.display().to_string(),
        source,
    };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let system = rustix::fs::statfs(folder).map_err(|errno| file(errno.into()))?;
    #[allow(
        clippy::unnecessary_cast,
        reason = "the width of f_type depends on the platform"
    )]
    if let Some(kind) = network_file_system(system.f_type as u64) {
        return Err(DbError::NetworkFileSystem {
            path: path.display().to_string(),
            kind,
        });
    }
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .busy_timeout(BUSY);
    // SQLite has no lock over several statements that a migration could hold; the file's lock ends with the process
    let _setup = setup_lock(path).await?;
    check(path, &options).await?;
    let options = options
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let pool = SqlitePoolOptions::new()
        .max_connections(CONNECTIONS)
        .connect_with(options)
        .await?;
    sqlx::migrate!("../migrations").run(&pool).await?;
    Ok(pool)
}

/// Refuses the database of another application, before anything is changed in it.
async fn check(path: &Path, options: &SqliteConnectOptions) -> Result<(), DbError> {
    let mut connection = options.connect().await?;
    let tables: Vec<(String,)> = sqlx::query_as(TABLES).fetch_all(&mut connection).await?;
    connection.close().await?;
    // A first start that was cut short leaves the list of migrations alone.
    if !tables.iter().any(|(name,)| name == "signing_keys")
        && let Some((table,)) = tables.iter().find(|(name,)| name != "_sqlx_migrations")
    {
        return Err(DbError::Foreign {
            path: path.display().to_string(),
            table: table.clone(),
        });
    }
    Ok(())
}

async fn setup_lock(database: &Path) -> Result<File, DbError> {
    let mut path = database.as_os_str().to_owned();
    path.push("-setup");
    let shown = || Path::new(&path).display().to_string();
    let fault = |source| DbError::File {
        path: shown(),
        source,
    };
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(fault)?;
    let mut left = SETUP_LIMIT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::Error(source)) => return Err(fault(source)),
            Err(TryLockError::WouldBlock) if left.is_zero() => {
                return Err(DbError::Locked {
                    path: shown(),
                    waited: SETUP_LIMIT,
                });
            }
            Err(TryLockError::WouldBlock) => {
                tokio::time::sleep(SETUP_POLL).await;
                left = left.saturating_sub(SETUP_POLL);
            }
        }
    }
}

/// The name of a file system that several machines may mount, by its number in statfs(2). WAL files need memory shared
/// by all users of the database, which such a file system cannot give.
fn network_file_system(magic: u64) -> Option<&'static str> {
    match magic & 0xFFFF_FFFF {
        0x6969 => Some("NFS"),
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => Some("SMB"),
        0x5346_414F | 0x6B41_4653 => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x00C3_6400 => Some("Ceph"),
        0x0BD0_0BD0 => Some("Lustre"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636F => Some("OCFS2"),
        0x4750_4653 => Some("GPFS"),
        0x1983_0326 => Some("BeeGFS"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_number() {
        assert_eq!(network_file_system(0x6969), Some("NFS"));
        // a negative i32 of some platforms
        assert_eq!(network_file_system(0xFFFF_FFFF_FF53_4D42), Some("SMB"));
        for local in [0xEF53_u64, 0x0102_1994, 0x5846_5342, 0x794C_7630] {
            assert_eq!(network_file_system(local), None, "{local:x}");
        }
    }
}
