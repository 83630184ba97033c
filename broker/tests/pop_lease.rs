//! Leases over sockets: pop, ack, nack, extend, expiry, dead letters, waiting.

mod pop_support;

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use pop_support::{item, quick, ready};
use wire::body::gantry::{GroupSpec, SettleItem, SettleOp, SettleStatus};
use wire::{Command, RequestCode, ResponseCode};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_popped_message_is_invisible_until_acked_for_good() {
    let bench = ready(quick()).await;
    bench.send_many("T", 2, 10).await;
    let got = bench.pop("g", "T", 32, 60_000).await;
    let bodies: BTreeSet<&str> = got.iter().map(|got| got.body.as_str()).collect();
    assert_eq!((got.len(), bodies.len()), (10, 10));
    assert!(
        got.iter()
            .all(|got| got.lease.attempt == 1 && got.reconsume_times == 0)
    );
    assert!(bench.pop("g", "T", 32, 60_000).await.is_empty());
    let items = got.iter().map(|got| item(got, SettleOp::Ack)).collect();
    let results = bench.settle("g", items).await;
    assert!(
        results
            .iter()
            .all(|result| result.status == SettleStatus::Acked && !result.already && !result.late)
    );
    let again = bench.ack("g", &got[3]).await;
    assert_eq!((again.status, again.already), (SettleStatus::Acked, true));
    let lag = bench.lag("g").await;
    for queue in lag.queues {
        assert_eq!(
            (
                queue.ack_floor,
                queue.next_deliver,
                queue.in_flight,
                queue.waiting
            ),
            (queue.max_offset, queue.max_offset, 0, 0)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_lease_twice_in_one_request_is_settled_once() {
    let bench = ready(quick()).await;
    bench.send("T", 0, "m", "a").await;
    let got = bench.pop("g", "T", 1, 60_000).await;
    let results = bench
        .settle(
            "g",
            vec![
                item(&got[0], SettleOp::Ack),
                item(&got[0], SettleOp::Ack),
                item(&got[0], SettleOp::Nack),
            ],
        )
        .await;
    assert_eq!(
        (results[0].status, results[0].already),
        (SettleStatus::Acked, false)
    );
    assert_eq!(
        (results[1].status, results[1].already),
        (SettleStatus::Acked, true)
    );
    assert_eq!(results[2].status, SettleStatus::Gone);
}

/// An expired lease comes back within a second, as attempt 2, under another receipt; the old one decides nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lease_comes_back_once_within_a_second() {
    let bench = ready(quick()).await;
    bench.send("T", 1, "m", "a").await;
    let first = bench.pop("g", "T", 1, 1_000).await;
    let popped = Instant::now();
    let second = bench.pop_within("g", "T", 8, 60_000, 4 * SECOND).await;
    let after = popped.elapsed();
    assert!(
        (SECOND - Duration::from_millis(20)..2 * SECOND).contains(&after),
        "{after:?}"
    );
    assert_eq!(
        (
            second.len(),
            second[0].lease.attempt,
            second[0].reconsume_times
        ),
        (1, 2, 1)
    );
    assert_eq!(second[0].topic, "%RETRY%g+T");
    assert_eq!(
        second[0].properties["__ORIGIN"].split(' ').next(),
        Some("1")
    );
    assert_eq!(bench.ack("g", &first[0]).await.status, SettleStatus::Gone);
    assert_eq!(bench.ack("g", &second[0]).await.status, SettleStatus::Acked);
    assert!(
        bench
            .pop_within("g", "T", 8, 60_000, Duration::from_millis(500))
            .await
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_keeps_the_receipt_and_the_message_away() {
    let bench = ready(quick()).await;
    bench.send("T", 0, "m", "a").await;
    let got = bench.pop("g", "T", 1, 1_000).await;
    let extend = SettleItem {
        invisible_ms: Some(60_000),
        ..item(&got[0], SettleOp::Extend)
    };
    let result = bench.settle("g", vec![extend]).await.remove(0);
    assert_eq!(result.status, SettleStatus::Extended);
    assert!(result.visible_at_ms.unwrap() > got[0].lease.visible_at_ms + 50_000);
    assert!(
        bench
            .pop_within("g", "T", 1, 1_000, 2 * SECOND)
            .await
            .is_empty()
    );
    assert_eq!(bench.ack("g", &got[0]).await.status, SettleStatus::Acked);
}

/// A lease that another member took over is not released by the one that had it before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_releases_only_what_is_its_own() {
    let bench = ready(quick()).await;
    bench.send("T", 0, "m", "a").await;
    let got = bench.pop("g", "T", 1, 60_000).await;
    let long = "m".repeat(120);
    let ask = |op, member: &str| SettleItem {
        invisible_ms: Some(60_000).filter(|_| op == SettleOp::Extend),
        member: Some(member.to_owned()),
        ..item(&got[0], op)
    };
    let asked = vec![
        ask(SettleOp::Extend, &long),
        ask(SettleOp::Release, "other"),
        ask(SettleOp::Extend, &long),
        ask(SettleOp::Release, &long),
    ];
    let answers = bench.settle("g", asked).await;
    let statuses: Vec<SettleStatus> = answers.iter().map(|answer| answer.status).collect();
    use SettleStatus::{Extended, Gone, Released};
    assert_eq!(statuses, [Extended, Gone, Extended, Released]);
    let second = bench.pop_within("g", "T", 1, 60_000, 2 * SECOND).await;
    assert_eq!((second.len(), second[0].lease.attempt), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nack_waits_its_delay_and_carries_its_words() {
    let bench = ready(quick()).await;
    bench.send("T", 0, "m", "a").await;
    let got = bench.pop("g", "T", 1, 60_000).await;
    let nack = SettleItem {
        delay_ms: Some(700),
        code: Some("E1".into()),
        reason: Some("why".into()),
        ..item(&got[0], SettleOp::Nack)
    };
    let nacked = Instant::now();
    let result = bench.settle("g", vec![nack.clone()]).await.remove(0);
    assert_eq!(result.status, SettleStatus::Nacked);
    assert_eq!(bench.ack("g", &got[0]).await.status, SettleStatus::Gone);
    let repeated = bench.settle("g", vec![nack]).await.remove(0);
    assert_eq!(
        (repeated.status, repeated.already, repeated.visible_at_ms),
        (SettleStatus::Nacked, true, result.visible_at_ms)
    );
    let second = bench.pop_within("g", "T", 1, 60_000, 4 * SECOND).await;
    assert!(
        (Duration::from_millis(650)..Duration::from_millis(1_700)).contains(&nacked.elapsed()),
        "{:?}",
        nacked.elapsed()
    );
    assert_eq!(
        (
            second[0].lease.attempt,
            second[0].properties["__ERR_CODE"].as_str(),
            second[0].properties["__ERR_REASON"].as_str()
        ),
        (2, "E1", "why")
    );
}

/// BL-26 (apache/rocketmq#2724): the last failure makes a dead letter at once, whatever the backoff.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_nack_dead_letters_at_once() {
    let spec = GroupSpec {
        max_attempts: 2,
        ..quick()
    };
    let bench = ready(spec).await;
    bench.send("T", 0, "m", "a").await;
    let first = bench.pop("g", "T", 1, 60_000).await;
    let nack = |got| SettleItem {
        delay_ms: Some(50),
        code: Some("E9".into()),
        ..item(got, SettleOp::Nack)
    };
    assert_eq!(
        bench.settle("g", vec![nack(&first[0])]).await[0].status,
        SettleStatus::Nacked
    );
    let second = bench.pop_within("g", "T", 1, 60_000, 3 * SECOND).await;
    let last = SettleItem {
        delay_ms: Some(3_600_000),
        ..nack(&second[0])
    };
    assert_eq!(
        bench.settle("g", vec![last]).await[0].status,
        SettleStatus::DeadLettered
    );
    tokio::time::sleep(SECOND).await;
    let dead = bench.stored("%DLQ%g", 0).await;
    assert_eq!(dead.len(), 1);
    let (times, properties, body) = &dead[0];
    assert_eq!(
        (
            *times,
            body.as_str(),
            properties["DLQ_ORIGIN_TOPIC"].as_str()
        ),
        (2, "m", "T")
    );
    for (name, value) in [
        ("DLQ_ORIGIN_MESSAGE_ID", "id-m"),
        ("__ERR_CODE", "E9"),
        ("__DEAD_CAUSE", "maxAttempts"),
        ("TAGS", "a"),
    ] {
        assert_eq!(properties[name], value, "{name}");
    }
    assert!(bench.pop("g", "T", 8, 1_000).await.is_empty());
    assert_eq!(bench.lag("g").await.dlq_open, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expiry_after_the_last_attempt_dead_letters_and_without_dead_letters_drops() {
    for keep in [true, false] {
        let bench = ready(GroupSpec {
            max_attempts: 1,
            dead_letter_enabled: keep,
            ..quick()
        })
        .await;
        bench.send("T", 0, "m", "a").await;
        assert_eq!(bench.pop("g", "T", 1, 1_000).await.len(), 1);
        tokio::time::sleep(2 * SECOND).await;
        assert!(bench.pop("g", "T", 8, 1_000).await.is_empty());
        assert_eq!(bench.lag("g").await.dlq_open, u64::from(keep));
        assert!(
            bench
                .lag("g")
                .await
                .queues
                .iter()
                .all(|queue| queue.in_flight + queue.waiting == 0)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspend_gives_back_at_once_without_counting_and_release_counts() {
    let bench = ready(quick()).await;
    bench.send("T", 0, "m", "a").await;
    let first = bench.pop("g", "T", 1, 60_000).await;
    assert_eq!(
        bench
            .settle("g", vec![item(&first[0], SettleOp::Suspend)])
            .await[0]
            .status,
        SettleStatus::Released
    );
    let second = bench.pop_within("g", "T", 1, 60_000, SECOND).await;
    assert_eq!(second[0].lease.attempt, 1);
    assert_eq!(
        bench
            .settle("g", vec![item(&second[0], SettleOp::Release)])
            .await[0]
            .status,
        SettleStatus::Released
    );
    let third = bench.pop_within("g", "T", 1, 60_000, SECOND).await;
    assert_eq!(third[0].lease.attempt, 2);
    let reject = SettleItem {
        code: Some("bad".into()),
        ..item(&third[0], SettleOp::Dead)
    };
    assert_eq!(
        bench.settle("g", vec![reject]).await[0].status,
        SettleStatus::DeadLettered
    );
    tokio::time::sleep(SECOND).await;
    assert_eq!(
        bench.stored("%DLQ%g", 0).await[0].1["__DEAD_CAUSE"],
        "rejected"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_group_holds_no_more_than_its_limit_and_gets_room_by_acks() {
    let bench = ready(GroupSpec {
        max_in_flight: 5,
        ..quick()
    })
    .await;
    bench.send_many("T", 2, 10).await;
    let got = bench.pop("g", "T", 32, 60_000).await;
    assert_eq!(got.len(), 5);
    let refused = bench.call(bench.pop_command("g", "T", 32, 60_000)).await;
    assert_eq!(
        (refused.response_code(), refused.ext.get("reason")),
        (ResponseCode::SystemBusy, Some("too_many_inflight"))
    );
    assert!(!bench.notify("g", "T", 50).await);
    bench.ack("g", &got[0]).await;
    assert_eq!(bench.pop("g", "T", 32, 60_000).await.len(), 1);
}

/// Tags that share a hash are told apart ("Aa" and "BB"); what does not match is passed over and leaves no lag.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_filter_compares_text_and_a_sparse_one_leaves_no_lag() {
    let bench = ready(quick()).await;
    bench.put_group("s", &quick()).await;
    bench.subscribe("s", "T", "Aa").await;
    for index in 0..300 {
        bench
            .send("T", index % 2, &format!("no{index}"), "BB")
            .await;
    }
    bench.send("T", 0, "yes", "Aa").await;
    let got = bench.pop("s", "T", 32, 60_000).await;
    assert_eq!(
        got.iter().map(|got| got.body.as_str()).collect::<Vec<_>>(),
        ["yes"]
    );
    bench.ack("s", &got[0]).await;
    assert!(
        bench
            .lag("s")
            .await
            .queues
            .iter()
            .all(|queue| queue.ack_floor == queue.max_offset)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_fires_on_arrival_and_ends_exactly_at_its_deadline() {
    let bench = ready(quick()).await;
    let began = Instant::now();
    assert!(!bench.notify("g", "T", 400).await);
    assert!(
        (Duration::from_millis(395)..Duration::from_millis(600)).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
    let (fired, ()) = tokio::join!(
        async {
            let fired = bench.notify("g", "T", 10_000).await;
            (fired, Instant::now())
        },
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            bench.send("T", 1, "m", "a").await;
        }
    );
    assert!(fired.0);
    assert!(
        bench.notify("g", "T", 10_000).await,
        "at once while something is there"
    );
    let got = bench.pop("g", "T", 8, 1_000).await;
    assert_eq!(got.len(), 1);
    let began = Instant::now();
    assert!(
        bench.notify("g", "T", 10_000).await,
        "the put-back wakes too"
    );
    assert!(began.elapsed() < 2 * SECOND, "{:?}", began.elapsed());
}

/// BL-36 (apache/rocketmq#8472): a waiter behind a sparse filter is woken by the one message that matches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sparse_filter_neither_strands_its_waiter_nor_wakes_it_in_vain() {
    let bench = ready(quick()).await;
    bench.put_group("s", &quick()).await;
    bench.subscribe("s", "T", "rare").await;
    let waiting = async { (bench.notify("s", "T", 10_000).await, Instant::now()) };
    let sending = async {
        for index in 0..200 {
            bench.send("T", index % 2, "x", "common").await;
        }
        bench.send("T", 0, "y", "rare").await;
        Instant::now()
    };
    let ((fired, at), sent) = tokio::join!(waiting, sending);
    assert!(fired);
    assert!(
        at + Duration::from_millis(5) >= sent - Duration::from_millis(50)
            && at < sent + Duration::from_millis(500)
    );
    assert_eq!(bench.pop("s", "T", 8, 1_000).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_group_gets_nothing_and_its_waiter_wakes_when_it_goes_on() {
    let bench = ready(GroupSpec {
        paused: true,
        ..quick()
    })
    .await;
    bench.send("T", 0, "m", "a").await;
    let answer = bench.call(bench.pop_command("g", "T", 8, 1_000)).await;
    assert_eq!(
        (answer.response_code(), answer.ext.get("paused")),
        (ResponseCode::PollingTimeout, Some("true"))
    );
    let (fired, ()) = tokio::join!(bench.notify("g", "T", 10_000), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench.put_group("g", &quick()).await;
    });
    assert!(fired);
    assert_eq!(bench.pop("g", "T", 8, 1_000).await.len(), 1);
}

/// BL-43 (redpanda-data/redpanda#5843): junk is refused by name and the broker lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_exist_is_refused_by_name() {
    let bench = ready(quick()).await;
    let check = async |group: &str, topic: &str, code: ResponseCode, reason: &str| {
        let answer = bench.call(bench.pop_command(group, topic, 1, 0)).await;
        assert_eq!(
            (answer.response_code(), answer.ext.get("reason")),
            (code, Some(reason)),
            "{group} {topic}"
        );
    };
    bench.put_topic("U", 1).await;
    check(
        "nobody",
        "T",
        ResponseCode::SubscriptionGroupNotExist,
        "group_not_found",
    )
    .await;
    check(
        "g",
        "nothing",
        ResponseCode::TopicNotExist,
        "topic_not_found",
    )
    .await;
    check(
        "g",
        "U",
        ResponseCode::NoPermission,
        "subscription_not_found",
    )
    .await;
    let too_many = bench.call(bench.pop_command("g", "T", 257, 0)).await;
    assert_eq!(too_many.response_code(), ResponseCode::InvalidParameter);
    for extra in ["", "a b c", "0 1 2 3 0 broker-a 0 x", &"9".repeat(100_000)] {
        let ack = Command::request(RequestCode::AckMessage)
            .with_ext("consumerGroup", "g")
            .with_ext("topic", "T")
            .with_ext("queueId", 0)
            .with_ext("offset", 0)
            .with_ext("extraInfo", extra);
        assert_eq!(
            bench.call(ack).await.response_code(),
            ResponseCode::SystemError
        );
    }
    let foreign = SettleItem {
        topic: "T".into(),
        queue_id: 99,
        queue_offset: -5,
        lease_id: u64::MAX,
        ..SettleItem::default()
    };
    assert_eq!(
        bench.settle("g", vec![foreign]).await[0].status,
        SettleStatus::Gone
    );
    let junk = bench
        .call(
            Command::request(RequestCode::Settle)
                .with_ext("group", "g")
                .with_body("{\"items\":7}"),
        )
        .await;
    assert_eq!(junk.response_code(), ResponseCode::SystemError);
}

/// BL-36 again: more messages of no concern than one look takes in, and the one that matters behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_match_far_behind_messages_of_no_concern_is_found_at_once() {
    let bench = ready(quick()).await;
    bench.put_group("s", &quick()).await;
    bench.subscribe("s", "T", "rare").await;
    bench.send_batch("T", 0, 10_000, "common").await;
    bench.send("T", 0, "found", "rare").await;
    let began = Instant::now();
    assert!(bench.notify("s", "T", 10_000).await);
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    bench.put_group("p", &quick()).await;
    bench.subscribe("p", "T", "rare").await;
    let got = bench.pop("p", "T", 32, 60_000).await;
    assert_eq!(got.len(), 1, "a pop follows its filter too");
    assert_eq!(bench.pop("s", "T", 32, 60_000).await[0].body, "found");
}

/// A snapshot that is gone or damaged costs time, not leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_read_from_the_log_where_the_snapshot_is_lost() {
    use store::disk::Disk;
    use store::disk::sim::SimDisk;
    for lost in [true, false] {
        let disk = SimDisk::new(7);
        let mut bench =
            pop_support::on_disk(std::sync::Arc::new(disk.clone()), broker::FlushMode::Sync).await;
        bench.put_topic("T", 1).await;
        bench.put_group("g", &quick()).await;
        bench.subscribe("g", "T", "*").await;
        bench.send_many("T", 1, 3).await;
        let got = bench.pop("g", "T", 2, 60_000).await;
        bench.ack("g", &got[0]).await;
        bench.stop().await;
        for name in ["popState.json", "popState.json.bak"] {
            let path = std::path::Path::new("/data/config").join(name);
            if lost {
                disk.remove_file(&path).ok();
            } else {
                assert!(disk.flip_bit(&path, 40, 3), "{name}");
            }
        }
        let bench = pop_support::on_disk(std::sync::Arc::new(disk), broker::FlushMode::Sync).await;
        let again = bench.ack("g", &got[0]).await;
        assert_eq!((again.status, again.already), (SettleStatus::Acked, true));
        assert_eq!(bench.ack("g", &got[1]).await.status, SettleStatus::Acked);
        assert_eq!(bench.pop("g", "T", 8, 60_000).await.len(), 1);
    }
}
