//! One kind of member a group: who comes second is refused, and takes over where the other stood once it has gone.
#![allow(clippy::unwrap_used, reason = "a test")]

mod pop_support;

use std::sync::Arc;
use std::time::Duration;

use broker::{Config, FlushMode, MembersConfig};
use node::Millis;
use pop_support::{Bench, TIMEOUT, config, item, open_with, quick};
use remoting::{Client, ClientOptions};
use tempfile::TempDir;
use tokio::time::Instant;
use wire::body::gantry::{SettleItem, SettleOp, SettleStatus};
use wire::message::record::RecordView;
use wire::{Command, RequestCode, ResponseCode};

const SILENCE: Duration = Duration::from_secs(1);

/// A broker whose members are forgotten after a second, with topic `T` and group `g`.
async fn ready() -> Bench {
    let dir = Arc::new(TempDir::new().unwrap());
    let config = Config {
        members: MembersConfig {
            lease_silence: Millis(1_000),
            native_silence: Millis(60_000),
        },
        ..config(dir.path(), FlushMode::Sync)
    };
    let bench = open_with(dir, config).await;
    bench.put_topic("T", 1).await;
    bench.put_group("g", &quick()).await;
    bench.subscribe("g", "T", "*").await;
    bench
}

/// A consumer that pulls, as far as the broker sees it.
struct Puller {
    client: Client,
    addr: String,
}

impl Puller {
    fn new(bench: &Bench) -> Self {
        Puller {
            client: Client::new(ClientOptions::default()),
            addr: bench.addr.clone(),
        }
    }

    async fn call(&self, cmd: Command) -> Command {
        self.client.invoke(&self.addr, cmd, TIMEOUT).await.unwrap()
    }

    async fn heartbeat(&self) -> Command {
        self.heartbeat_as("puller@1", "CONSUME_PASSIVELY").await
    }

    async fn heartbeat_as(&self, id: &str, kind: &str) -> Command {
        let body = r#"{"clientID":"@ID","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"KIND","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":[{"topic":"T","subString":"*","subVersion":1},{"topic":"%RETRY%g","subString":"*","subVersion":1}]}],"producerDataSet":[{"groupName":"p"}]}"#;
        let body = body.replace("@ID", id).replace("KIND", kind);
        self.call(Command::request(RequestCode::HeartBeat).with_body(body))
            .await
    }

    /// A pop in the form of RocketMQ that waits for so many ms.
    async fn pop(&self, wait_ms: u64) -> Command {
        let cmd = Command::request(RequestCode::PopMessage)
            .with_ext("consumerGroup", "g")
            .with_ext("topic", "T")
            .with_ext("queueId", -1)
            .with_ext("maxMsgNums", 1)
            .with_ext("invisibleTime", 1_000)
            .with_ext("pollTime", wait_ms)
            .with_ext("bornTime", i64::MAX)
            .with_ext("initMode", 0);
        self.call(cmd).await
    }

    /// Pulls one queue from `offset` without waiting.
    async fn pull(&self, topic: &str, offset: i64) -> Command {
        let cmd = Command::request(RequestCode::PullMessage)
            .with_ext("consumerGroup", "g")
            .with_ext("topic", topic)
            .with_ext("queueId", 0)
            .with_ext("queueOffset", offset)
            .with_ext("maxMsgNums", 32)
            .with_ext("sysFlag", 0)
            .with_ext("commitOffset", 0)
            .with_ext("suspendTimeoutMillis", 0)
            .with_ext("subVersion", 0);
        self.call(cmd).await
    }

    async fn commit(&self, topic: &str, offset: i64) -> Command {
        let cmd = Command::request(RequestCode::UpdateConsumerOffset)
            .with_ext("consumerGroup", "g")
            .with_ext("topic", topic)
            .with_ext("queueId", 0)
            .with_ext("commitOffset", offset);
        self.call(cmd).await
    }

    async fn give_back(&self, physical_offset: i64, level: i32) {
        let cmd = Command::request(RequestCode::ConsumerSendMsgBack)
            .with_ext("group", "g")
            .with_ext("offset", physical_offset)
            .with_ext("delayLevel", level)
            .with_ext("originTopic", "T");
        let answer = self.call(cmd).await;
        assert_eq!(
            answer.response_code(),
            ResponseCode::Success,
            "{:?}",
            answer.remark
        );
    }

    async fn leave(&self) {
        let cmd = Command::request(RequestCode::UnregisterClient)
            .with_ext("clientID", "puller@1")
            .with_ext("consumerGroup", "g");
        self.call(cmd).await;
    }
}

