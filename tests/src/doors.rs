//! The system under test as its doors: `gantry up` in a temporary directory, or a peer named by the environment.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::http::Rest;
use crate::process::Gantry;

/// Where name server and broker listen, and the gateway where there is one.
///
/// With `GANTRY_PEER=NAMESRV,BROKER` the foreign clients' tests run against what listens there, such as Apache RocketMQ
/// itself: so the expected values are observed. Tests that need a gateway then have nothing to do.
#[derive(Debug)]
pub struct Doors {
    pub namesrv: SocketAddr,
    pub broker: SocketAddr,
    gantry: Option<Gantry>,
    // after the process: a failed test shows what is logged there
    dir: TempDir,
}

impl Doors {
    pub fn open() -> Result<Doors> {
        Doors::open_with(&[])
    }

    /// Sends are answered from the page cache: for tests that move many messages and look at no disk.
    pub fn open_fast() -> Result<Doors> {
        Doors::open_with(&["--flush-mode", "async"])
    }

    fn open_with(more: &[&str]) -> Result<Doors> {
        let dir = tempfile::tempdir()?;
        if let Ok(peer) = std::env::var("GANTRY_PEER") {
            let (namesrv, broker) = peer.split_once(',').context("GANTRY_PEER=NAMESRV,BROKER")?;
            return Ok(Doors {
                namesrv: namesrv.parse()?,
                broker: broker.parse()?,
                dir,
                gantry: None,
            });
        }
        let gantry = Gantry::up(dir.path(), more)?;
        Ok(Doors {
            namesrv: gantry.addr("namesrv"),
            broker: gantry.addr("broker"),
            dir,
            gantry: Some(gantry),
        })
    }

    /// The gateway's address; none before a peer.
    pub fn gateway(&self) -> Option<SocketAddr> {
        Some(self.gantry.as_ref()?.addr("gateway"))
    }

    /// A client of the gateway; none before a peer.
    pub fn rest(&self) -> Option<Rest> {
        self.gateway().map(Rest::new)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A name no other run has used: a peer outlives the test.
    pub fn name(&self, what: &str) -> String {
        let unique = self
            .dir
            .path()
            .file_name()
            .map(|name| name.to_string_lossy().replace('.', ""))
            .unwrap_or_default();
        format!("{what}-{unique}")
    }
}
