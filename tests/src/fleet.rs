//! A fleet of real processes: name servers, brokers and gateways that share one metadata store, each in a directory of
//! its own.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;

use crate::http::Rest;
use crate::native::Native;
use crate::postgres::Postgres;
use crate::process::Gantry;
use crate::wait::eventually;

const CLUSTER_INFO: i32 = 106;
const READY: Duration = Duration::from_secs(20);

/// Where the gateways keep their metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// One SQLite file.
    Sqlite,
    /// A database of its own on the throwaway server; SQLite where Postgres is not installed.
    Postgres,
}

/// How many of each, and how they are set.
#[derive(Clone, Debug)]
pub struct Shape {
    pub name_servers: usize,
    pub brokers: usize,
    pub gateways: usize,
    pub metadata: Metadata,
    /// Arguments of every broker.
    pub broker_args: Vec<&'static str>,
    /// Arguments of every gateway.
    pub gateway_args: Vec<&'static str>,
}

impl Default for Shape {
    /// One name server, two brokers with sync flush, two gateways on one Postgres that make topics and groups.
    fn default() -> Shape {
        Shape {
            name_servers: 1,
            brokers: 2,
            gateways: 2,
            metadata: Metadata::Postgres,
            broker_args: vec!["--flush-mode", "sync", "--segment-size", "16MiB"],
            gateway_args: vec!["--auto-create"],
        }
    }
}

/// The processes. Dropping it kills them.
#[derive(Debug)]
pub struct Fleet {
    pub name_servers: Vec<Gantry>,
    pub brokers: Vec<Gantry>,
    pub gateways: Vec<Gantry>,
    postgres: Option<(Arc<Postgres>, String)>,
    dir: TempDir,
}

static SHARED: Mutex<Weak<Fleet>> = Mutex::new(Weak::new());

impl Fleet {
    /// The default fleet, shared by the tests of this program that run at a time: they use names of their own and
    /// stop nothing.
    pub fn shared() -> Result<Arc<Fleet>> {
        let mut shared = SHARED.lock();
        if let Some(running) = shared.upgrade() {
            return Ok(running);
        }
        let started = Arc::new(Fleet::start(&Shape::default())?);
        *shared = Arc::downgrade(&started);
        Ok(started)
    }

