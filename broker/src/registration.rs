//! Registration with every name server: at start, on change, periodically, and after a lost connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use remoting::Client;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};
use wire::headers::register_broker::COMPLETE;
use wire::{Command, RequestCode, ResponseCode};

use crate::broker::Broker;
use crate::peer_config;
use crate::table::View;
use crate::topic::TopicConfig;
use crate::version::DataVersion;

/// Longest wait for one answer.
const ANSWER_WAIT: Duration = Duration::from_secs(6);
/// Pause after a failure; doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest pause after failures.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// Longest wait for an unregistration at the stop.
const UNREGISTER_WAIT: Duration = Duration::from_secs(1);

/// One name server.
#[derive(Debug)]
struct Target {
    addr: String,
    wake: Notify,
    /// Sequence number of the last table change it confirmed; 0 = not registered.
    synced: AtomicU64,
}

/// All name servers of this broker.
#[derive(Debug)]
pub(crate) struct Registration {
    client: Client,
    targets: Vec<Arc<Target>>,
    progress: watch::Sender<u64>,
}

impl Registration {
    /// For these addresses.
    pub(crate) fn new(addrs: &[String], client: Client) -> Self {
        let targets = addrs
            .iter()
            .map(|addr| {
                Arc::new(Target {
                    addr: addr.clone(),
                    wake: Notify::new(),
                    synced: AtomicU64::new(0),
                })
            })
            .collect();
        Self {
            client,
            targets,
            progress: watch::Sender::new(0),
        }
    }

    /// The topic table changed: register at once.
    pub(crate) fn changed(&self) {
        for target in &self.targets {
            target.wake.notify_one();
        }
    }

    /// Register everything at once: what holds for all topics changed.
    pub(crate) fn refresh(&self) {
        for target in &self.targets {
            target.synced.store(0, Ordering::Release);
            target.wake.notify_one();
        }
    }

    /// Waits until every name server that answers knows the table up to `sequence`, or until `limit`.
    pub(crate) async fn wait_synced(&self, sequence: u64, limit: Duration) {
        if self.targets.is_empty() {
            return;
        }
        let mut progress = self.progress.subscribe();
        let all = || {
            self.targets.iter().all(|target| {
                let known = target.synced.load(Ordering::Acquire);
                known == 0 || known >= sequence
            })
        };
        let waiting = async {
            while !all() {
                if progress.changed().await.is_err() {
                    return;
                }
            }
        };
        // Too late is not an error: the periodic registration catches up.
        tokio::time::timeout(limit, waiting).await.ok();
    }

    /// No name server has this broker's registration.
    fn is_cut_off(&self) -> bool {
        self.targets
            .iter()
            .all(|target| target.synced.load(Ordering::Acquire) == 0)
    }

    /// Starts one task per name server.
    pub(crate) fn start(broker: &Arc<Broker>) {
        for target in &broker.registration.targets {
            let (broker, target) = (broker.clone(), target.clone());
            let owner = broker.clone();
            owner.spawn(async move { keep_registered(broker, target).await });
        }
    }

    /// Tells every name server that this broker goes. Called once the tasks have ended.
    pub(crate) async fn unregister(&self, broker: &Broker) {
        let mut calls = tokio::task::JoinSet::new();
        for target in &self.targets {
            let mut cmd = Command::request(RequestCode::UnregisterBroker);
            put_identity(broker, &mut cmd);
            let (client, addr) = (self.client.clone(), target.addr.clone());
            calls.spawn(async move {
                if let Err(error) = client.invoke(&addr, cmd, UNREGISTER_WAIT).await {
                    tracing::debug!(namesrv = %addr, %error, "not unregistered");
                }
            });
        }
        while calls.join_next().await.is_some() {}
    }
}

