//! A throwaway Postgres: a cluster of its own in a temporary directory, on a unix socket only, run as another user where
//! the tests run as root (the server refuses root). One is shared by the tests that run at a time; each has its own
//! database. The last one to let go ends it.

use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::needs::missing;

const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(30);
const SUPERUSER: &str = "gantry";

/// The server and its files.
#[derive(Debug)]
pub struct Postgres {
    dir: TempDir,
    programs: PathBuf,
    /// Group and user id to run as; none = our own.
    user: Option<(u32, u32)>,
    keeper: Mutex<Option<Child>>,
    databases: Mutex<u32>,
}

static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

impl Postgres {
    /// The server other tests of this program use too, started where there is none. None where Postgres is not
    /// installed and need not be ([`missing`]).
    pub fn shared() -> Result<Option<Arc<Postgres>>> {
        let mut shared = SHARED.lock();
        if let Some(running) = shared.upgrade() {
            return Ok(Some(running));
        }
        let Some(started) = Postgres::start()? else {
            return Ok(None);
        };
        let started = Arc::new(started);
        *shared = Arc::downgrade(&started);
        Ok(Some(started))
    }

    /// A server of its own, for a test that stops it. None as with [`Postgres::shared`].
    pub fn start() -> Result<Option<Postgres>> {
        let Some(programs) = programs()? else {
            return missing("Postgres", "apt-get install postgresql").map(|()| None);
        };
        // below /tmp, because the path of a unix socket is at most 107 bytes long
        let dir = tempfile::Builder::new().prefix("pg").tempdir_in("/tmp")?;
        let user = match rustix::process::geteuid().is_root() {
            true => Some(other_user()?),
            false => None,
        };
        if let Some((group, user)) = user {
            chown(dir.path(), Some(user), Some(group))?;
        }
        let server = Postgres {
            dir,
            programs,
            user,
            keeper: Mutex::new(None),
            databases: Mutex::new(0),
        };
        let made = server
            .command("initdb")
            .args(["--auth", "trust", "--username", SUPERUSER])
            .args(["--encoding", "UTF8", "--no-locale", "--no-sync"])
            .arg("-D")
            .arg(server.data())
            .output()?;
        if !made.status.success() {
            bail!("initdb: {}", String::from_utf8_lossy(&made.stderr));
        }
        server.start_again()?;
        Ok(Some(server))
    }

    /// Starts the server on its data, after [`Postgres::stop`].
    pub fn start_again(&self) -> Result<()> {
        // the shell ends the server when its input ends, so also when the test is killed
        let script = r#""$0" -D "$1" -k "$2" -c listen_addresses= -c fsync=off -c max_connections=60 \
            </dev/null >>"$2/log" 2>&1 & server=$!; read -r line; kill -QUIT $server 2>/dev/null; wait $server"#;
        let mut keeper = self
            .command_of(Path::new("/bin/sh"))
            .args(["-c", script])
            .arg(self.programs.join("postgres"))
            .arg(self.data())
            .arg(self.dir.path())
            .stdin(Stdio::piped())
            .spawn()?;
        let end = Instant::now() + START_LIMIT;
        while !self.answers() {
            if Instant::now() >= end || keeper.try_wait()?.is_some() {
                drop(keeper.stdin.take());
                keeper.wait()?;
                bail!("postgres did not start: {}", self.logged());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        *self.keeper.lock() = Some(keeper);
        Ok(())
    }

    /// Ends the server at once; its data stays.
    pub fn stop(&self) -> Result<()> {
        let Some(mut keeper) = self.keeper.lock().take() else {
            return Ok(());
        };
        if let Some(mut input) = keeper.stdin.take() {
            let _gone = input.write_all(b"\n");
        }
        let end = Instant::now() + STOP_LIMIT;
        while keeper.try_wait()?.is_none() {
            if Instant::now() >= end {
                bail!("postgres did not end within {STOP_LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The address of a new, empty database.
    pub fn database(&self) -> Result<String> {
        let name = {
            let mut count = self.databases.lock();
            *count += 1;
            format!("test{count}")
        };
        self.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(self.url(&name))
    }

    /// The address of a database.
    pub fn url(&self, database: &str) -> String {
        let folder = self.dir.path().display();
        format!("postgres://{SUPERUSER}@localhost/{database}?host={folder}")
    }

    /// Runs SQL in a database named by its address, and gives what psql prints without its frame.
    pub fn run(&self, url: &str, sql: &str) -> Result<String> {
        let address = url.split('?').next().unwrap_or_default();
        let (_, database) = address.rsplit_once('/').context("an address")?;
        self.sql(database, sql)
    }

    fn sql(&self, database: &str, sql: &str) -> Result<String> {
        let done = self
            .command("psql")
            .args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-U", SUPERUSER])
            .args(["-d", database, "-c", sql])
            .arg("-h")
            .arg(self.dir.path())
            .output()?;
        if !done.status.success() {
            bail!("psql: {}", String::from_utf8_lossy(&done.stderr));
        }
        Ok(String::from_utf8(done.stdout)?.trim().to_owned())
    }

    fn answers(&self) -> bool {
        self.sql("postgres", "SELECT 1").is_ok()
    }

    fn logged(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        self.command_of(&self.programs.join(program))
    }

    fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((group, user)) = self.user {
            command.gid(group).uid(user);
        }
        command
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.dir.path());
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ended = self.stop();
    }
}

/// The folder of initdb, postgres and psql: Debian's, newest version first, or that of `postgres` in the path.
fn programs() -> Result<Option<PathBuf>> {
    let mut versions: Vec<(u32, PathBuf)> = Vec::new();
    if let Ok(entries) = std::fs::read_dir("/usr/lib/postgresql") {
        for entry in entries {
            let path = entry?.path();
            let number = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok());
            versions.push((number.unwrap_or(0), path.join("bin")));
        }
    }
    versions.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = versions.into_iter().rev().map(|(_, path)| path);
    let all = debian.chain(std::env::split_paths(&path));
    let whole = |folder: &PathBuf| {
        ["initdb", "postgres", "psql"]
            .iter()
            .all(|program| folder.join(program).try_exists().unwrap_or(false))
    };
    Ok(all.into_iter().find(whole))
}

/// Group and user id of an account that is not root: `postgres`, else `nobody`.
fn other_user() -> Result<(u32, u32)> {
    let accounts = std::fs::read_to_string("/etc/passwd")?;
    for name in ["postgres", "nobody"] {
        for account in accounts.lines() {
            let fields: Vec<&str> = account.split(':').collect();
            if let [account, _, user, group, ..] = fields.as_slice()
                && *account == name
            {
                return Ok((group.parse()?, user.parse()?));
            }
        }
    }
    bail!("no account postgres or nobody to run Postgres as")
}
