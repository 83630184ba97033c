//! GROUP_MEMBERS: who is in a group, what each holds and how its leases ended.
#![allow(clippy::unwrap_used, reason = "a test")]

mod pop_support;

use pop_support::{Bench, item, native_receipts, quick, ready};
use wire::body::gantry::SettleOp;
use wire::body::members::{GroupMember, GroupMembers, MemberKind, Transport};
use wire::{Command, RequestCode, ResponseCode};

async fn members(bench: &Bench, group: &str, page: &[(&'static str, &str)]) -> Vec<GroupMember> {
    let mut cmd = Command::request(RequestCode::GroupMembers).with_ext("group", group);
    for (name, value) in page {
        cmd = cmd.with_ext(name, *value);
    }
    let answer = bench.ok(cmd).await;
    let found: GroupMembers = wire::json::from_slice(&answer.body.to_bytes()).unwrap();
    found.members
}

/// A pop of one message in the name of a gateway's member.
async fn pop_as(bench: &Bench, member: &str, transport: &str) -> Command {
    let mut cmd = bench.pop_command("g", "T", 1, 60_000);
    cmd.ext.put("member", member);
    cmd.ext.put("transport", transport);
    cmd.ext.put("gateway", "gw-1");
    cmd.ext.put("memberIp", "192.0.2.7");
    bench.call(cmd).await
}

#[tokio::test]
async fn members_that_lease_are_told_with_what_became_of_their_leases() {
    let bench = ready(quick()).await;
    assert!(members(&bench, "g", &[]).await.is_empty());
    for n in 0..5 {
        bench.send("T", 0, &format!("m{n}"), "a").await;
    }
    let mut got = Vec::new();
    for _ in 0..4 {
        let answer = pop_as(&bench, "w-1", "rest").await;
        got.extend(pop_support::got("g", "T", &answer));
    }
    pop_as(&bench, "s.1", "websocket").await;
    // Waiting and settling do not say whose they are, a word of presence does.
    bench.notify("g", "T", 0).await;
    let ops = [SettleOp::Ack, SettleOp::Nack, SettleOp::Suspend];
    let items = ops.iter().zip(&got).map(|(op, got)| item(got, *op));
    bench.settle("g", items.collect()).await;
    let all = members(&bench, "g", &[]).await;
    let names: Vec<&str> = all.iter().map(|member| member.client.as_str()).collect();
    assert_eq!(names, ["s.1", "w-1"]);
    assert_eq!(
        (all[0].transport, all[0].in_flight, all[0].acks),
        (Some(Transport::WebSocket), Some(1), Some(0))
    );
    let worker = &all[1];
    let now_ms = i64::try_from(clock::Clock::now_ms(&clock::SystemClock::new())).unwrap();
    assert!(now_ms - worker.last_receive_at_ms.unwrap() < 10_000);
    let expected = GroupMember {
        client: "w-1".into(),
        kind: MemberKind::Lease,
        transport: Some(Transport::Rest),
        gateway: Some("gw-1".into()),
        ip: Some("192.0.2.7".into()),
        language: None,
        last_receive_at_ms: worker.last_receive_at_ms,
        in_flight: Some(1),
        acks: Some(1),
        nacks: Some(1),
    };
    assert_eq!(*worker, expected);
    // Page by page.
    let first = members(&bench, "g", &[("limit", "1")]).await;
    assert_eq!((first.len(), first[0].client.as_str()), (1, "s.1"));
    let next = members(&bench, "g", &[("limit", "1"), ("after", "s.1")]).await;
    assert_eq!((next.len(), next[0].client.as_str()), (1, "w-1"));
    assert!(members(&bench, "g", &[("after", "w-1")]).await.is_empty());
    let unknown = Command::request(RequestCode::GroupMembers).with_ext("group", "nobody");
    assert_eq!(
        bench.call(unknown).await.response_code(),
        ResponseCode::SubscriptionGroupNotExist
    );
}

#[tokio::test]
async fn clients_of_rocketmq_are_told_by_their_id() {
    let bench = ready(quick()).await;
    bench.put_group("h", &quick()).await;
    bench.send("T", 0, "m0", "a").await;
    bench.send("T", 0, "m1", "a").await;
    let beat = r#"{"clientID":"10.0.0.1@7","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"h","messageModel":"CLUSTERING","subscriptionDataSet":[{"topic":"T","subString":"*","subVersion":1}]},{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_POP","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":[{"topic":"T","subString":"*","subVersion":1}]}]}"#;
    let mut cmd = Command::request(RequestCode::HeartBeat).with_body(beat);
    cmd.language = wire::Language::Go;
    let beaten = bench.call(cmd).await;
    assert_eq!(beaten.response_code(), ResponseCode::Success);
    let known = GroupMember {
        client: "10.0.0.1@7".into(),
        kind: MemberKind::Native,
        transport: Some(Transport::Native),
        ip: Some("127.0.0.1".into()),
        language: Some("GO".into()),
        ..GroupMember::default()
    };
    assert_eq!(members(&bench, "h", &[]).await.remove(0), known);
    // It asks for messages: by pulling here, by leasing there.
    let pull = Command::request(RequestCode::PullMessage)
        .with_ext("consumerGroup", "h")
        .with_ext("topic", "T")
        .with_ext("queueId", 0)
        .with_ext("queueOffset", 0)
        .with_ext("maxMsgNums", 32)
        .with_ext("sysFlag", 0)
        .with_ext("commitOffset", 0)
        .with_ext("suspendTimeoutMillis", 0)
        .with_ext("subVersion", 0);
    let pulled = bench.call(pull).await;
    assert_eq!(pulled.response_code(), ResponseCode::Success);
    let puller = members(&bench, "h", &[]).await.remove(0);
    assert!(puller.last_receive_at_ms.is_some());
    assert_eq!(
        (puller.in_flight, puller.acks, puller.nacks),
        (None, None, None)
    );
    let popped = bench.native_pop("g", "T", 2, 60_000, 0).await;
    let receipts = native_receipts(&popped);
    assert_eq!(receipts.len(), 2, "{:?}", popped.remark);
    bench.native_ack("g", "T", &receipts[0].0).await;
    let leaser = members(&bench, "g", &[]).await.remove(0);
    assert!(leaser.last_receive_at_ms.is_some());
    let expected = GroupMember {
        kind: MemberKind::Lease,
        last_receive_at_ms: leaser.last_receive_at_ms,
        in_flight: Some(1),
        acks: Some(1),
        nacks: Some(0),
        ..known
    };
    assert_eq!(leaser, expected);
}
