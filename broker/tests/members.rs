//! What members of a native group see of each other and of an administrator: resets, their own status, short heartbeats,
//! deaths, and queue locks that change hands.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use clock::ManualClock;
use node::Context;
use remoting::{Client, ClientOptions, Responder, Service};
use serde_json::{Value, json};
use support::{Fixture, SOON, number, pull, request};

/// Long enough for what is pushed to a member to have come.
const QUIET: Duration = Duration::from_millis(300);
use tokio::sync::mpsc;
use wire::{Command, Language, RequestCode, ResponseCode};

/// Hands on what the broker pushes, and answers questions about offsets with a table of one queue.
struct Listening {
    pushed: mpsc::Sender<Command>,
    offset: i64,
}

impl Service for Listening {
    fn call(&self, cmd: Command, to: Responder) {
        if cmd.request_code() == RequestCode::GetConsumerStatusFromClient {
            let topic = cmd.ext.get("topic").unwrap_or("");
            let body = format!(
                r#"{{"consumerTable":{{}},"messageQueueTable":{{{{"brokerName":"broker-a","queueId":0,"topic":"{topic}"}}:{}}}}}"#,
                self.offset
            );
            to.send(Command::response(ResponseCode::Success).with_body(body));
        }
        self.pushed.try_send(cmd).ok();
    }
}

struct Member {
    client: Client,
    pushed: mpsc::Receiver<Command>,
    addr: String,
}

fn beat(id: &str, model: &str, fingerprint: i64, short: bool) -> Command {
    let subscriptions = if short {
        json!([])
    } else {
        json!([{"topic": "t", "subString": "*", "subVersion": 5, "expressionType": "TAG", "tagsSet": []}])
    };
    let body = json!({
        "clientID": id,
        "consumerDataSet": [{
            "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": subscriptions,
        }],
        "producerDataSet": [], "heartbeatFingerprint": fingerprint, "withoutSub": short,
    });
    Command::request(RequestCode::HeartBeat).with_body(body.to_string())
}

impl Member {
    async fn join(fix: &Fixture, id: &str, model: &str, language: Language) -> Member {
        let (send, pushed) = mpsc::channel(100);
        let client = Client::new(ClientOptions::default());
        client.set_request_handler(Arc::new(Listening {
            pushed: send,
            offset: id.len() as i64,
        }));
        let member = Member {
            client,
            pushed,
            addr: fix.addr.clone(),
        };
        let mut cmd = beat(id, model, 0, false);
        cmd.language = language;
        assert_eq!(member.call(cmd).await.code, 0);
        member
    }

    async fn call(&self, cmd: Command) -> Command {
        self.client.invoke(&self.addr, cmd, SOON).await.unwrap()
    }

    /// The next push with that code.
    async fn next(&mut self, code: RequestCode) -> Command {
        let wanted = async {
            loop {
                let cmd = self.pushed.recv().await.unwrap();
                if cmd.request_code() == code {
                    return cmd;
                }
            }
        };
        tokio::time::timeout(SOON, wanted).await.unwrap()
    }
}

fn reset(timestamp: &str) -> Command {
    request(
        RequestCode::InvokeBrokerToResetOffset,
        &[
            ("group", "g"),
            ("topic", "t"),
            ("timestamp", timestamp),
            ("isForce", "true"),
        ],
    )
}