/// Bodies and physical offsets of the messages of a pull.
fn pulled(answer: &Command) -> Vec<(String, i64, i32)> {
    let body = answer.body.to_bytes();
    RecordView::each(&body)
        .map(|view| view.unwrap())
        .map(|view| {
            (
                String::from_utf8(view.body.to_vec()).unwrap(),
                view.physical_offset,
                view.reconsume_times,
            )
        })
        .collect()
}

async fn committed(bench: &Bench, topic: &str) -> Option<i64> {
    let cmd = Command::request(RequestCode::QueryConsumerOffset)
        .with_ext("consumerGroup", "g")
        .with_ext("topic", topic)
        .with_ext("queueId", 0)
        .with_ext("setZeroIfNotFound", false);
    let answer = bench.call(cmd).await;
    answer.ext.get("offset").and_then(|text| text.parse().ok())
}

fn is_conflict(answer: &Command, member: &str) {
    assert_eq!(
        answer.response_code(),
        ResponseCode::NoPermission,
        "{:?}",
        answer.remark
    );
    assert_eq!(answer.ext.get("reason"), Some("group_mode_conflict"));
    assert!(
        answer.ext.get("members").unwrap().contains(member),
        "{:?}",
        answer.ext
    );
    assert!(
        answer.remark.as_deref().unwrap().contains(member),
        "{:?}",
        answer.remark
    );
}

