//! The POP of RocketMQ clients: header forms, receipts, retries, truthful acks.

mod pop_support;

use std::time::Duration;

use tokio::time::Instant;

use pop_support::{native_receipts, quick, ready};
use wire::headers::pop::{ChangeInvisibleResponse, PopResponse};
use wire::message::record::RecordView;
use wire::{Command, RequestCode, ResponseCode};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_answers_in_the_form_of_apache() {
    let bench = ready(quick()).await;
    bench.send("T", 0, "a", "t").await;
    bench.send("T", 0, "b", "t").await;
    let answer = bench.native_pop("g", "T", 32, 11_000, 0).await;
    assert_eq!(
        (answer.response_code(), answer.remark.as_deref()),
        (ResponseCode::Success, Some("FOUND"))
    );
    let header: PopResponse = answer.header().unwrap();
    assert_eq!(
        (
            header.start_offset_info.as_deref(),
            header.msg_offset_info.as_deref()
        ),
        (Some("0 0 0"), Some("0 0 0,1"))
    );
    assert_eq!((header.invisible_ms, header.rest_num), (11_000, 0));
    assert!((0..8).contains(&header.revive_queue_id) && header.pop_time_ms > 0);
    assert!(!answer.ext.contains("leases") && !answer.ext.contains("groupVersion"));
    let receipts = native_receipts(&answer);
    let acked = bench.native_ack("g", "T", &receipts[0].0).await;
    assert_eq!(
        (acked.response_code(), acked.ext.get("status")),
        (ResponseCode::Success, Some("acked"))
    );
    let again = bench.native_ack("g", "T", &receipts[0].0).await;
    assert_eq!(
        (again.response_code(), again.ext.get("status")),
        (ResponseCode::Success, Some("already"))
    );
    let empty = bench.native_pop("g", "T", 32, 11_000, 0).await;
    assert_eq!(
        (empty.response_code(), empty.remark.as_deref()),
        (ResponseCode::PollingTimeout, Some("NO_MESSAGE_IN_QUEUE"))
    );
    assert_eq!(
        (
            empty.ext.get("startOffsetInfo"),
            empty.ext.get("msgOffsetInfo")
        ),
        (Some(""), Some(""))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_comes_under_its_first_topic_with_a_receipt_and_can_be_acked() {
    let bench = ready(quick()).await;
    bench.send("T", 1, "m", "t").await;
    let first = native_receipts(&bench.native_pop("g", "T", 32, 1_000, 0).await);
    assert_eq!(first.len(), 1);
    let answer = bench.native_pop("g", "T", 32, 60_000, 5_000).await;
    assert_eq!(answer.response_code(), ResponseCode::Success);
    let body = answer.body.to_bytes();
    let view = RecordView::parse(&body).unwrap();
    assert_eq!(
        (view.topic, view.queue_id, view.reconsume_times),
        ("T", 0, 1)
    );
    assert_eq!(view.property("ORIGIN_GROUP"), Some("g"));
    assert_eq!(
        view.property("1ST_POP_TIME"),
        Some(first[0].0.pop_time_ms.to_string().as_str())
    );
    assert_eq!(view.property("__LEASE"), None);
    assert_eq!(answer.ext.get("startOffsetInfo"), Some("2 0 0"));
    let second = native_receipts(&answer);
    assert_eq!(second[0].0.retry.text(), "2");
    let stale = bench.native_ack("g", "T", &first[0].0).await;
    assert_eq!(
        (stale.response_code(), stale.ext.get("status")),
        (ResponseCode::NoMessage, Some("gone"))
    );
    let acked = bench.native_ack("g", "T", &second[0].0).await;
    assert_eq!(
        (acked.response_code(), acked.ext.get("status")),
        (ResponseCode::Success, Some("acked"))
    );
    let over = bench.native_ack("g", "%RETRY%g+T", &second[0].0).await;
    assert_eq!(over.ext.get("status"), Some("already"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_invisible_time_keeps_the_receipt_good() {
    let bench = ready(quick()).await;
    bench.send("T", 0, "m", "t").await;
    let receipts = native_receipts(&bench.native_pop("g", "T", 1, 1_000, 0).await);
    let mut receipt = receipts[0].0.clone();
    let answer = bench.native_change("g", "T", &receipt, 60_000).await;
    assert_eq!(answer.response_code(), ResponseCode::Success);
    let header: ChangeInvisibleResponse = answer.header().unwrap();
    assert_eq!(header.pop_time_ms, receipt.pop_time_ms);
    assert!(header.invisible_ms >= 60_000);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(
        bench
            .native_pop("g", "T", 1, 1_000, 0)
            .await
            .response_code(),
        ResponseCode::PollingTimeout
    );
    receipt.invisible_ms = header.invisible_ms;
    let shorter = bench.native_change("g", "T", &receipt, 0).await;
    assert_eq!(shorter.response_code(), ResponseCode::Success);
    let again = bench.native_pop("g", "T", 1, 60_000, 3_000).await;
    assert_eq!(again.response_code(), ResponseCode::Success);
    let gone = bench.native_change("g", "T", &receipt, 5_000).await;
    assert_eq!(
        (gone.response_code(), gone.ext.get("popTime")),
        (ResponseCode::NoMessage, Some("0"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_acks_settles_the_bits_that_are_set() {
    let bench = ready(quick()).await;
    for body in ["a", "b", "c"] {
        bench.send("T", 0, body, "t").await;
    }
    let receipts = native_receipts(&bench.native_pop("g", "T", 32, 60_000, 0).await);
    let receipt = &receipts[0].0;
    let body = format!(
        r#"{{"acks":[{{"b":"BQ==","c":"g","it":60000,"pt":{},"q":0,"r":"0","rq":{},"so":0,"t":"T"}}],"brokerName":"broker-a"}}"#,
        receipt.pop_time_ms, receipt.revive_queue_id
    );
    let answer = bench
        .call(Command::request(RequestCode::BatchAckMessage).with_body(body))
        .await;
    assert_eq!(
        (answer.response_code(), answer.ext.get("gone")),
        (ResponseCode::Success, Some("0"))
    );
    let lag = bench.lag("g").await;
    let queue = lag
        .queues
        .iter()
        .find(|queue| queue.topic == "T" && queue.queue_id == 0)
        .unwrap();
    assert_eq!((queue.ack_floor, queue.in_flight), (1, 1));
    let nothing = bench
        .call(Command::request(RequestCode::BatchAckMessage))
        .await;
    assert_eq!(nothing.response_code(), ResponseCode::NoMessage);
}

/// The body is what RocketMQ 5.4.0 BatchAckMessageRequestBody encodes for a bit set of 32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_pop_is_settled_by_one_bit_set() {
    let bench = ready(quick()).await;
    for index in 0..37 {
        bench.send("T", 1, &format!("m{index}"), "t").await;
    }
    let first = native_receipts(&bench.native_pop("g", "T", 5, 60_000, 0).await);
    assert_eq!(first.len(), 5);
    let receipts = native_receipts(&bench.native_pop("g", "T", 32, 60_000, 0).await);
    assert_eq!(receipts.len(), 32);
    let receipt = &receipts[0].0;
    assert_eq!(receipt.start_offset, 5);
    let body = format!(
        r#"{{"acks":[{{"b":"/////w==","c":"g","it":60000,"pt":{},"q":1,"r":"0","rq":{},"so":5,"t":"T"}}],"brokerName":"broker-a"}}"#,
        receipt.pop_time_ms, receipt.revive_queue_id
    );
    let answer = bench
        .call(Command::request(RequestCode::BatchAckMessage).with_body(body))
        .await;
    assert_eq!(
        (answer.response_code(), answer.ext.get("gone")),
        (ResponseCode::Success, Some("0"))
    );
    let lag = bench.lag("g").await;
    let queue = lag
        .queues
        .iter()
        .find(|queue| queue.topic == "T" && queue.queue_id == 1)
        .unwrap();
    assert_eq!(
        (queue.in_flight, queue.next_deliver),
        (5, 37),
        "the other pop is untouched"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_get_the_codes_of_apache() {
    let bench = ready(quick()).await;
    bench.send("T", 0, "m", "t").await;
    let receipts = native_receipts(&bench.native_pop("g", "T", 1, 60_000, 0).await);
    let ack = async |change: &dyn Fn(&mut wire::receipt::Receipt), topic: &str| {
        let mut receipt = receipts[0].0.clone();
        change(&mut receipt);
        bench.native_ack("g", topic, &receipt).await
    };
    let outside = ack(&|receipt| receipt.queue_offset = Some(999), "T").await;
    assert_eq!(
        (outside.response_code(), outside.remark.as_deref()),
        (
            ResponseCode::NoMessage,
            Some("offset is illegal, key:T@0, commit:999, store:0~1")
        )
    );
    assert_eq!(
        ack(&|receipt| receipt.queue_id = 99, "T")
            .await
            .response_code(),
        ResponseCode::MessageIllegal
    );
    assert_eq!(
        ack(&|_| {}, "nope").await.response_code(),
        ResponseCode::TopicNotExist
    );
    assert_eq!(
        ack(&|receipt| receipt.pop_time_ms += 1, "T")
            .await
            .ext
            .get("status"),
        Some("gone")
    );
    let many = bench.native_pop("g", "T", 33, 1_000, 0).await;
    assert_eq!(
        (many.response_code(), many.ext.get("popTime")),
        (ResponseCode::InvalidParameter, Some("0"))
    );
    let nobody = bench.native_pop("nobody", "T", 1, 1_000, 0).await;
    assert_eq!(
        nobody.response_code(),
        ResponseCode::SubscriptionGroupNotExist
    );
    let late = bench
        .pop_command("g", "T", 1, 1_000)
        .with_ext("gantry", "0")
        .with_ext("bornTime", 1);
    assert_eq!(
        bench.call(late).await.response_code(),
        ResponseCode::PollingTimeout
    );
}

/// A pop that waits is answered by the message, by exactly one of several, and at its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_pops_are_answered_one_per_message_and_in_time() {
    let bench = ready(quick()).await;
    let began = Instant::now();
    let nothing = bench.native_pop("g", "T", 1, 60_000, 600).await;
    assert_eq!(nothing.response_code(), ResponseCode::PollingTimeout);
    assert!(
        (Duration::from_millis(550)..Duration::from_millis(900)).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
    let (first, second, ()) = tokio::join!(
        bench.native_pop("g", "T", 1, 60_000, 1_500),
        bench.native_pop("g", "T", 1, 60_000, 1_500),
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let info = Command::request(RequestCode::PollingInfo)
                .with_ext("consumerGroup", "g")
                .with_ext("topic", "T")
                .with_ext("queueId", -1);
            assert_eq!(bench.ok(info).await.ext.get("pollingNum"), Some("2"));
            bench.send("T", 0, "m", "t").await;
        }
    );
    let found = [&first, &second]
        .iter()
        .filter(|answer| answer.response_code() == ResponseCode::Success)
        .count();
    assert_eq!(found, 1);
}

/// As Apache RocketMQ 5.4.0: a group without progress that asks for the newest reads a young queue from its start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_young_queue_is_popped_from_its_start() {
    let bench = ready(quick()).await;
    bench.put_group("n", &quick()).await;
    bench.send("T", 0, "m", "t").await;
    let pop = bench
        .pop_command("n", "T", 8, 60_000)
        .with_ext("gantry", "0")
        .with_ext("initMode", 1);
    let now = clock::Clock::now_ms(&clock::SystemClock::new());
    let answer = bench.call(pop.with_ext("bornTime", now)).await;
    assert_eq!(native_receipts(&answer).len(), 1);
}
