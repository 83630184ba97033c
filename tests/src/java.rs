//! Programs on foreign clients: `tests/interop/java` (the unmodified Java client, 5.4.0 and 4.9.8, and `mqadmin`),
//! `tests/interop/go` and `tests/interop/cpp`. All take the same arguments and print the same lines.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use crate::needs::missing;

const LIMIT: Duration = Duration::from_secs(120);

/// Programs of one client that keep their logs under one folder.
#[derive(Debug)]
pub struct Java {
    home: PathBuf,
    program: Vec<OsString>,
}

impl Java {
    /// The Java client 5.4.0. Fails where it has not been built.
    pub fn new(home: &Path) -> Result<Java> {
        Java::built(home, &interop("java/target"))
    }

    /// The Java client 4.9.8. Fails where it has not been built.
    pub fn old(home: &Path) -> Result<Java> {
        Java::built(home, &interop("target/java4"))
    }

    fn built(home: &Path, target: &Path) -> Result<Java> {
        let (lib, classes) = (target.join("lib"), target.join("classes"));
        if !lib.try_exists()? || !classes.join("interop/Main.class").try_exists()? {
            bail!("the Java programs are not built: run `scripts/clients java`");
        }
        let user_home = format!("-Duser.home={}", home.display());
        let class_path = format!("{}:{}/*", classes.display(), lib.display());
        let mut program = [
            "java",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xmx256m",
        ]
        .map(OsString::from)
        .to_vec();
        program.extend([user_home, "-cp".to_owned(), class_path].map(OsString::from));
        program.push("interop.Main".into());
        Ok(Java {
            home: home.to_owned(),
            program,
        })
    }

    /// The Go client; `None` where it is not built and need not be ([`missing`]).
    pub fn go(home: &Path) -> Result<Option<Java>> {
        let program = interop("target/go/interop");
        Java::of(
            home,
            "the Go programs",
            &program,
            vec![program.clone().into()],
        )
    }

    /// The C++ client in its Python package; `None` as for Go.
    pub fn cpp(home: &Path) -> Result<Option<Java>> {
        let python = interop("target/python/bin/python");
        let program = vec![python.clone().into(), interop("cpp/interop.py").into()];
        Java::of(home, "the C++ client", &python, program)
    }

    fn of(home: &Path, what: &str, needed: &Path, program: Vec<OsString>) -> Result<Option<Java>> {
        if !needed.try_exists()? {
            return missing(what, "run `scripts/clients`").map(|()| None);
        }
        Ok(Some(Java {
            home: home.to_owned(),
            program,
        }))
    }

