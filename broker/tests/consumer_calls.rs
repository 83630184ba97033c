//! Requests that the broker passes on to a consumer, and its answer back.
#![allow(
    clippy::string_slice,
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
use support::{Fixture, SOON, heartbeat, number, request};
use wire::message::record::RecordView;
use wire::{Command, RequestCode, ResponseCode};

/// A consumer that answers every question with the code, the name of what it was asked and the asked message's body.
struct Answering(i32);

impl Service for Answering {
    fn call(&self, cmd: Command, to: Responder) {
        if cmd.is_oneway() {
            return;
        }
        let asked = cmd.body.to_bytes();
        let message = RecordView::parse(&asked).map_or(String::new(), |view| {
            String::from_utf8_lossy(view.body).into_owned()
        });
        let field = |name| cmd.ext.get(name).unwrap_or("-").to_owned();
        let text = format!(
            "{} {} {} {message}",
            cmd.code,
            field("jstackEnable"),
            field("topic")
        );
        let mut answer = Command::response(ResponseCode::Success)
            .with_remark("as asked")
            .with_body(text);
        answer.code = self.0;
        to.send(answer);
    }
}

async fn consumer(fix: &Fixture, id: &str, code: i32) -> Client {
    let client = Client::new(ClientOptions::default());
    client.set_request_handler(Arc::new(Answering(code)));
    client
        .invoke(&fix.addr, heartbeat(id, "g", "t", "*"), SOON)
        .await
        .unwrap();
    client
}

fn asked(answer: &Command) -> (i32, &str, String) {
    let body = String::from_utf8(answer.body.to_bytes().to_vec()).unwrap();
    (answer.code, answer.remark.as_deref().unwrap_or(""), body)
}

#[tokio::test]
async fn running_info_is_the_consumers_own_answer() {
    let fix = Fixture::start().await;
    let _first = consumer(&fix, "a", 0).await;
    let _second = consumer(&fix, "b", 1).await;
    let ask = |client: &str| {
        request(
            RequestCode::GetConsumerRunningInfo,
            &[
                ("consumerGroup", "g"),
                ("clientId", client),
                ("jstackEnable", "true"),
            ],
        )
    };
    let answer = fix.call(ask("a")).await;
    assert_eq!(asked(&answer), (0, "as asked", "307 true - ".to_owned()));
    // A refusal of the consumer's is passed on too.
    assert_eq!(fix.call(ask("b")).await.code, 1);
    let gone = fix.call(ask("c")).await;
    assert_eq!(gone.code, 1);
    assert_eq!(gone.remark.unwrap(), "The Consumer <g> <c> not online");
}

#[tokio::test]
async fn a_message_is_consumed_directly_by_the_named_consumer() {
    let fix = Fixture::start().await;
    fix.create_topic("t", 1).await;
    let sent = fix.ok(support::send("t", 0, &[], "again")).await;
    let id = sent.ext.get("msgId").unwrap().to_owned();
    let _consumer = consumer(&fix, "a", 0).await;
    let ask = |id: &str| {
        request(
            RequestCode::ConsumeMessageDirectly,
            &[("consumerGroup", "g"), ("clientId", "a"), ("msgId", id)],
        )
    };
    let answer = fix.call(ask(&id)).await;
    assert_eq!(asked(&answer), (0, "as asked", "309 - t again".to_owned()));
    assert_eq!(number(&sent, "queueOffset"), 0);
    // Where nothing is stored, and where the id is none of ours.
    let beyond = format!("{}00000000000FFFFF", &id[..16]);
    for bad in [beyond.as_str(), "not-an-id"] {
        let refused = fix.call(ask(bad)).await;
        assert_eq!(refused.code, 1, "{bad}: {:?}", refused.remark);
    }
}
