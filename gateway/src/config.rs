//! Settings of a gateway.

use crate::db::{DatabaseUrl, SecretsConfig};
use crate::http::origin::OriginRules;
use crate::ws::WsConfig;
use node::config::{Fault, Settings};
use node::{AdminListen, ByteSize, Millis};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Whether callers must say who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// They must.
    #[default]
    On,
    /// They need not; only on loopback, with its rules for `Host`, proxies and `Origin`.
    Off,
}

/// Settings of a gateway process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address of the HTTP socket.
    pub listen: SocketAddr,
    /// Name servers, `host:port`.
    pub namesrv: Vec<String>,
    /// Authentication.
    pub auth: Auth,
    /// Origins of browsers that may call besides the gateway's own, separated by commas.
    pub allow_origin: String,
    /// Whether sends create topics and receives create groups and subscriptions.
    pub auto_create: bool,
    /// Directory of the embedded metadata store and the master key.
    pub data: PathBuf,
    /// Metadata store: `sqlite:PATH` or `postgres://…`; none = `gateway.db` in the data directory.
    pub database_url: Option<DatabaseUrl>,
    /// A start waits so long for a Postgres that cannot be reached.
    pub database_wait: Millis,
    /// File of the master key; none = `master-key` in the data directory, made at the first start of an embedded store.
    pub master_key_file: Option<PathBuf>,
    /// Store secrets in the clear, without a master key.
    pub insecure_plain_secrets: bool,
    /// Whether a gateway on Postgres makes its master key file too, as the only gateway of its store does.
    #[serde(skip)]
    pub only_gateway: bool,
    /// Name in `Mq-Gateway`; none = made up at start.
    pub name: Option<String>,
    /// Health and metrics.
    pub admin_listen: AdminListen,
    /// Whether `/metrics` is on the HTTP socket too.
    pub public_metrics: bool,
    /// Connections at a time; further ones wait.
    pub connections_max: usize,
    /// Receives and browses that wait at a time; a further one is refused.
    pub waiters_max: usize,
    /// Largest request body.
    pub request_max: ByteSize,
    /// Largest message body.
    pub message_max: ByteSize,
    /// Messages in one batch.
    pub batch_max: usize,
    /// Receipts in one ack, nack or extend.
    pub receipts_max: usize,
    /// Request bodies held at a time.
    pub bodies_max: ByteSize,
    /// Messages in answers and frames that clients have yet to take, at a time.
    pub answers_max: ByteSize,
    /// Sockets.
    pub ws: WsConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080)),
            namesrv: vec!["127.0.0.1:9876".into()],
            auth: Auth::On,
            allow_origin: String::new(),
            auto_create: false,
            data: "./gantry-gateway".into(),
            database_url: None,
            database_wait: Millis::secs(30),
            master_key_file: None,
            insecure_plain_secrets: false,
            only_gateway: false,
            name: None,
            admin_listen: AdminListen::Auto,
            public_metrics: false,
            connections_max: 10_000,
            waiters_max: 20_000,
            request_max: ByteSize::mib(8),
            message_max: ByteSize::mib(4),
            batch_max: 256,
            receipts_max: 256,
            bodies_max: ByteSize::mib(512),
            answers_max: ByteSize::mib(512),
            ws: WsConfig::default(),
        }
    }
}

impl Config {
    /// The metadata store's address.
    #[must_use]
    pub fn database(&self) -> DatabaseUrl {
        let embedded = || DatabaseUrl::sqlite(&self.data.join("gateway.db"));
        self.database_url.clone().unwrap_or_else(embedded)
    }

    /// Where the master key comes from; none: it is needed and not given.
    #[must_use]
    pub fn secrets(&self) -> Option<SecretsConfig> {
        if self.insecure_plain_secrets {
            return Some(SecretsConfig {
                file: None,
                create: false,
            });
        }
        let create = self.only_gateway || !self.database().is_postgres();
        let own = || create.then(|| self.data.join("master-key"));
        let file = self.master_key_file.clone().or_else(own)?;
        Some(SecretsConfig {
            file: Some(file),
            create,
        })
    }
}