fn text(cmd: &Command) -> String {
    String::from_utf8(cmd.body.to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_waiting_pull_of_the_group_hears_of_a_reset_at_once() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    for _ in 0..3 {
        fix.send("t", 0, &[], "x").await;
    }
    fix.read("t", 0, 0, 3).await;
    let member = Member::join(&fix, "a", "CLUSTERING", Language::Java).await;
    let waiting = member.call(pull("g", "t", 0, 3, "*", 30_000));
    let stranger = fix.call(pull("other", "t", 0, 3, "*", 2_000));
    let resetting = async {
        // Time for the pulls to park; one that comes later would be told as well.
        tokio::time::sleep(Duration::from_millis(300)).await;
        fix.ok(reset("0")).await;
    };
    let both = async { tokio::join!(waiting, stranger, resetting) };
    let (told, not_told, ()) = tokio::time::timeout(SOON, both).await.unwrap();
    assert_eq!((told.code, number(&told, "nextBeginOffset")), (21, 0));
    assert_eq!(
        (not_told.code, number(&not_told, "nextBeginOffset")),
        (19, 3)
    );
}

#[tokio::test]
async fn broadcasting_members_are_told_of_a_reset_in_the_form_they_read() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.send("t", 0, &[], "x").await;
    fix.read("t", 0, 0, 1).await;
    let mut java = Member::join(&fix, "java", "BROADCASTING", Language::Java).await;
    let mut cpp = Member::join(&fix, "cpp", "BROADCASTING", Language::Cpp).await;
    fix.ok(reset("-1")).await;
    let told = java.next(RequestCode::ResetConsumerClientOffset).await;
    assert!(told.is_oneway());
    assert_eq!(
        text(&told),
        r#"{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:1}}"#
    );
    let field = |name| told.ext.get(name);
    assert_eq!((field("topic"), field("group")), (Some("t"), Some("g")));
    assert_eq!(
        (field("timestamp"), field("isForce")),
        (Some("-1"), Some("false"))
    );
    let told = cpp.next(RequestCode::ResetConsumerClientOffset).await;
    assert_eq!(
        text(&told),
        r#"{"offsetTable":[{"brokerName":"broker-a","offset":1,"queueId":0,"topic":"t"}]}"#
    );
    // Each has its own position: no pull is told in their place.
    let answer = java.call(pull("g", "t", 0, 0, "*", 0)).await;
    assert_eq!(answer.code, 0);
}

#[tokio::test]
async fn members_are_asked_where_they_are() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let ask = |client: &str| {
        request(
            RequestCode::InvokeBrokerToGetConsumerStatus,
            &[("group", "g"), ("topic", "t"), ("clientAddr", client)],
        )
    };
    assert_eq!(fix.call(ask("")).await.code, 1);
    let _one = Member::join(&fix, "a", "CLUSTERING", Language::Java).await;
    let _two = Member::join(&fix, "bb", "CLUSTERING", Language::Java).await;
    let queue = r#"{"brokerName":"broker-a","queueId":0,"topic":"t"}"#;
    assert_eq!(
        text(&fix.ok(ask("")).await),
        format!(
            r#"{{"consumerTable":{{"a":{{{queue}:1}},"bb":{{{queue}:2}}}},"messageQueueTable":{{}}}}"#
        )
    );
    let one = text(&fix.ok(ask("bb")).await);
    assert!(one.contains("bb") && !one.contains(r#""a""#), "{one}");
}

#[tokio::test]
async fn a_short_heartbeat_counts_only_where_its_subscriptions_are_known() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    fix.send("t", 0, &[], "x").await;
    fix.read("t", 0, 0, 1).await;
    let client = support::client();
    let send = async |fingerprint, short| {
        let cmd = beat("a", "CLUSTERING", fingerprint, short);
        let answer = client.invoke(&fix.addr, cmd, SOON).await.unwrap();
        answer.ext.get("IS_SUB_CHANGE").unwrap().to_owned()
    };
    let pulls = async || {
        let mut cmd = pull("g", "t", 0, 0, "", 0);
        cmd.ext.put("sysFlag", "0");
        client.invoke(&fix.addr, cmd, SOON).await.unwrap().code
    };
    // As after a restart of the broker: the client believes that it has been heard.
    assert_eq!(send(7, true).await, "true");
    assert_eq!(pulls().await, 24);
    assert_eq!(send(7, false).await, "true");
    assert_eq!(send(7, true).await, "false");
    assert_eq!(pulls().await, 0);
    assert_eq!(send(8, true).await, "true");
}

