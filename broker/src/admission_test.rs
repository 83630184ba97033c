//! Reads of old messages with all places taken, which no client can bring about.

use std::sync::mpsc;
use std::time::Duration;

use node::ByteSize;
use remoting::{Client, ClientOptions};
use wire::{Command, RequestCode};

use crate::test_broker::{append, start_with};
use crate::topic::TopicConfig;

const SOON: Duration = Duration::from_secs(20);

fn pull(offset: u64) -> Command {
    let offset = offset.to_string();
    [
        ("topic", "T"),
        ("queueId", "0"),
        ("queueOffset", offset.as_str()),
        ("maxMsgNums", "1"),
        ("gantry", "1"),
        ("reader", "1"),
    ]
    .into_iter()
    .fold(
        Command::request(RequestCode::PullMessage),
        |cmd, (name, value)| cmd.with_ext(name, value),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_old_messages_that_find_no_place_wait_5_s_and_are_refused() {
    let running = start_with(|config| {
        config.limits.reads = 1;
        config.limits.hot = ByteSize(1);
    })
    .await;
    let broker = running.broker.clone();
    broker.ensure_topic(TopicConfig::new("T", 1, 6)).unwrap();
    append(&broker, "T", 2).await;
    let (client, addr) = (
        Client::new(ClientOptions::default()),
        running.addrs.listen.to_string(),
    );
    let call = |cmd| {
        let (client, addr) = (client.clone(), addr.clone());
        async move { client.invoke(&addr, cmd, SOON).await.unwrap() }
    };
    let busy = |answer: &Command, remark: &str| {
        let reason = answer.ext.get("reason");
        assert_eq!(
            (answer.code, reason),
            (2, Some("broker_busy")),
            "{answer:?}"
        );
        assert_eq!(answer.remark.as_deref(), Some(remark));
    };
    assert_eq!(call(pull(0)).await.code, 0);

    let read = &broker.admission.read;
    let (go, hold) = mpsc::channel::<()>();
    let (begins, begun) = tokio::sync::oneshot::channel();
    read.run(&broker, 0, move |_| {
        begins.send(()).ok();
        hold.recv().ok();
    });
    begun.await.unwrap();
    let line: Vec<_> = (0..1_024).map(|_| read.place_to_wait().unwrap()).collect();
    let refused = call(pull(0)).await;
    busy(
        &refused,
        "[OVERLOAD]system busy, start flow control for a while",
    );

    drop(line);
    let late = tokio::spawn(call(pull(0)));
    assert_eq!(call(pull(2)).await.code, 19, "what is new is read at once");
    let list = Command::request(RequestCode::GetAllSubscriptiongroupConfig);
    assert_eq!(call(list).await.code, 0);
    busy(
        &late.await.unwrap(),
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 5000ms",
    );

    drop(go);
    assert_eq!(call(pull(0)).await.code, 0);
    assert_eq!(read.refused.get(), 2);
    running.stop().await.unwrap();
}
