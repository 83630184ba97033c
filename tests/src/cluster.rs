//! A name server, a broker and several gateways on one metadata store, each a process of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::http::Rest;
use crate::process::Gantry;

/// Settings that every gateway of a cluster gets besides its addresses.
const AUTH_OFF: [&str; 2] = ["--auth", "off"];

/// The processes; dropping it kills them.
#[derive(Debug)]
pub struct Cluster {
    pub namesrv: Gantry,
    pub broker: Gantry,
    pub gateways: Vec<Gantry>,
    dir: PathBuf,
}

impl Cluster {
    /// Starts all of it under `dir`, with `more` arguments for each of the `gateways` gateways.
    pub fn start(dir: &Path, gateways: usize, more: &[&str]) -> Result<Cluster> {
        let namesrv = Gantry::start("namesrv", &["--listen", "127.0.0.1:0"], dir)?;
        let names = namesrv.addr("namesrv").to_string();
        let broker = [
            "--data",
            "broker",
            "--listen",
            "127.0.0.1:0",
            "--namesrv",
            &names,
        ];
        let broker = Gantry::start("broker", &broker, dir)?;
        let mut cluster = Cluster {
            namesrv,
            broker,
            gateways: Vec::new(),
            dir: dir.to_owned(),
        };
        for _ in 0..gateways {
            cluster.add_gateway(more)?;
        }
        Ok(cluster)
    }

    /// One more gateway.
    pub fn add_gateway(&mut self, more: &[&str]) -> Result<()> {
        let own = self.dir.join(format!("gateway-{}", self.gateways.len()));
        std::fs::create_dir(&own)?;
        let names = self.namesrv.addr("namesrv").to_string();
        let database = format!("sqlite://{}/gateways.db", self.dir.display());
        let key = self.dir.join("master-key").display().to_string();
        let mut args = vec!["--listen", "127.0.0.1:0", "--namesrv", &names];
        args.extend(["--database-url", &database, "--master-key-file", &key]);
        args.extend(AUTH_OFF);
        args.extend(more);
        let gateway = Gantry::start("gateway", &args, &own)?;
        self.gateways.push(gateway);
        Ok(())
    }

    /// REST at the gateway with this number.
    pub fn rest(&self, gateway: usize) -> Result<Rest> {
        let gateway = self.gateways.get(gateway).context("no such gateway")?;
        Ok(Rest::new(gateway.addr("gateway")))
    }
}