async fn keep_registered(broker: Arc<Broker>, target: Arc<Target>) {
    let mut pause = RETRY_MIN;
    let period = broker.config.register_interval.duration();
    let mut refresh = true;
    let mut lost = false;
    loop {
        if std::mem::take(&mut lost) && broker.registration.is_cut_off() {
            // Nobody who looks this broker up may find an older configuration than that of its peers.
            tokio::select! {
                () = broker.stopping.cancelled() => return,
                () = peer_config::level(&broker, peer_config::START_WAIT) => {}
            }
        }
        let known = target.synced.load(Ordering::Acquire);
        let view = broker
            .topics
            .registration((known > 0 && !refresh).then_some(known));
        let sequence = view.sequence;
        let sent = tokio::select! {
            () = broker.stopping.cancelled() => return,
            sent = register(&broker, &target.addr, &view) => sent,
        };
        refresh = false;
        match sent {
            Ok(()) => {
                if known == 0 {
                    tracing::info!(namesrv = %target.addr, topics = view.entries.len(), full = view.full, "registered");
                }
                pause = RETRY_MIN;
                target.synced.store(sequence, Ordering::Release);
                broker
                    .registration
                    .progress
                    .send_modify(|count| *count += 1);
            }
            Err(why) => {
                if known > 0 {
                    tracing::warn!(namesrv = %target.addr, why, "registration failed");
                }
                target.synced.store(0, Ordering::Release);
                broker
                    .registration
                    .progress
                    .send_modify(|count| *count += 1);
                tokio::select! {
                    () = broker.stopping.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(RETRY_MAX);
                lost = true;
                continue;
            }
        }
        if broker.topics.sequence() > sequence {
            continue;
        }
        let Ok(conn) = broker
            .registration
            .client
            .connection(&target.addr, ANSWER_WAIT)
            .await
        else {
            target.synced.store(0, Ordering::Release);
            continue;
        };
        tokio::select! {
            () = broker.stopping.cancelled() => return,
            () = told(&broker, &target, sequence) => {}
            () = tokio::time::sleep(period) => refresh = true,
            () = conn.ended() => {
                tracing::info!(namesrv = %target.addr, "connection lost, registering again");
                lost = true;
                target.synced.store(0, Ordering::Release);
            }
        }
    }
}

/// Resolves when there is something that the name server does not know yet.
async fn told(broker: &Broker, target: &Target, known: u64) {
    loop {
        target.wake.notified().await;
        if broker.topics.sequence() > known || target.synced.load(Ordering::Acquire) == 0 {
            return;
        }
    }
}

async fn register(broker: &Broker, addr: &str, view: &View<TopicConfig>) -> Result<(), String> {
    let body = body(view, broker.live.permission());
    let mut cmd = Command::request(RequestCode::RegisterBroker);
    put_identity(broker, &mut cmd);
    let ha = std::net::SocketAddr::new(
        broker.store_host.ip(),
        broker.store_host.port().saturating_add(1),
    );
    cmd.ext.put("haServerAddr", ha.to_string());
    cmd.ext.put("enableActingMaster", false);
    cmd.ext.put("compressed", false);
    cmd.ext.put("bodyCrc32", 0i32);
    if view.full {
        cmd.ext.put(COMPLETE, true);
    }
    let cmd = cmd.with_body(body);
    match broker
        .registration
        .client
        .invoke(addr, cmd, ANSWER_WAIT)
        .await
    {
        Ok(answer) if answer.response_code() == ResponseCode::Success => Ok(()),
        Ok(answer) => Err(format!(
            "{}: {}",
            answer.response_code(),
            answer.remark.unwrap_or_default()
        )),
        Err(error) => Err(error.to_string()),
    }
}

fn put_identity(broker: &Broker, cmd: &mut Command) {
    cmd.ext.put("brokerName", broker.config.name.as_str());
    cmd.ext.put("brokerAddr", broker.store_host.to_string());
    cmd.ext.put("clusterName", broker.config.cluster.as_str());
    cmd.ext.put("brokerId", broker.config.id);
}

/// The JSON of RocketMQ 5.4.0 `RegisterBrokerBody`.
fn body(view: &View<TopicConfig>, permission: i32) -> Vec<u8> {
    let topics: Map<String, Value> = view
        .entries
        .iter()
        .map(|config| {
            let mut config = TopicConfig::clone(config);
            config.perm &= permission | !crate::topic::PERM_READ_WRITE;
            (
                config.topic_name.clone(),
                serde_json::to_value(&config).unwrap_or(Value::Null),
            )
        })
        .collect();
    let wrapper = json!({
        "dataVersion": view.version,
        "mappingDataVersion": DataVersion::default(),
        "topicConfigTable": topics,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    });
    serde_json::to_vec(&json!({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topic::TopicTable;

    #[test]
    fn the_brokers_permission_limits_that_of_every_topic() {
        let table = TopicTable::new(1);
        table.ensure(TopicConfig::new("t", 4, 7), 2);
        let text = String::from_utf8(body(&table.registration(None), 4)).unwrap();
        assert!(text.contains(r#""perm":5"#), "{text}");
        assert!(
            text.contains(r#""topicName":"t""#) && text.contains(r#""counter":1"#),
            "{text}"
        );
    }
}
