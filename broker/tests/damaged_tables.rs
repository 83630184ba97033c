//! Tables of the data directory that a fault of the disk has damaged: what can be had from elsewhere is had.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::sync::Arc;

use clock::SystemClock;
use node::Context;
use wire::{Command, RequestCode};

use support::{Fixture, config};

const GARBAGE: &[u8] = b"\xff\0garbage{{{";

/// Breaks files of `config/` between a stop and a start.
async fn restart_with(content: &[u8], fixture: Fixture, names: &[&str]) -> Result<Fixture, u8> {
    let Fixture { dir, running, .. } = fixture;
    running.stop().await.unwrap();
    let root = config(dir.path());
    for name in names {
        let path = [dir.path().join("config"), dir.path().join("store/config")]
            .into_iter()
            .map(|config| config.join(name))
            .find(|path| path.try_exists().unwrap())
            .unwrap();
        std::fs::write(path, content).unwrap();
    }
    match broker::start(root, &Context::quiet(Arc::new(SystemClock::new()))).await {
        Ok(running) => {
            running.stop().await.unwrap();
            let root = config(dir.path());
            Ok(Fixture::open(dir, root).await)
        }
        Err(error) => Err(error.exit_code()),
    }
}

#[tokio::test]
async fn a_topic_that_only_the_damaged_table_knew_comes_back_with_its_messages() {
    for content in [GARBAGE, b""] {
        let fixture = Fixture::start().await;
        fixture.create_topic("older", 2).await;
        fixture.create_topic("latest", 4).await;
        fixture.send("latest", 3, &[], "kept").await;
        let fixture = restart_with(content, fixture, &["topics.json"])
            .await
            .unwrap();
        let mut ask = Command::request(RequestCode::GetTopicConfig);
        ask.ext.put("topic", "latest");
        fixture.ok(ask).await;
        let (_, offset) = fixture.send("latest", 3, &[], "next").await;
        assert_eq!(offset, 1, "after the message that was there");
        let bodies = fixture.read("latest", 3, 0, 2).await;
        assert_eq!(bodies.len(), 2);
    }
}

#[tokio::test]
async fn the_progress_of_delay_levels_is_read_from_the_log() {
    let fixture = Fixture::start().await;
    fixture.create_topic("later", 1).await;
    fixture.send("later", 0, &[("DELAY", "1")], "x").await;
    let _arrived = fixture.read("later", 0, 0, 1).await;
    let fixture = restart_with(GARBAGE, fixture, &["delayOffset.json"])
        .await
        .unwrap();
    fixture.send("later", 0, &[("DELAY", "1")], "y").await;
    let bodies = fixture.read("later", 0, 0, 2).await;
    assert_eq!(bodies.len(), 2, "the first is not delivered again");
}

#[tokio::test]
async fn a_table_that_is_nowhere_whole_is_damage_that_a_person_must_look_at() {
    let fixture = Fixture::start().await;
    fixture.create_topic("a", 1).await;
    fixture.create_topic("b", 1).await;
    let refused = restart_with(GARBAGE, fixture, &["topics.json", "topics.json.bak"]).await;
    assert_eq!(refused.err(), Some(4));
}

#[tokio::test]
async fn the_last_change_of_a_group_outlives_damage_to_either_file() {
    for name in ["subscriptionGroup.json", "subscriptionGroup.json.bak"] {
        for content in [GARBAGE, b""] {
            let fixture = Fixture::start().await;
            let mut put = Command::request(RequestCode::PutGroup);
            put.ext.put("group", "g");
            for attempts in [5, 6] {
                let body = format!("{{\"maxAttempts\":{attempts}}}");
                fixture.ok(put.clone().with_body(body)).await;
            }
            let fixture = restart_with(content, fixture, &[name]).await.unwrap();
            let mut get = Command::request(RequestCode::GetGroup);
            get.ext.put("group", "g");
            let answer = fixture.ok(get).await;
            let text = String::from_utf8(answer.body.to_bytes().to_vec()).unwrap();
            assert!(text.contains("\"maxAttempts\":6"), "{name}: {text}");
        }
    }
}

/// What a kill leaves of a deletion: the table says so, everything else is still there.
fn half_deleted(dir: &std::path::Path, topic: &str, at_ms: u64) {
    let path = [dir.join("config"), dir.join("store/config")]
        .into_iter()
        .map(|config| config.join("topics.json"))
        .find(|path| path.try_exists().unwrap())
        .unwrap();
    let mut table: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let topics = table["topicConfigTable"].as_object_mut().unwrap();
    topics.remove(topic).unwrap();
    table["gantryDeleted"][topic] = serde_json::json!({"version": 2, "atMs": at_ms});
    std::fs::write(path, table.to_string()).unwrap();
}

#[tokio::test]
async fn a_deletion_that_a_kill_cut_short_is_finished_at_the_next_start() {
    let fixture = Fixture::start().await;
    for body in ["old 0", "old 1"] {
        fixture.send("gone", 0, &[], body).await;
    }
    fixture.send("stays", 0, &[], "kept").await;
    let mut group = Command::request(RequestCode::GetSubscriptiongroupConfig);
    group.ext.put("group", "g");
    fixture.ok(group).await;
    let mut commit = Command::request(RequestCode::UpdateConsumerOffset);
    for (name, value) in [("consumerGroup", "g"), ("topic", "gone"), ("queueId", "0")] {
        commit.ext.put(name, value);
    }
    commit.ext.put("commitOffset", 2);
    fixture.ok(commit.clone()).await;
    let Fixture { dir, running, .. } = fixture;
    running.stop().await.unwrap();
    let now_ms = clock::Clock::now_ms(&SystemClock::new());
    half_deleted(dir.path(), "gone", now_ms);
    let root = config(dir.path());
    let fixture = Fixture::open(dir, root).await;
    let (_, offset) = fixture.send("gone", 0, &[], "new").await;
    assert_eq!(offset, 0, "nothing is left of the topic before");
    assert_eq!(fixture.read("gone", 0, 0, 1).await[0].body, "new");
    let mut progress = Command::request(RequestCode::QueryConsumerOffset);
    progress.ext = commit.ext.clone();
    let answer = fixture.call(progress).await;
    assert_ne!(answer.ext.get("offset"), Some("2"), "progress of before");
    assert_eq!(fixture.read("stays", 0, 0, 1).await[0].body, "kept");
}

#[tokio::test]
async fn messages_of_after_a_deletion_put_their_topic_back() {
    let fixture = Fixture::start().await;
    fixture.send("again", 1, &[], "acknowledged").await;
    let Fixture { dir, running, .. } = fixture;
    running.stop().await.unwrap();
    // On 9 September 2001.
    half_deleted(dir.path(), "again", 1_000_000_000_000);
    let root = config(dir.path());
    let fixture = Fixture::open(dir, root).await;
    assert_eq!(fixture.read("again", 1, 0, 1).await[0].body, "acknowledged");
}