/// Calls until the answer is good, for at most ten seconds.
async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(value) = attempt().await {
            return value;
        }
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_is_refused_while_a_puller_lives_and_keeps_nobody_alive() {
    let bench = ready().await;
    let puller = Puller::new(&bench);
    assert_eq!(
        puller.heartbeat().await.response_code(),
        ResponseCode::Success
    );
    for _ in 0..3 {
        is_conflict(
            &bench.call(bench.pop_command("g", "T", 1, 0)).await,
            "puller@1",
        );
    }
    // Had a refused call kept its member alive, these would be refused.
    assert_eq!(
        puller.heartbeat().await.response_code(),
        ResponseCode::Success
    );
    assert_eq!(
        puller.pull("T", 0).await.response_code(),
        ResponseCode::PullNotFound
    );
    assert_eq!(bench.metric("gantry_broker_group_mode_conflicts_total"), 3);
    drop(puller);
    until("the connection is closed", async || {
        let answer = bench.call(bench.pop_command("g", "T", 1, 0)).await;
        (answer.response_code() == ResponseCode::PollingTimeout).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_puller_is_refused_while_a_lease_member_lives_and_gets_in_by_its_own_retries() {
    let bench = ready().await;
    let puller = Puller::new(&bench);
    let called = Instant::now();
    assert!(bench.pop("g", "T", 1, 0).await.is_empty());
    is_conflict(&puller.heartbeat().await, "m");
    is_conflict(&puller.pull("T", 0).await, "m");
    is_conflict(&puller.commit("T", 7).await, "m");
    assert_eq!(
        committed(&bench, "T").await,
        Some(0),
        "nothing moved the group"
    );
    let list = Command::request(RequestCode::GetConsumerListByGroup).with_ext("consumerGroup", "g");
    assert_ne!(
        bench.call(list).await.response_code(),
        ResponseCode::Success
    );
    let producers = Command::request(RequestCode::GetProducerConnectionList)
        .with_ext("producerGroup", "p")
        .with_ext("topic", "T");
    assert_eq!(
        bench.call(producers).await.response_code(),
        ResponseCode::Success,
        "the rest of the heartbeat counts"
    );
    until("the puller gets in", async || {
        (puller.heartbeat().await.response_code() == ResponseCode::Success).then_some(())
    })
    .await;
    assert!(called.elapsed() >= SILENCE, "{:?}", called.elapsed());
    is_conflict(
        &bench.call(bench.pop_command("g", "T", 1, 0)).await,
        "puller@1",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_receive_is_alive_however_long_it_waits() {
    let bench = ready().await;
    let puller = Puller::new(&bench);
    let waiting = bench.notify("g", "T", 2_500);
    let refused = async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        puller.heartbeat().await
    };
    let (had_one, answer) = tokio::join!(waiting, refused);
    is_conflict(&answer, "waiting receive");
    assert!(!had_one);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_pops_is_of_the_lease_kind_whatever_its_heartbeats_say() {
    let bench = ready().await;
    let puller = Puller::new(&bench);
    puller.heartbeat().await;
    assert_eq!(
        puller.pop(0).await.response_code(),
        ResponseCode::PollingTimeout
    );
    assert!(
        bench.pop("g", "T", 1, 0).await.is_empty(),
        "the gateway may lease beside it"
    );
    let other = Puller::new(&bench);
    is_conflict(&other.heartbeat().await, "puller@1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_that_waits_is_of_its_kind_to_the_end() {
    let bench = ready().await;
    let puller = Puller::new(&bench);
    puller.heartbeat().await;
    let beside = async {
        tokio::time::sleep(SILENCE * 3 / 2).await;
        bench.pop("g", "T", 1, 0).await
    };
    let (waited, beside) = tokio::join!(puller.pop(2_500), beside);
    assert_eq!(waited.response_code(), ResponseCode::PollingTimeout);
    assert!(beside.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stopped_popping_is_what_its_heartbeats_say() {
    let bench = ready().await;
    let puller = Puller::new(&bench);
    puller.heartbeat().await;
    puller.pop(0).await;
    is_conflict(&puller.pull("T", 0).await, "puller@1");
    until("it pulls again", async || {
        let answer = puller.pull("T", 0).await;
        (answer.response_code() == ResponseCode::PullNotFound).then_some(())
    })
    .await;
    is_conflict(
        &bench.call(bench.pop_command("g", "T", 1, 0)).await,
        "puller@1",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_popped_and_is_idle_is_in_nobodys_way() {
    let bench = ready().await;
    let puller = Puller::new(&bench);
    puller.heartbeat().await;
    puller.pop(0).await;
    tokio::time::sleep(SILENCE * 3 / 2).await;
    let busy = bench.call(bench.pop_command("g", "T", 1, 0)).await;
    assert_eq!(busy.response_code(), ResponseCode::PollingTimeout);
    // It stays what it was, and pulls only when no lease member is left.
    assert_eq!(
        puller.heartbeat().await.response_code(),
        ResponseCode::Success
    );
    is_conflict(&puller.commit("T", 0).await, "m");
    until("it commits", async || {
        (puller.commit("T", 0).await.response_code() == ResponseCode::Success).then_some(())
    })
    .await;
    is_conflict(
        &bench.call(bench.pop_command("g", "T", 1, 0)).await,
        "puller@1",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_of_a_client_that_pops_is_refused_while_a_puller_lives() {
    let bench = ready().await;
    let (puller, popper) = (Puller::new(&bench), Puller::new(&bench));
    puller.heartbeat().await;
    is_conflict(
        &popper.heartbeat_as("popper@2", "CONSUME_POP").await,
        "puller@1",
    );
    puller.leave().await;
    let answer = popper.heartbeat_as("popper@2", "CONSUME_POP").await;
    assert_eq!(answer.response_code(), ResponseCode::Success);
    is_conflict(&puller.heartbeat().await, "popper@2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_settled_after_its_kind_has_left_is_no_conflict() {
    let bench = ready().await;
    bench.send("T", 0, "m", "a").await;
    let got = bench.pop("g", "T", 1, 30_000).await;
    let puller = Puller::new(&bench);
    until("the lease members are gone", async || {
        (puller.heartbeat().await.response_code() == ResponseCode::Success).then_some(())
    })
    .await;
    let conflicts = || bench.metric("gantry_broker_group_mode_conflicts_total");
    let before = conflicts();
    assert_eq!(bench.ack("g", &got[0]).await.status, SettleStatus::Acked);
    assert_eq!(conflicts(), before);
    assert_eq!(
        puller.heartbeat().await.response_code(),
        ResponseCode::Success,
        "and the other kind keeps the group"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_take_over_at_the_committed_offset_with_the_retries_that_wait() {
    let bench = ready().await;
    for body in ["done", "back", "later", "new"] {
        bench.send("T", 0, body, "a").await;
    }
    let puller = Puller::new(&bench);
    puller.heartbeat().await;
    let messages = pulled(&puller.pull("T", 0).await);
    assert_eq!(messages.len(), 4);
    // One comes back before the take-over, one after it.
    puller.give_back(messages[1].1, 1).await;
    until("the retry waits", async || {
        let answer = puller.pull("%RETRY%g", 0).await;
        (answer.response_code() == ResponseCode::Success).then_some(())
    })
    .await;
    puller.give_back(messages[2].1, 2).await;
    assert_eq!(
        puller.commit("T", 3).await.response_code(),
        ResponseCode::Success
    );
    puller.leave().await;

    let mut got = Vec::new();
    while got.len() < 3 {
        let more = bench
            .pop_within("g", "T", 8, 30_000, Duration::from_secs(10))
            .await;
        assert!(!more.is_empty(), "{got:?}");
        got.extend(more);
    }
    let mut seen: Vec<(&str, u32)> = got
        .iter()
        .map(|got| (got.body.as_str(), got.lease.attempt))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [("back", 2), ("later", 2), ("new", 1)]);
    for retry in got.iter().filter(|got| got.lease.attempt == 2) {
        assert_eq!(retry.topic, "%RETRY%g+T");
        assert_eq!(retry.properties["RETRY_TOPIC"], "T");
        let offset = if retry.body == "back" { 1 } else { 2 };
        assert!(
            retry.properties["__ORIGIN"].starts_with(&format!("0 {offset} ")),
            "{}",
            retry.properties["__ORIGIN"]
        );
        assert_eq!(retry.reconsume_times, 1);
    }
    // A kill in between neither loses nor doubles what was carried over: it is held, and held once.
    let killed = bench.after_a_kill().await;
    let again = killed.pop("g", "T", 8, 30_000).await;
    assert!(again.is_empty(), "{again:#?} though {got:#?}");
    for got in &got {
        assert_eq!(killed.ack("g", got).await.status, SettleStatus::Acked);
        bench.ack("g", got).await;
    }
    assert!(bench.pop("g", "T", 8, 30_000).await.is_empty(), "each once");
    assert_eq!(committed(&bench, "T").await, Some(4));
    assert_eq!(committed(&bench, "%RETRY%g").await, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pullers_take_over_at_the_committed_offset_with_the_retries_that_wait() {
    let bench = ready().await;
    for body in ["done", "back", "later", "held", "new"] {
        bench.send("T", 0, body, "a").await;
    }
    let got = bench.pop("g", "T", 4, 2_500).await;
    assert_eq!(got.len(), 4);
    bench.ack("g", &got[0]).await;
    let nack = |got, delay_ms| SettleItem {
        delay_ms: Some(delay_ms),
        ..item(got, SettleOp::Nack)
    };
    bench
        .settle("g", vec![nack(&got[1], 0), nack(&got[2], 2_000)])
        .await;
    until("the retry waits in the topic of leases", async || {
        let stored = bench.stored("%RETRY%g+T", 0).await;
        (!stored.is_empty()).then_some(())
    })
    .await;

    let puller = Puller::new(&bench);
    until("the lease members are gone", async || {
        (puller.heartbeat().await.response_code() == ResponseCode::Success).then_some(())
    })
    .await;
    assert_eq!(committed(&bench, "T").await, Some(4));
    let fresh = pulled(&puller.pull("T", 4).await);
    assert_eq!(fresh[0].0, "new");
    let retries = until("all retries came over", async || {
        let retries = pulled(&puller.pull("%RETRY%g", 0).await);
        (retries.len() == 3).then_some(retries)
    })
    .await;
    let mut seen: Vec<(String, i32)> = retries
        .into_iter()
        .map(|(body, _, times)| (body, times))
        .collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            ("back".to_owned(), 1),
            ("held".to_owned(), 1),
            ("later".to_owned(), 1)
        ]
    );
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(pulled(&puller.pull("%RETRY%g", 3).await), [], "each once");

    // And back again: what the puller did not commit is leased, at the attempt it has reached.
    puller.commit("T", 5).await;
    puller.commit("%RETRY%g", 2).await;
    puller.leave().await;
    let again = bench.pop_within("g", "T", 8, 30_000, TIMEOUT).await;
    assert_eq!(again.len(), 1, "{again:?}");
    assert_eq!(again[0].lease.attempt, 2);
}

/// A commit of a puller is newer than where leases stood, until leases go on from it; over stops and kills alike.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_puller_committed_lasts_until_leases_go_on_from_it() {
    let bench = ready().await;
    for index in 0..4 {
        bench.send("T", 0, &format!("m{index}"), "a").await;
    }
    let puller = Puller::new(&bench);
    puller.heartbeat().await;
    puller.commit("T", 2).await;
    drop(puller);
    let bench = bench.restart().await;
    assert_eq!(committed(&bench, "T").await, Some(2), "after a stop");

    let puller = Puller::new(&bench);
    puller.heartbeat().await;
    puller.commit("T", 3).await;
    let file = bench.dir.path().join("config/consumerOffset.json");
    until("the offset is on the disk", async || {
        let text = std::fs::read_to_string(&file).unwrap();
        text.contains("\"T@g\":{0:3}").then_some(())
    })
    .await;
    let killed = bench.after_a_kill().await;
    assert_eq!(committed(&killed, "T").await, Some(3), "after a kill");

    puller.leave().await;
    let got = bench.pop_within("g", "T", 8, 30_000, TIMEOUT).await;
    assert_eq!(got[0].body, "m3");
    bench.ack("g", &got[0]).await;
    let killed = bench.after_a_kill().await;
    assert_eq!(committed(&killed, "T").await, Some(4), "leases are newer");
    assert!(killed.pop("g", "T", 8, 30_000).await.is_empty());
}
