//! Settings that change while the broker runs: each holds at once, is kept, and gives way to the environment.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use clock::SystemClock;
use node::Context;
use support::{Fixture, config, request};
use tempfile::TempDir;
use wire::{Command, RequestCode};

async fn shown(fix: &Fixture) -> BTreeMap<String, String> {
    let answer = fix.ok(request(RequestCode::GetBrokerConfig, &[])).await;
    String::from_utf8(answer.body.to_bytes().to_vec())
        .unwrap()
        .lines()
        .map(|line| line.split_once('=').unwrap())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn change(text: &'static str) -> Command {
    Command::request(RequestCode::UpdateBrokerConfig).with_body(text)
}

async fn open_pinned(
    dir: TempDir,
    pinned: &[&str],
    setting: impl FnOnce(&mut broker::Config),
) -> Fixture {
    let mut settings = config(dir.path());
    setting(&mut settings);
    let mut ctx = Context::quiet(Arc::new(SystemClock::new()));
    ctx.pinned = pinned.iter().map(|name| (*name).to_owned()).collect();
    let running = broker::start(settings, &ctx).await.unwrap();
    let addr = running.addrs().listen.to_string();
    Fixture {
        dir,
        running,
        client: support::client(),
        addr,
    }
}

#[tokio::test]
async fn every_setting_of_the_list_changes_by_both_names_and_survives_a_restart() {
    let fix = Fixture::start().await;
    let before = shown(&fix).await;
    assert_eq!(before["flushIntervalCommitLog"], "50");
    assert_eq!(
        before["limits.connections"], "20000",
        "fixed ones are shown too"
    );
    fix.ok(change(
        "brokerPermission=4\ncreate.topics=false\nautoCreateSubscriptionGroup=false\nmaxMessageSize=1024\n\
         flushIntervalCommitLog=75\nlimits.sends=7\npullThreadPoolQueueCapacity=8\nlimits.admin=9\nlog=warn\nlimits.acks=6\n\
         pullMessageThreadPoolNums=5\nlimits.create=4\nfileReservedTime=71\ndeleteWhen=4\nretention.expired_percent=71\n\
         retention.clean_percent=82\ndiskSpaceWarningLevelRatio=93\n",
    ))
    .await;
    let expected = [
        ("permission", "4"),
        ("brokerPermission", "4"),
        ("create.topics", "false"),
        ("autoCreateTopicEnable", "false"),
        ("create.groups", "false"),
        ("autoCreateSubscriptionGroup", "false"),
        ("limits.message_size", "1KiB"),
        ("maxMessageSize", "1024"),
        ("flush.interval", "75ms"),
        ("flushIntervalCommitLog", "75"),
        ("limits.sends", "7"),
        ("sendThreadPoolQueueCapacity", "7"),
        ("limits.long_polls", "8"),
        ("pullThreadPoolQueueCapacity", "8"),
        ("limits.admin", "9"),
        ("adminBrokerThreadPoolNums", "9"),
        ("log", "warn"),
        ("limits.acks", "6"),
        ("limits.reads", "5"),
        ("limits.create", "4"),
        ("retention.time", "71h"),
        ("fileReservedTime", "71"),
        ("retention.hour", "4"),
        ("deleteWhen", "4"),
        ("diskMaxUsedSpaceRatio", "71"),
        ("retention.clean_percent", "82"),
        ("retention.refuse_percent", "93"),
    ];
    let after = shown(&fix).await;
    for (key, value) in expected {
        assert_eq!(after.get(key).map(String::as_str), Some(value), "{key}");
    }
    let fix = fix.restart().await;
    let again = shown(&fix).await;
    for (key, value) in expected {
        assert_eq!(
            again.get(key).map(String::as_str),
            Some(value),
            "{key} after a restart"
        );
    }
}

#[tokio::test]
async fn a_kept_change_lies_over_the_file_and_under_the_environment() {
    let fix = Fixture::start().await;
    fix.ok(change("maxMessageSize=1024\nlimits.sends=7")).await;
    let Fixture { dir, running, .. } = fix;
    running.stop().await.unwrap();
    // The file says something else: the change holds. The environment does: it holds.
    let fix = open_pinned(dir, &["limits.message_size"], |config| {
        config.limits.message_size = node::ByteSize(2048);
        config.limits.sends = 99;
    })
    .await;
    let now = shown(&fix).await;
    assert_eq!(
        (now["maxMessageSize"].as_str(), now["limits.sends"].as_str()),
        ("2048", "7")
    );
    fix.create_topic("t", 1).await;
    let body = "x".repeat(1500);
    fix.ok(support::send("t", 0, &[], &body)).await;
    // A change of what is pinned says how long it lasts.
    let answer = fix.ok(change("maxMessageSize=512")).await;
    assert!(answer.remark.unwrap().contains("limits.message_size"));
    assert_eq!(fix.call(support::send("t", 0, &[], &body)).await.code, 13);
    let Fixture { dir, running, .. } = fix;
    running.stop().await.unwrap();
    // Without the environment the last change holds.
    let fix = open_pinned(dir, &[], |_| {}).await;
    assert_eq!(shown(&fix).await["maxMessageSize"], "512");
}

#[tokio::test]
async fn what_is_off_the_list_or_out_of_range_is_refused_with_what_would_do() {
    let fix = Fixture::start().await;
    for name in [
        "listenPort",
        "flushDiskType",
        "no.such.key",
        "storePathRootDir",
    ] {
        let text = format!("{name}=1\nlimits.sends=5");
        let answer = fix
            .call(Command::request(RequestCode::UpdateBrokerConfig).with_body(text))
            .await;
        assert_eq!(answer.code, 16, "{name}");
        let remark = answer.remark.unwrap();
        for listed in [
            name,
            "permission (brokerPermission)",
            "flush.interval",
            "log",
        ] {
            assert!(remark.contains(listed), "{listed} in {remark}");
        }
    }
    // A line that sets nothing is told, with everything beside it.
    for (text, code, named) in [
        ("limits.sends=6\nlimits.acks", 29, "limits.acks"),
        ("limits.sends=6\nno.such.key", 16, "no.such.key"),
    ] {
        let answer = fix.call(change(text)).await;
        assert_eq!(answer.code, code, "{text}");
        assert!(answer.remark.unwrap().contains(named), "{text}");
    }
    fix.ok(change("# a remark\n\n! another")).await;
    for (text, wanted) in [
        (
            "limits.sends=0",
            "limits.sends must be a number of 1 to 1000000",
        ),
        (
            "flushIntervalCommitLog=5",
            "flushIntervalCommitLog must be a time of 10ms to 60s",
        ),
        (
            "maxMessageSize=16129KiB",
            "maxMessageSize must be a size of 1B to 16128KiB",
        ),
        (
            "brokerPermission=9",
            "brokerPermission must be a sum of 4 (read) and 2 (write)",
        ),
        ("log=a=b=c", "log must be a filter of the log"),
    ] {
        let answer = fix.call(change(text)).await;
        assert_eq!(answer.code, 29, "{text}");
        let remark = answer.remark.unwrap();
        assert!(remark.contains(wanted), "{remark}");
    }
    assert_eq!(shown(&fix).await["limits.sends"], "65536", "all or nothing");
}

#[tokio::test]
async fn a_change_that_cannot_be_kept_is_not_made() {
    let fix = Fixture::start().await;
    let in_the_way = fix.dir.path().join("config/gantry.json.new");
    std::fs::create_dir_all(&in_the_way).unwrap();
    assert_eq!(fix.call(change("limits.sends=7")).await.code, 1);
    assert_eq!(shown(&fix).await["limits.sends"], "65536");
    std::fs::remove_dir(&in_the_way).unwrap();
    fix.ok(change("limits.sends=7")).await;
    assert_eq!(shown(&fix).await["limits.sends"], "7");
}

#[tokio::test]
async fn a_smaller_class_refuses_sooner_and_a_larger_one_takes_more() {
    let fix = Fixture::start_with(|config| config.create.groups = true).await;
    fix.create_topic("t", 2).await;
    // The group comes into being before the class that makes groups is narrow.
    fix.call(support::pull("g", "t", 0, 0, "*", 0)).await;
    fix.ok(change("limits.long_polls=1\nlimits.admin=1")).await;
    let waiting = {
        let (client, addr) = (support::client(), fix.addr.clone());
        tokio::spawn(async move {
            client
                .invoke(
                    &addr,
                    support::pull("g", "t", 0, 0, "*", 15_000),
                    support::SOON,
                )
                .await
                .unwrap()
        })
    };
    let parked = async {
        let empty = r#""longPolls":"0""#;
        while fix
            .ok(request(RequestCode::GetBrokerRuntimeInfo, &[]))
            .await
            .body
            .to_bytes()
            .windows(empty.len())
            .any(|part| part == empty.as_bytes())
        {}
    };
    tokio::time::timeout(support::SOON, parked).await.unwrap();
    // The table of waiting requests has one place.
    assert_eq!(
        fix.call(support::pull("g", "t", 1, 0, "*", 100)).await.code,
        2
    );
    fix.ok(change("limits.long_polls=5\nlimits.admin=64")).await;
    assert_eq!(
        fix.call(support::pull("g", "t", 1, 0, "*", 50)).await.code,
        19
    );
    fix.send("t", 0, &[], "x").await;
    assert_eq!(waiting.await.unwrap().code, 0);
}