#[tokio::test]
async fn the_others_hear_at_once_that_a_member_died() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let mut one = Member::join(&fix, "a", "CLUSTERING", Language::Java).await;
    one.next(RequestCode::NotifyConsumerIdsChanged).await;
    let mut two = Member::join(&fix, "b", "CLUSTERING", Language::Go).await;
    one.next(RequestCode::NotifyConsumerIdsChanged).await;
    two.next(RequestCode::NotifyConsumerIdsChanged).await;
    // It says nothing: only its connection ends.
    drop(two);
    let began = std::time::Instant::now();
    one.next(RequestCode::NotifyConsumerIdsChanged).await;
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    let list = fix
        .ok(request(
            RequestCode::GetConsumerListByGroup,
            &[("consumerGroup", "g")],
        ))
        .await;
    assert_eq!(text(&list), r#"{"consumerIdList":["a"]}"#);
    // Nor are broadcasting members told of anything: each has all queues.
    drop(one);
    let fix = Fixture::start().await;
    let mut one = Member::join(&fix, "a", "BROADCASTING", Language::Java).await;
    let two = Member::join(&fix, "b", "BROADCASTING", Language::Java).await;
    drop(two);
    let left = async {
        while text(
            &fix.call(request(
                RequestCode::GetConsumerListByGroup,
                &[("consumerGroup", "g")],
            ))
            .await,
        )
        .contains('b')
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, left).await.unwrap();
    let pushed = tokio::time::timeout(QUIET, one.pushed.recv()).await;
    assert!(pushed.is_err(), "{pushed:?}");
}

fn queues(code: RequestCode, client: &str, ids: &[i32]) -> Command {
    let set: Vec<Value> = ids
        .iter()
        .map(|id| json!({"brokerName": "broker-a", "queueId": id, "topic": "t"}))
        .collect();
    let body = json!({"clientId": client, "consumerGroup": "g", "mqSet": set});
    Command::request(code).with_body(body.to_string())
}

async fn lock(fix: &Fixture, client: &str, ids: &[i32]) -> Vec<i64> {
    let answer = fix.ok(queues(RequestCode::LockBatchMq, client, ids)).await;
    let body: Value = serde_json::from_slice(&answer.body.to_bytes()).unwrap();
    let granted = body["lockOKMQSet"].as_array().unwrap();
    let mut ids: Vec<i64> = granted
        .iter()
        .map(|queue| queue["queueId"].as_i64().unwrap())
        .collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn queue_locks_change_hands_by_unlock_silence_and_leaving() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let config = support::config(dir.path());
    let running = broker::start(config, &Context::quiet(clock.clone()))
        .await
        .unwrap();
    let fix = Fixture {
        addr: running.addrs().listen.to_string(),
        dir,
        running,
        client: support::client(),
    };
    assert_eq!(lock(&fix, "a", &[0, 1, 2]).await, [0, 1, 2]);
    // Renewing is no change, others get what is left over.
    assert_eq!(lock(&fix, "a", &[1]).await, [1]);
    assert_eq!(lock(&fix, "b", &[0, 1, 3]).await, [3]);
    // Only the holder unlocks.
    fix.ok(queues(RequestCode::UnlockBatchMq, "b", &[0, 1]))
        .await;
    assert_eq!(lock(&fix, "b", &[0]).await, [0i64; 0]);
    fix.ok(queues(RequestCode::UnlockBatchMq, "a", &[0])).await;
    assert_eq!(lock(&fix, "b", &[0, 1]).await, [0]);
    // Of a holder that is silent for a minute they are free; of one that renewed they are not.
    clock.advance(Duration::from_secs(50));
    assert_eq!(lock(&fix, "a", &[1]).await, [1]);
    clock.advance(Duration::from_secs(11));
    assert_eq!(lock(&fix, "c", &[1, 2]).await, [2]);
}
