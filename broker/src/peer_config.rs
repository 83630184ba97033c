//! Levels topics and groups with the other masters of the cluster: before serving, after being cut off, and periodically.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use remoting::Client;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use wire::body::ClusterInfo;
use wire::body::config_level::{ConfigEntries, ConfigList, ConfigMark, ConfigNames};
use wire::{Command, RequestCode, ResponseCode, WireError};

use crate::adopt::{self, Kind};
use crate::broker::Broker;
use crate::error::BrokerError;
use crate::handlers::config_level::ENTRIES_MAX;
use crate::persist::ConfigFile;
use crate::table::{Entry, Table};

/// Longest wait for silent name servers and peers before this broker serves.
pub(crate) const START_WAIT: Duration = Duration::from_secs(3);
/// The same for a look while it serves.
const LOOK_WAIT: Duration = Duration::from_secs(10);
/// How long a peer that is not registered is still asked, ms (24 h).
const REMEMBERED_MS: u64 = 86_400_000;
/// Most peers.
const PEERS_MAX: usize = 1_024;
/// How long slower name servers are waited for once one has answered.
const SLOWER_WAIT: Duration = Duration::from_millis(300);
/// Shortest time between two looks that are asked for.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// One other master.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Peer {
    addr: String,
    /// When a name server last listed it, wall time, ms.
    seen_ms: u64,
}

