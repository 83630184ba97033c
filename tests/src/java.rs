//! Runs the programs of `tests/interop/java`: the unmodified Java client and `mqadmin`.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const LIMIT: Duration = Duration::from_secs(120);

/// Programs that keep their logs under one folder.
#[derive(Debug)]
pub struct Java {
    home: PathBuf,
}

impl Java {
    /// Fails where `mvn compile` has not been run.
    pub fn new(home: &Path) -> Result<Java> {
        if !target().join("lib").try_exists()?
            || !target().join("classes/interop/Main.class").try_exists()?
        {
            bail!(
                "the Java programs are not built: run `scripts/test interop`, or mvn -f tests/interop/java/pom.xml compile"
            );
        }
        Ok(Java {
            home: home.to_owned(),
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let target = target();
        let mut command = Command::new("java");
        command
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"])
            .arg(format!("-Duser.home={}", self.home.display()))
            .arg("-cp")
            .arg(format!(
                "{}:{}/*",
                target.join("classes").display(),
                target.join("lib").display()
            ))
            .arg("interop.Main")
            .args(args)
            .current_dir(&self.home)
            .env("ROCKETMQ_HOME", &self.home)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn output(&self, args: &[&str]) -> Result<Output> {
        let running = self.command(args).output();
        tokio::time::timeout(LIMIT, running)
            .await
            .with_context(|| format!("java {args:?} did not end"))?
            .context("java")
    }

    /// Runs a program to its end and returns the lines it printed; fails where the program does.
    pub async fn lines(&self, args: &[&str]) -> Result<Vec<Value>> {
        let output = self.output(args).await?;
        if !output.status.success() {
            bail!(
                "java {args:?}: {}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let text = String::from_utf8(output.stdout)?;
        text.lines()
            .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
            .collect()
    }

    /// `mqadmin ARGS`: what it printed, standard error behind standard output. It exits 0 whatever happens.
    pub async fn admin(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["admin"];
        all.extend(args);
        let output = self.output(&all).await?;
        Ok(format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ))
    }

    /// Starts a consumer and returns when it has started; the rest of its lines by [`Consumer::rest`].
    pub async fn consumer(&self, args: &[&str]) -> Result<Consumer> {
        let mut child = self
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        let first = tokio::time::timeout(LIMIT, lines.next_line())
            .await
            .context("consumer did not start")??;
        if first.as_deref() != Some(r#"{"ready":true}"#) {
            let output = child.wait_with_output().await?;
            bail!(
                "consumer {args:?} printed {first:?}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(Consumer { child, lines })
    }
}

/// A consumer that runs.
#[derive(Debug)]
pub struct Consumer {
    child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Consumer {
    /// Its deliveries, when it has ended by itself.
    pub async fn rest(mut self) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        let reading = async {
            while let Some(line) = self.lines.next_line().await? {
                all.push(serde_json::from_str(&line).with_context(|| line.clone())?);
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(LIMIT, reading)
            .await
            .context("consumer did not end")??;
        let status = self.child.wait().await?;
        if !status.success() {
            bail!("consumer ended with {status}");
        }
        Ok(all)
    }
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/java/target")
}
