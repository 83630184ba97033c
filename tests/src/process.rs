//! `gantry` as a real process: start on free ports in a temporary directory, stop, kill -9, start again where it was.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::ports;

const START_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// One running (or killed) `gantry` process. Dropping it kills it.
#[derive(Debug)]
pub struct Gantry {
    command: String,
    args: Vec<String>,
    dir: PathBuf,
    child: Child,
    addrs: BTreeMap<String, SocketAddr>,
    printed: Arc<Mutex<Vec<String>>>,
    starts: u32,
}

impl Gantry {
    /// Starts `gantry COMMAND ARGS…` with `dir` as working directory and waits until it is ready. For an argument
    /// `127.0.0.1:0` it gets a free port, which it keeps over later starts; where it listens is in [`Gantry::addr`].
    pub fn start(command: &str, args: &[&str], dir: &Path) -> Result<Gantry> {
        let mut args: Vec<String> = args.iter().map(|arg| given(arg)).collect();
        if command != "up" {
            // else it listens one port further, where another test may already do
            args.extend(["--admin-listen", "off"].map(str::to_owned));
        }
        let printed = Arc::new(Mutex::new(Vec::new()));
        let child = spawn(command, &args, dir, 1, &printed)?;
        let mut gantry = Gantry {
            command: command.to_owned(),
            args,
            dir: dir.to_owned(),
            child,
            addrs: BTreeMap::new(),
            printed,
            starts: 1,
        };
        gantry.wait_ready()?;
        Ok(gantry)
    }

    /// `gantry up` on free loopback ports with its data under `dir`, and further arguments.
    pub fn up(dir: &Path, more: &[&str]) -> Result<Gantry> {
        let mut args = vec![
            "--data",
            "data",
            "--http",
            "127.0.0.1:0",
            "--namesrv-listen",
            "127.0.0.1:0",
        ];
        args.extend(["--broker-listen", "127.0.0.1:0"]);
        args.extend(more);
        Gantry::start("up", &args, dir)
    }

    /// The address bound for a role, such as `gateway`, `namesrv` or `broker`.
    ///
    /// # Panics
    /// When its ready file has no such role.
    pub fn addr(&self, role: &str) -> SocketAddr {
        match self.addrs.get(role) {
            Some(addr) => *addr,
            None => panic!(
                "{} told no address of {role}, only {:?}",
                self.command, self.addrs
            ),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All lines it has printed on stdout since the last start; they may come a little after it is ready.
    pub fn printed(&self) -> Vec<String> {
        self.printed.lock().clone()
    }

    /// What it has logged on stderr since the first start.
    pub fn logged(&self) -> String {
        let mut text = String::new();
        for start in 1..=self.starts {
            if let Ok(mut file) = File::open(log_path(&self.dir, &self.command, start)) {
                let mut bytes = Vec::new();
                if file.read_to_end(&mut bytes).is_ok() {
                    text.push_str(&String::from_utf8_lossy(&bytes));
                }
            }
        }
        text
    }

    /// Whether the process still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// kill -9; returns when the process is gone.
    pub fn kill9(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("pid 0")?;
        kill_process(pid, signal)?;
        Ok(())
    }

    /// SIGTERM, then the exit status; fails when the process does not end by itself.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.ended(STOP_LIMIT)
    }

    /// Waits for an end that was asked for before.
    pub fn ended(&mut self, limit: Duration) -> Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= end {
                bail!("{} did not end within {limit:?}", self.command);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the same command again on the same data and the ports it had; the process must have ended.
    pub fn start_again(&mut self) -> Result<()> {
        self.start_with(&[])
    }

    /// Like [`Gantry::start_again`] with further arguments, which stay for later starts.
    pub fn start_with(&mut self, more: &[&str]) -> Result<()> {
        if self.alive() {
            bail!("{} still runs", self.command);
        }
        self.args.extend(more.iter().map(|arg| given(arg)));
        self.starts += 1;
        self.printed = Arc::new(Mutex::new(Vec::new()));
        self.child = spawn(
            &self.command,
            &self.args,
            &self.dir,
            self.starts,
            &self.printed,
        )?;
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<()> {
        let ready = ready_path(&self.dir, &self.command, self.starts);
        let end = Instant::now() + START_LIMIT;
        loop {
            if let Some(addrs) = read_addresses(&ready) {
                self.addrs = addrs;
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "gantry {} {:?} ended with {status}:\n{}",
                    self.command,
                    self.args,
                    self.logged()
                );
            }
            if Instant::now() >= end {
                let _gone = self.kill9();
                bail!(
                    "gantry {} was not ready within {START_LIMIT:?}:\n{}",
                    self.command,
                    self.logged()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Gantry {
    fn drop(&mut self) {
        let _gone = self.kill9();
        if std::thread::panicking() {
            let logged = self.logged();
            let tail: Vec<&str> = logged.lines().rev().take(30).collect();
            eprint_tail(&self.command, &tail);
        }
    }
}

fn eprint_tail(command: &str, tail: &[&str]) {
    eprintln!("--- last lines logged by gantry {command}");
    for line in tail.iter().rev() {
        eprintln!("{line}");
    }
}

/// The `gantry` binary under test: `GANTRY_BIN`, or the one cargo built beside this test.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("GANTRY_BIN") {
        return Ok(PathBuf::from(path));
    }
    let test = std::env::current_exe()?;
    let folder = test
        .parent()
        .and_then(Path::parent)
        .context("a test binary lies in target/PROFILE/deps")?;
    let path = folder.join("gantry");
    if !path.try_exists()? {
        bail!(
            "{} is missing: run `cargo build --bin gantry` first, or scripts/test",
            path.display()
        );
    }
    Ok(path)
}

fn given(arg: &str) -> String {
    if arg == "127.0.0.1:0" {
        ports::free()
    } else {
        arg.to_owned()
    }
}

fn spawn(
    command: &str,
    args: &[String],
    dir: &Path,
    start: u32,
    printed: &Arc<Mutex<Vec<String>>>,
) -> Result<Child> {
    let log = File::create(log_path(dir, command, start))?;
    let mut child = Command::new(binary()?)
        .arg(command)
        .args(args)
        .arg("--ready-file")
        .arg(ready_path(dir, command, start))
        .current_dir(dir)
        .env_remove("GANTRY_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let printed = Arc::clone(printed);
    std::thread::spawn(move || {
        for line in BufReader::new(stdout)
            .lines()
            .map_while(std::io::Result::ok)
        {
            printed.lock().push(line);
        }
    });
    Ok(child)
}

fn log_path(dir: &Path, command: &str, start: u32) -> PathBuf {
    dir.join(format!("{command}.{start}.log"))
}

fn ready_path(dir: &Path, command: &str, start: u32) -> PathBuf {
    dir.join(format!("{command}.{start}.ready"))
}

/// The ready file: one JSON object, role to bound address; none while it is not there or not whole.
fn read_addresses(path: &Path) -> Option<BTreeMap<String, SocketAddr>> {
    let text = std::fs::read(path).ok()?;
    let roles: BTreeMap<String, String> = serde_json::from_slice(&text).ok()?;
    roles
        .into_iter()
        .map(|(role, addr)| Some((role, addr.parse().ok()?)))
        .collect()
}
