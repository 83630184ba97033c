//! Tables of the data directory that a fault of the disk has damaged: what can be had from elsewhere is had.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clock::SystemClock;
use node::Context;
use serde_json::{Value, json};
use wire::{Command, RequestCode};

use support::{Fixture, config, create_topic, request, send};

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

/// A topic or a group whose table could not be written is not lost silently: who uses it is refused until it can be.
#[tokio::test]
async fn what_the_table_on_the_disk_lacks_is_not_used() {
    let fixture = Fixture::start().await;
    let dir = config_dir(fixture.dir.path());
    let in_the_way = dir.join("topics.json.new");
    std::fs::create_dir(&in_the_way).unwrap();
    for _ in 0..2 {
        let answer = fixture.call(create_topic("t", 1)).await;
        assert_ne!(answer.code, 0, "said again, it is no more on the disk");
        let answer = fixture.call(send("t", 0, &[], "early")).await;
        assert_ne!(answer.code, 0);
    }
    let group = request(RequestCode::GetSubscriptiongroupConfig, &[("group", "g")]);
    std::fs::create_dir(dir.join("subscriptionGroup.json.new")).unwrap();
    for _ in 0..2 {
        assert_ne!(fixture.call(group.clone()).await.code, 0);
    }
    std::fs::remove_dir(&in_the_way).unwrap();
    fixture.send("t", 0, &[], "kept").await;
    let text = std::fs::read_to_string(dir.join("topics.json")).unwrap();
    assert!(text.contains("\"t\""), "{text}");
}

/// What a kill leaves of a deletion: the table says so, everything else is still there.
fn half_deleted(dir: &Path, topic: &str, at_ms: u64) {
    let deletion = json!({"version": 2, "atMs": at_ms});
    half_deleted_in(dir, "topics.json", "topicConfigTable", topic, &deletion);
}

fn half_deleted_in(dir: &Path, file: &str, entries: &str, name: &str, deletion: &Value) {
    let path = config_dir(dir).join(file);
    let mut table: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let entries = table[entries].as_object_mut().unwrap();
    entries.remove(name).unwrap();
    table["gantryDeleted"][name] = deletion.clone();
    std::fs::write(path, table.to_string()).unwrap();
}

/// Where the tables are.
fn config_dir(dir: &Path) -> PathBuf {
    [dir.join("config"), dir.join("store/config")]
        .into_iter()
        .find(|path| path.join("topics.json").try_exists().unwrap())
        .unwrap()
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

#[tokio::test]
async fn a_deletion_of_a_group_that_a_kill_cut_short_is_finished_as_it_was_asked_for() {
    let fixture = Fixture::start().await;
    fixture.create_topic("t", 1).await;
    for body in ["0", "1"] {
        fixture.send("t", 0, &[], body).await;
    }
    let fields = |group| [("consumerGroup", group), ("topic", "t"), ("queueId", "0")];
    for group in ["cleaned", "kept"] {
        let get = [("group", group)];
        fixture
            .ok(request(RequestCode::GetSubscriptiongroupConfig, &get))
            .await;
        let commit = request(RequestCode::UpdateConsumerOffset, &fields(group));
        fixture.ok(commit.with_ext("commitOffset", 2)).await;
        let mode =
            json!({"topic": "t", "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0});
        let set = Command::request(RequestCode::SetMessageRequestMode);
        fixture.ok(set.with_body(mode.to_string())).await;
    }
    let Fixture { dir, running, .. } = fixture;
    running.stop().await.unwrap();
    for (group, clean) in [("cleaned", true), ("kept", false)] {
        let deletion = json!({"version": 2, "atMs": 1_000, "clean": clean});
        half_deleted_in(
            dir.path(),
            "subscriptionGroup.json",
            "subscriptionGroupTable",
            group,
            &deletion,
        );
    }
    let root = config(dir.path());
    let fixture = Fixture::open(dir, root).await;
    let read =
        |file: &str| std::fs::read_to_string(config_dir(fixture.dir.path()).join(file)).unwrap();
    let modes = read("messageRequestMode.json");
    assert!(
        !modes.contains("cleaned") && !modes.contains("kept"),
        "{modes}"
    );
    let offsets = read("consumerOffset.json");
    assert!(
        !offsets.contains("cleaned") && offsets.contains("kept"),
        "{offsets}"
    );
}