/// The other masters of the cluster, silent ones included.
#[derive(Debug)]
pub(crate) struct Peers {
    client: Client,
    /// By broker name; kept in `config/peers.json`.
    known: Mutex<BTreeMap<String, Peer>>,
    file: ConfigFile,
    /// State of a peer's table when all of it had been taken over.
    read: Mutex<BTreeMap<(String, &'static str), String>>,
    wake: Notify,
}

impl Peers {
    /// Nobody is known yet.
    pub(crate) fn new(client: Client, file: ConfigFile) -> Self {
        Self {
            client,
            known: Mutex::default(),
            file,
            read: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Reads who was there before the last stop. A file that cannot be used is left out: the name servers know better.
    pub(crate) fn recall(&self) {
        let read = |json: &[u8]| -> Result<usize, WireError> {
            let known = read_file(json)?;
            let count = known.len();
            *self.known.lock() = latest(known);
            Ok(count)
        };
        if let Err(error) = self.file.load(read) {
            tracing::warn!(%error, "the peers of before are not known");
        }
    }

    /// Names of the other masters, those of the last 24 h included that are not registered now.
    pub(crate) fn names(&self) -> Vec<String> {
        self.known.lock().keys().cloned().collect()
    }

    /// A peer that reads this broker's configuration says who it is. One that is new here, or elsewhere than before, may
    /// have something newer: it is looked at at once.
    pub(crate) fn met(&self, name: &str, addr: &str, now_ms: u64) {
        let mut known = self.known.lock();
        if known.len() >= PEERS_MAX && !known.contains_key(name) {
            return;
        }
        let peer = known.entry(name.to_owned()).or_default();
        peer.seen_ms = now_ms;
        let moved = peer.addr != addr;
        addr.clone_into(&mut peer.addr);
        drop(known);
        if moved {
            self.look();
        }
    }

    /// Somebody knows a newer configuration: look at once.
    pub(crate) fn look(&self) {
        self.wake.notify_one();
    }

    /// Takes in who is registered, forgets who was not for long; answers all with their addresses.
    fn update(&self, broker: &Broker, listed: BTreeMap<String, String>) -> BTreeMap<String, Peer> {
        let now_ms = broker.now_ms();
        let mut known = self.known.lock();
        let before: Vec<(String, String)> = addresses(&known);
        for (name, addr) in listed {
            let seen_ms = now_ms;
            known.insert(name, Peer { addr, seen_ms });
        }
        known.retain(|_, peer| now_ms.saturating_sub(peer.seen_ms) < REMEMBERED_MS);
        *known = latest(std::mem::take(&mut known));
        let (all, changed) = (known.clone(), addresses(&known) != before);
        drop(known);
        if changed {
            let text = file_text(&all);
            if let Err(error) = self.file.write(|| text) {
                tracing::warn!(%error, "the peers are not remembered");
            }
        }
        all
    }
}

/// At most [`PEERS_MAX`] of them, those that were seen last.
/// Peers by name, as `config/peers.json` has them.
///
/// # Errors
/// The text is no such table.
pub(crate) fn read_file(json: &[u8]) -> Result<BTreeMap<String, Peer>, WireError> {
    wire::json::from_slice(json)
}

/// The text of `config/peers.json`.
pub(crate) fn file_text(peers: &BTreeMap<String, Peer>) -> Vec<u8> {
    serde_json::to_vec_pretty(peers).unwrap_or_default()
}

fn latest(known: BTreeMap<String, Peer>) -> BTreeMap<String, Peer> {
    let mut peers: Vec<(String, Peer)> = known.into_iter().collect();
    peers.sort_by_key(|(_, peer)| Reverse(peer.seen_ms));
    peers.truncate(PEERS_MAX);
    peers.into_iter().collect()
}

fn addresses(known: &BTreeMap<String, Peer>) -> Vec<(String, String)> {
    known
        .iter()
        .map(|(name, peer)| (name.clone(), peer.addr.clone()))
        .collect()
}

/// Looks periodically, and when asked to.
pub(crate) async fn run(broker: Arc<Broker>) {
    let period = broker.config.level_interval.duration();
    loop {
        tokio::select! {
            () = broker.stopping.cancelled() => return,
            () = tokio::time::sleep(period) => {}
            () = broker.peers.wake.notified() => {}
        }
        let looking = async {
            level(&broker, LOOK_WAIT).await;
            tokio::time::sleep(LOOK_PAUSE).await;
        };
        tokio::select! {
            () = broker.stopping.cancelled() => return,
            () = looking => {}
        }
    }
}

/// Takes over from every peer what is newer there. Peers and name servers that stay silent are waited for until `limit`.
pub(crate) async fn level(broker: &Arc<Broker>, limit: Duration) {
    if broker.config.namesrv.is_empty() {
        return;
    }
    let deadline = Instant::now() + limit;
    let listed = listed(broker, deadline).await;
    let owner = broker.clone();
    let update = tokio::task::spawn_blocking(move || owner.peers.update(&owner, listed));
    let Ok(peers) = update.await else { return };
    let mut reads = JoinSet::new();
    for (name, peer) in peers {
        let broker = broker.clone();
        reads.spawn(async move {
            match timeout_at(deadline, read(&broker, &name, &peer.addr)).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => tracing::debug!(peer = name, why, "peer not read"),
                Err(_) => tracing::debug!(peer = name, "peer is silent"),
            }
        });
    }
    while reads.join_next().await.is_some() {}
}

/// The other masters of the cluster, by name, as all name servers together list them.
async fn listed(broker: &Arc<Broker>, deadline: Instant) -> BTreeMap<String, String> {
    let mut calls = JoinSet::new();
    for addr in &broker.config.namesrv {
        let (client, addr) = (broker.peers.client.clone(), addr.clone());
        let limit = deadline.saturating_duration_since(Instant::now());
        calls.spawn(async move {
            let cmd = Command::request(RequestCode::GetBrokerClusterInfo);
            client.invoke(&addr, cmd, limit).await
        });
    }
    let (mut listed, mut until) = (BTreeMap::new(), deadline);
    while let Ok(Some(answer)) = timeout_at(until, calls.join_next()).await {
        let Ok(Ok(answer)) = answer else { continue };
        let Ok(info) = wire::json::from_slice::<ClusterInfo>(&answer.body.to_bytes()) else {
            continue;
        };
        let members = info
            .cluster_addr_table
            .get(&broker.config.cluster)
            .cloned()
            .unwrap_or_default();
        for name in members {
            let master = info
                .broker_addr_table
                .get(&name)
                .and_then(|data| data.broker_addrs.get(&0));
            if let Some(addr) = master.filter(|_| name != broker.config.name) {
                listed.insert(name, addr.clone());
            }
        }
        until = deadline.min(Instant::now() + SLOWER_WAIT);
    }
    listed
}

async fn read(broker: &Arc<Broker>, name: &str, addr: &str) -> Result<(), String> {
    for kind in Kind::ALL {
        read_kind(broker, name, addr, kind).await?;
    }
    Ok(())
}

async fn read_kind(broker: &Arc<Broker>, name: &str, addr: &str, kind: Kind) -> Result<(), String> {
    let known = broker
        .peers
        .read
        .lock()
        .get(&(name.to_owned(), kind.as_str()))
        .cloned();
    let (mut after, mut state, mut whole) = (String::new(), None, true);
    loop {
        let mut cmd = Command::request(RequestCode::ListConfig);
        cmd.ext.put("kind", kind.as_str());
        cmd.ext.put("after", after.as_str());
        cmd.ext.put("clusterName", broker.config.cluster.as_str());
        cmd.ext.put("from", broker.config.name.as_str());
        cmd.ext.put("fromAddr", broker.store_host.to_string());
        if let (Some(known), true) = (&known, after.is_empty()) {
            cmd.ext.put("known", known.as_str());
        }
        let answer = ask(broker, addr, cmd).await?;
        if answer.ext.get("brokerName") != Some(name)
            || answer.ext.get("clusterName") != Some(broker.config.cluster.as_str())
        {
            return Err("another broker answers at its address".to_owned());
        }
        let page: ConfigList =
            wire::json::from_slice(&answer.body.to_bytes()).map_err(|error| error.to_string())?;
        let wanted: Vec<String> = page
            .marks
            .iter()
            .filter(|mark| match kind {
                Kind::Topic => differs(&broker.topics, mark),
                Kind::Group => differs(&broker.groups, mark),
            })
            .map(|mark| mark.name.clone())
            .collect();
        whole &= take(broker, name, addr, kind, wanted).await?;
        state.get_or_insert(page.state);
        match page.marks.last() {
            Some(last) if page.more => after.clone_from(&last.name),
            _ => break,
        }
    }
    // The state of the first page: a change meanwhile is seen at the next look.
    if let Some(state) = state.filter(|_| whole) {
        let key = (name.to_owned(), kind.as_str());
        broker.peers.read.lock().insert(key, state);
    }
    Ok(())
}

/// Whether the peer's entry may be newer than what is here.
fn differs<T: Entry>(table: &Table<T>, mark: &ConfigMark) -> bool {
    match table.get(&mark.name) {
        Some(here) if mark.deleted => mark.version > here.version(),
        Some(here) => {
            mark.version > here.version()
                || mark.version == here.version()
                    && mark.hash != format!("{:016x}", here.content_hash())
        }
        None => mark.version > table.deleted_in(&mark.name) || !mark.deleted,
    }
}

/// Takes over these entries of the peer. One that may not be is left out until the peer's table changes; false where one
/// found no room, which may come.
async fn take(
    broker: &Arc<Broker>,
    name: &str,
    addr: &str,
    kind: Kind,
    mut wanted: Vec<String>,
) -> Result<bool, String> {
    let mut room = true;
    while !wanted.is_empty() {
        let rest = wanted.split_off(wanted.len().min(ENTRIES_MAX));
        let mut cmd = Command::request(RequestCode::FetchConfig);
        cmd.ext.put("kind", kind.as_str());
        let names = ConfigNames { names: wanted };
        let answer = ask(broker, addr, cmd.with_body(wire::json::to_vec(&names))).await?;
        let got: ConfigEntries =
            wire::json::from_slice(&answer.body.to_bytes()).map_err(|error| error.to_string())?;
        // Those that did not fit; one that is gone meanwhile is not asked for again.
        let done: Vec<&str> = got.entries.iter().map(|e| e.name.as_str()).collect();
        wanted = match done.last() {
            Some(last) => names
                .names
                .iter()
                .skip_while(|name| name.as_str() != *last)
                .skip(1)
                .cloned()
                .chain(rest)
                .collect(),
            None => rest,
        };
        let (owner, from) = (broker.clone(), name.to_owned());
        let adopted = tokio::task::spawn_blocking(move || {
            adopt::adopt(&owner, kind, &got.entries, &from, false)
        });
        let adopted = match adopted.await {
            Ok(Ok(adopted)) => adopted,
            Ok(Err(error)) => {
                tracing::warn!(peer = name, %error, "configuration of a peer not taken");
                return Err(error.to_string());
            }
            Err(error) => return Err(error.to_string()),
        };
        room &= !adopted
            .iter()
            .any(|one| matches!(one, Err(BrokerError::Full(_))));
    }
    Ok(room)
}

async fn ask(broker: &Broker, addr: &str, cmd: Command) -> Result<Command, String> {
    let call = broker.peers.client.invoke(addr, cmd, LOOK_WAIT);
    let answer = call.await.map_err(|error| error.to_string())?;
    if answer.response_code() == ResponseCode::Success {
        Ok(answer)
    } else {
        Err(format!(
            "{}: {}",
            answer.response_code(),
            answer.remark.unwrap_or_default()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_peers_those_that_were_seen_longest_ago_go() {
        let peers: BTreeMap<String, Peer> = (0..=PEERS_MAX)
            .map(|i| {
                let seen_ms = if i == 3 { 1 } else { 2 };
                let addr = String::new();
                (format!("broker-{i:04}"), Peer { addr, seen_ms })
            })
            .collect();
        let kept = latest(peers);
        assert_eq!(kept.len(), PEERS_MAX);
        assert!(!kept.contains_key("broker-0003"));
    }
}