impl Settings for Config {
    fn validate(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |key: &str, text: String| faults.push(Fault::new(key, text));
        match self.auth {
            Auth::On => fault(
                "auth",
                "authentication is not built yet, so this gateway serves loopback only: set auth to off (--auth off) and listen to \
                 a loopback address such as 127.0.0.1:8080"
                    .into(),
            ),
            Auth::Off if !self.listen.ip().is_loopback() => fault(
                "listen",
                format!("{} is no loopback address; without authentication anybody who reaches it could read and write everything; \
                         listen to 127.0.0.1:{}", self.listen, self.listen.port()),
            ),
            Auth::Off => {}
        }
        if self.namesrv.is_empty() {
            fault("namesrv", "needs at least one host:port".into());
        }
        for server in &self.namesrv {
            if server
                .rsplit_once(':')
                .is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err())
            {
                fault("namesrv", format!("'{server}' is no host:port"));
            }
        }
        if let Err(why) = OriginRules::parse(&self.allow_origin) {
            fault("allow_origin", why);
        }
        if let Some(why) = self.database_url.as_ref().and_then(DatabaseUrl::fault) {
            fault("database_url", why);
        }
        if self.master_key_file.is_some() && self.insecure_plain_secrets {
            fault(
                "insecure_plain_secrets",
                "says that there is no master key, and master_key_file names one: leave one of them out".into(),
            );
        } else if self.secrets().is_none() {
            fault(
                "master_key_file",
                "is needed with Postgres, the same file for all gateways of the store. Make it once: (umask 077; head -c 32 \
                 /dev/urandom | base64 > master-key), then start with --master-key-file master-key. For a trial, \
                 --insecure-plain-secrets stores the secrets in the clear"
                    .into(),
            );
        }
        if self.database_wait.duration() > Duration::from_secs(3600) {
            fault("database_wait", "must be at most 1h".into());
        }
        if self.data.as_os_str().is_empty() {
            fault("data", "must name a directory".into());
        }
        let (request, message) = (self.request_max.bytes(), self.message_max.bytes());
        if !(1..=64 << 20).contains(&request) {
            fault("request_max", "must be between 1B and 64MiB".into());
        }
        if !(1..=16 << 20).contains(&message) {
            fault("message_max", "must be between 1B and 16MiB".into());
        }
        for (key, max) in [
            ("batch_max", self.batch_max),
            ("receipts_max", self.receipts_max),
        ] {
            if !(1..=1_000).contains(&max) {
                fault(key, "must be between 1 and 1000".into());
            }
        }
        if self.bodies_max.bytes() < request {
            fault("bodies_max", "must be at least request_max".into());
        }
        if self.answers_max.bytes() < message {
            fault("answers_max", "must be at least message_max".into());
        }
        if self.connections_max == 0 {
            fault("connections_max", "must be at least 1".into());
        }
        if self.waiters_max == 0 {
            fault("waiters_max", "must be at least 1".into());
        }
        for (key, text) in self.ws.faults() {
            fault(key, text);
        }
        if self.name.as_deref().is_some_and(|n| {
            n.is_empty() || n.len() > 64 || !n.bytes().all(|b| b.is_ascii_graphic())
        }) {
            fault("name", "must be 1–64 visible ASCII characters".into());
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_authentication_only_loopback_starts() {
        let keys = |config: &Config| {
            config
                .validate()
                .into_iter()
                .map(|f| f.key)
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&Config::default()), ["auth"]);
        let off = Config {
            auth: Auth::Off,
            ..Config::default()
        };
        assert_eq!(keys(&off), ["listen"]);
        let local = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            ..off
        };
        assert!(keys(&local).is_empty());
        let bad = Config {
            namesrv: vec!["x".into()],
            allow_origin: "y".into(),
            connections_max: 0,
            batch_max: 1_001,
            receipts_max: 0,
            ..local
        };
        assert_eq!(
            keys(&bad),
            [
                "namesrv",
                "allow_origin",
                "batch_max",
                "receipts_max",
                "connections_max"
            ]
        );
    }

    #[test]
    fn postgres_needs_a_master_key() {
        let faults = |change: fn(&mut Config)| {
            let mut config = Config {
                auth: Auth::Off,
                listen: "127.0.0.1:0".parse().unwrap(),
                database_url: Some("postgres://u@h/d".into()),
                ..Config::default()
            };
            change(&mut config);
            let faults = config.validate();
            faults.into_iter().map(|f| f.key).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(faults(|_| {}), ["master_key_file"]);
        assert_eq!(faults(|c| c.master_key_file = Some("k".into())), none);
        assert_eq!(faults(|c| c.insecure_plain_secrets = true), none);
        assert_eq!(faults(|c| c.only_gateway = true), none);
        assert_eq!(faults(|c| c.database_url = None), none);
        assert_eq!(
            faults(|c| {
                c.master_key_file = Some("k".into());
                c.insecure_plain_secrets = true;
            }),
            ["insecure_plain_secrets"]
        );
        assert_eq!(
            faults(|c| {
                c.database_url = Some("mysql://h/d".into());
                c.database_wait = Millis::secs(3601);
            }),
            ["database_url", "database_wait"]
        );
    }
}