    fn command(&self, args: &[&str]) -> Command {
        let (name, first) = self.program.split_first().expect("a program has a name");
        let mut command = Command::new(name);
        command
            .args(first)
            .args(args)
            .current_dir(&self.home)
            .env("HOME", &self.home)
            .env("ROCKETMQ_HOME", &self.home)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn output(&self, args: &[&str]) -> Result<Output> {
        let running = self.command(args).output();
        tokio::time::timeout(LIMIT, running)
            .await
            .with_context(|| format!("{args:?} did not end"))?
            .with_context(|| format!("{:?}", self.program))
    }

    /// Runs a program to its end and returns the lines it printed; fails where the program does.
    pub async fn lines(&self, args: &[&str]) -> Result<Vec<Value>> {
        let output = self.output(args).await?;
        if !output.status.success() {
            bail!(
                "{args:?}: {}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let text = String::from_utf8(output.stdout)?;
        text.lines()
            .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
            .collect()
    }

    /// Starts a process in which `mqadmin` commands run one after the other: starting one takes seconds.
    pub async fn admins(&self, namesrv: &str) -> Result<Admins> {
        let mut child = self
            .command(&["admins"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let input = child.stdin.take().context("stdin is piped")?;
        let output = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        let admins = Admins {
            namesrv: namesrv.to_owned(),
            inner: Mutex::new(Inner {
                _child: child,
                input,
                output,
            }),
        };
        let ready = admins.inner.lock().await.line().await?;
        if ready.get("ready").is_none() {
            bail!("mqadmin printed {ready}");
        }
        Ok(admins)
    }

    /// Starts a consumer and returns when it has started; the rest of its lines by [`Consumer::rest`].
    pub async fn consumer(&self, args: &[&str]) -> Result<Consumer> {
        let errors = tempfile::tempfile()?;
        let mut child = self
            .command(args)
            .stdout(Stdio::piped())
            .stderr(errors.try_clone()?)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        // a first message may come before the program has said that it is ready
        let mut early = Vec::new();
        let starting = async {
            while let Some(line) = lines.next_line().await? {
                let line: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
                if line["ready"] == true {
                    return Ok(true);
                }
                early.push(line);
            }
            anyhow::Ok(false)
        };
        let ready = tokio::time::timeout(LIMIT, starting)
            .await
            .context("consumer did not start")??;
        if !ready {
            bail!(
                "consumer {args:?} ended before it was ready\n{}",
                said(errors)
            );
        }
        early.reverse();
        Ok(Consumer {
            child,
            early,
            lines,
            errors,
        })
    }
}

/// What a program wrote to its standard error.
fn said(mut errors: File) -> String {
    let mut text = Vec::new();
    let read = errors.rewind().and_then(|()| errors.read_to_end(&mut text));
    match read {
        Ok(_) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// `mqadmin` commands in one process, which ends when this is dropped.
#[derive(Debug)]
pub struct Admins {
    namesrv: String,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    _child: Child,
    input: ChildStdin,
    output: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl Inner {
    async fn line(&mut self) -> Result<Value> {
        let line = tokio::time::timeout(LIMIT, self.output.next_line())
            .await
            .context("mqadmin did not answer")??
            .context("mqadmin ended")?;
        serde_json::from_str(&line).with_context(|| line.clone())
    }
}

impl Admins {
    /// `mqadmin ARGS -n NAMESRV`: what it printed, standard error among it. It never fails, whatever happens.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        let mut words = args.to_vec();
        words.extend(["-n", &self.namesrv]);
        let mut line = serde_json::to_string(&words)?;
        line.push('\n');
        let mut inner = self.inner.lock().await;
        inner.input.write_all(line.as_bytes()).await?;
        inner.input.flush().await?;
        let printed = inner
            .line()
            .await
            .with_context(|| format!("mqadmin {args:?}"))?;
        let text = printed.get("out").and_then(Value::as_str);
        Ok(text.context("no output")?.to_owned())
    }
}

/// A consumer that runs.
#[derive(Debug)]
pub struct Consumer {
    child: Child,
    /// What it printed before it was ready, the last first.
    early: Vec<Value>,
    lines: tokio::io::Lines<BufReader<ChildStdout>>,
    /// Its standard error.
    errors: File,
}

impl Consumer {
    /// Its deliveries, when it has ended by itself.
    pub async fn rest(mut self) -> Result<Vec<Value>> {
        let mut all = self.early_lines();
        let reading = async {
            while let Some(line) = self.lines.next_line().await? {
                all.push(serde_json::from_str(&line).with_context(|| line.clone())?);
            }
            anyhow::Ok(())
        };
        let Ok(read) = tokio::time::timeout(LIMIT, reading).await else {
            bail!("consumer did not end\n{}", said(self.errors));
        };
        read?;
        let status = self.child.wait().await?;
        if !status.success() {
            bail!("consumer ended with {status}\n{}", said(self.errors));
        }
        Ok(all)
    }

    fn early_lines(&mut self) -> Vec<Value> {
        let mut lines = std::mem::take(&mut self.early);
        lines.reverse();
        lines
    }

    /// Its next delivery.
    pub async fn next(&mut self) -> Result<Value> {
        if let Some(line) = self.early.pop() {
            return Ok(line);
        }
        let line = tokio::time::timeout(LIMIT, self.lines.next_line())
            .await
            .context("no further delivery")??
            .context("consumer ended")?;
        serde_json::from_str(&line).with_context(|| line.clone())
    }

    /// kill -9. The answer is what it had printed and nobody read.
    pub async fn kill9(mut self) -> Result<Vec<Value>> {
        self.child.kill().await?;
        let mut all = self.early_lines();
        // The last line may be torn.
        while let Ok(Some(line)) = self.lines.next_line().await {
            all.extend(serde_json::from_str::<Value>(&line).ok());
        }
        Ok(all)
    }
}

/// A path below `tests/interop`.
pub fn interop(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("interop")
        .join(path)
}