    /// One name server, one broker and so many gateways on one SQLite file, each with `gateway_args`; ready.
    ///
    /// # Panics
    /// When they cannot be started.
    pub async fn small(gateways: usize, gateway_args: &[&'static str]) -> Fleet {
        let shape = Shape {
            brokers: 1,
            gateways,
            metadata: Metadata::Sqlite,
            broker_args: Vec::new(),
            gateway_args: gateway_args.to_vec(),
            ..Shape::default()
        };
        let fleet = match Fleet::start(&shape) {
            Ok(fleet) => fleet,
            Err(error) => panic!("{error:#}"),
        };
        fleet.ready().await;
        fleet
    }

    /// Starts all of them; whether they know each other yet is for [`Fleet::ready`].
    pub fn start(shape: &Shape) -> Result<Fleet> {
        let dir = tempfile::tempdir()?;
        let folder = |name: &str| -> Result<std::path::PathBuf> {
            let path = dir.path().join(name);
            std::fs::create_dir_all(&path)?;
            Ok(path)
        };
        let listen = ["--listen", "127.0.0.1:0"];
        let mut name_servers = Vec::new();
        for n in 0..shape.name_servers {
            name_servers.push(Gantry::start(
                "namesrv",
                &listen,
                &folder(&format!("namesrv-{n}"))?,
            )?);
        }
        let names: Vec<String> = name_servers
            .iter()
            .map(|server| server.addr("namesrv").to_string())
            .collect();
        let names = names.join(",");
        let mut brokers = Vec::new();
        for n in 0..shape.brokers {
            let name = broker_name(n);
            let mut args = vec!["--data", "data", "--namesrv", &names, "--name", &name];
            args.extend(listen);
            args.extend(&shape.broker_args);
            brokers.push(Gantry::start("broker", &args, &folder(&name)?)?);
        }
        let postgres = match shape.metadata {
            Metadata::Postgres => Postgres::shared()?,
            Metadata::Sqlite => None,
        };
        let postgres = match postgres {
            Some(server) => {
                let url = server.database()?;
                write_master_key(&dir.path().join("master-key"))?;
                Some((server, url))
            }
            None => None,
        };
        let mut fleet = Fleet {
            name_servers,
            brokers,
            gateways: Vec::new(),
            postgres,
            dir,
        };
        for n in 0..shape.gateways {
            fleet.add_gateway(&format!("gateway-{n}"), &shape.gateway_args)?;
        }
        Ok(fleet)
    }

    /// One more gateway on the shared store.
    pub fn add_gateway(&mut self, name: &str, more: &[&str]) -> Result<()> {
        let gateway = self.gateway(name, more)?;
        self.gateways.push(gateway);
        Ok(())
    }

    /// Starts a gateway on the shared store that is not kept with the others.
    pub fn gateway(&self, name: &str, more: &[&str]) -> Result<Gantry> {
        let folder = self.dir.path().join(name);
        std::fs::create_dir_all(&folder)?;
        let names = self.names();
        let mut args = vec!["--listen", "127.0.0.1:0", "--namesrv", &names];
        args.extend(["--auth", "off", "--name", name]);
        match &self.postgres {
            Some((_, url)) => {
                args.extend(["--database-url", url, "--data", "data"]);
                args.extend(["--master-key-file", "../master-key"]);
            }
            None => args.extend(["--data", "../metadata"]),
        }
        args.extend(more);
        Gantry::start("gateway", &args, &folder)
    }

    /// The name servers' addresses, as settings take them.
    pub fn names(&self) -> String {
        let addrs = self.name_servers.iter();
        let addrs: Vec<String> = addrs
            .map(|server| server.addr("namesrv").to_string())
            .collect();
        addrs.join(",")
    }

    /// The metadata server and the database's address; none on SQLite.
    pub fn postgres(&self) -> Option<(&Arc<Postgres>, &str)> {
        let (server, url) = self.postgres.as_ref()?;
        Some((server, url))
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A client of a gateway.
    pub fn rest(&self, gateway: usize) -> Rest {
        Rest::new(self.gateways[gateway].addr("gateway"))
    }

    /// Waits until every name server knows every broker and every gateway says that it is ready.
    pub async fn ready(&self) {
        let brokers: Vec<String> = (0..self.brokers.len()).map(broker_name).collect();
        for server in &self.name_servers {
            let (addr, brokers) = (server.addr("namesrv"), &brokers);
            eventually(READY, "all brokers are registered", || async move {
                let connection = Native::connect(addr).await.ok()?;
                let answer = connection.call(CLUSTER_INFO, json!({}), b"").await.ok()?;
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                let known = |name: &String| text.contains(&format!("\"{name}\""));
                brokers.iter().all(known).then_some(())
            })
            .await;
        }
        for gateway in 0..self.gateways.len() {
            let rest = &self.rest(gateway);
            eventually(READY, "a gateway is ready", || async move {
                let answer = rest
                    .call(hyper::Method::GET, "/readyz", &[], "")
                    .await
                    .ok()?;
                (answer.status == 200).then_some(())
            })
            .await;
        }
    }

    /// Fails when a process has ended by itself.
    pub fn all_alive(&mut self) -> Result<()> {
        let all = self.name_servers.iter_mut().chain(&mut self.brokers);
        for process in all.chain(&mut self.gateways) {
            if !process.alive() {
                bail!("a process has ended by itself:\n{}", process.logged());
            }
        }
        Ok(())
    }
}

/// `broker-a`, `broker-b`, …
pub fn broker_name(number: usize) -> String {
    let letter = b'a' + u8::try_from(number % 26).unwrap_or_default();
    format!("broker-{}", char::from(letter))
}

/// A new master key file: as many bytes as it takes from the system, base64, mode 0600.
pub fn write_master_key(path: &Path) -> Result<()> {
    use base64::Engine as _;
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| path.display().to_string())?;
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    writeln!(file, "{text}")?;
    Ok(())
}
