//! Replies to requests: pushed to the client that waits, stored, answered (RocketMQ 5.4.0 `ReplyMessageProcessor`).
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

use remoting::{Client, ClientOptions, Responder, Service};
use support::{Fixture, SOON, heartbeat, number, properties_text, request};
use tokio::sync::mpsc;
use wire::message::properties::PropertiesView;
use wire::{Command, RequestCode, ResponseCode};

const REPLIES: &str = "DefaultCluster_REPLY_TOPIC";

/// A requester: takes what is pushed, and says whether it wanted it.
struct Requester(mpsc::Sender<Command>, ResponseCode);

impl Service for Requester {
    fn call(&self, cmd: Command, to: Responder) {
        if cmd.request_code() == RequestCode::PushReplyMessageToClient {
            self.0.try_send(cmd).ok();
            to.send(Command::response(self.1));
        }
    }
}

async fn requester(
    fix: &Fixture,
    id: &str,
    says: ResponseCode,
) -> (Client, mpsc::Receiver<Command>) {
    let (send, pushed) = mpsc::channel(10);
    let client = Client::new(ClientOptions::default());
    client.set_request_handler(Arc::new(Requester(send, says)));
    let beat = heartbeat(id, "askers", "t", "*");
    client.invoke(&fix.addr, beat, SOON).await.unwrap();
    (client, pushed)
}

/// The reply with the one-letter names, or with the long ones.
fn reply(short: bool, properties: &[(&str, &str)], body: &str) -> Command {
    let text = properties_text(properties);
    let fields = [
        ("a", "producerGroup", "repliers"),
        ("b", "topic", REPLIES),
        ("c", "defaultTopic", "TBW102"),
        ("d", "defaultTopicQueueNums", "4"),
        ("e", "queueId", "0"),
        ("f", "sysFlag", "0"),
        ("g", "bornTimestamp", "1700000000000"),
        ("h", "flag", "7"),
        ("i", "properties", text.as_str()),
        ("j", "reconsumeTimes", "0"),
    ];
    let named: Vec<(&str, &str)> = fields
        .iter()
        .map(|(letter, name, value)| (if short { *letter } else { *name }, *value))
        .collect();
    let code = if short {
        RequestCode::SendReplyMessageV2
    } else {
        RequestCode::SendReplyMessage
    };
    request(code, &named).with_body(body.as_bytes().to_vec())
}

#[tokio::test]
async fn a_reply_reaches_the_client_that_asked_in_both_header_forms() {
    let fix = Fixture::start().await;
    let (_asker, mut pushed) = requester(&fix, "asker", ResponseCode::Success).await;
    let (_other, mut not_pushed) = requester(&fix, "other", ResponseCode::Success).await;
    for (short, body) in [(true, "one"), (false, "two")] {
        let wanted = [("REPLY_TO_CLIENT", "asker"), ("CORRELATION_ID", "c-1")];
        let answer = fix.ok(reply(short, &wanted, body)).await;
        assert_eq!(answer.ext.get("MSG_REGION"), Some("DefaultRegion"));
        let got = tokio::time::timeout(SOON, pushed.recv())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(got.body.to_bytes(), body.as_bytes());
        let field = |name: &str| got.ext.get(name).unwrap().to_owned();
        assert_eq!(
            (field("topic"), field("flag"), field("producerGroup")),
            (REPLIES.to_owned(), "7".to_owned(), "repliers".to_owned())
        );
        assert_eq!(field("storeHost"), fix.addr);
        assert_eq!(field("bornTimestamp"), "1700000000000");
        let text = field("properties");
        let properties = PropertiesView::new(text.as_bytes());
        assert_eq!(properties.get("CORRELATION_ID"), Some("c-1"));
        assert!(properties.get("PUSH_REPLY_TIME").is_some());
        // The reply is stored as well, under the id of the answer.
        let offset = number(&answer, "queueOffset");
        let stored = fix.read(REPLIES, 0, offset, 1).await;
        assert_eq!(stored[0].body, body);
    }
    assert!(not_pushed.try_recv().is_err());
}

#[tokio::test]
async fn a_reply_that_nobody_takes_is_stored_and_answered_so() {
    let fix = Fixture::start().await;
    let (refusing, _pushed) = requester(&fix, "refusing", ResponseCode::SystemError).await;
    let check = async |properties: &[(&str, &str)], remark: &str| {
        let answer = fix.call(reply(true, properties, "late")).await;
        assert_eq!(answer.code, 1);
        let told = answer.remark.clone().unwrap();
        assert!(told.contains(remark), "{told}");
        // As on success: clients read these fields whatever the code.
        assert_eq!(number(&answer, "queueId"), 0);
        assert!(answer.ext.get("msgId").is_some_and(|id| id.len() == 32));
        let offset = number(&answer, "queueOffset");
        assert_eq!(fix.read(REPLIES, 0, offset, 1).await[0].body, "late");
    };
    let gone = "push reply message fail, channel of <gone> not found.";
    check(&[("REPLY_TO_CLIENT", "gone")], gone).await;
    let absent = "reply message properties[REPLY_TO_CLIENT] is null";
    check(&[], absent).await;
    check(&[("REPLY_TO_CLIENT", "refusing")], "it answered 1").await;
    drop(refusing);
    // Its connection closes a moment later.
    let deadline = async {
        loop {
            let answer = fix
                .call(reply(true, &[("REPLY_TO_CLIENT", "refusing")], "late"))
                .await;
            if answer.remark.unwrap().contains("not found") {
                break;
            }
        }
    };
    tokio::time::timeout(SOON, deadline).await.unwrap();
}
