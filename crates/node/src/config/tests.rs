//! What the layers make of each other.

use serde::{Deserialize, Serialize};

use super::*;
use crate::units::{ByteSize, Millis};

#[derive(Debug, Serialize, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct Demo {
    listen: std::net::SocketAddr,
    namesrv: Vec<String>,
    id: u32,
    master_key_file: Option<String>,
    flush: Flush,
    segment_size: ByteSize,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
struct Flush {
    mode: Mode,
    interval: Millis,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Sync,
    Async,
}

impl Default for Demo {
    fn default() -> Self {
        Self {
            listen: std::net::SocketAddr::from(([0, 0, 0, 0], 10911)),
            namesrv: vec!["127.0.0.1:9876".to_owned()],
            id: 0,
            master_key_file: None,
            flush: Flush::default(),
            segment_size: ByteSize::mib(64),
        }
    }
}

impl Default for Flush {
    fn default() -> Self {
        Self {
            mode: Mode::Sync,
            interval: Millis(500),
        }
    }
}

impl Settings for Demo {
    fn validate(&self) -> Vec<Fault> {
        let small = self.segment_size < ByteSize(4096);
        small
            .then(|| Fault::new("segment_size", "must be at least 4KiB"))
            .into_iter()
            .collect()
    }
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

fn with_file(
    text: &str,
    env: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Loaded<Demo>, Faults> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("demo.toml");
    std::fs::write(&path, text).unwrap();
    load(&Layers {
        file: Some(path),
        env: pairs(env),
        flags: pairs(flags),
        aliases: &[("mode", "flush.mode")],
    })
}

#[test]
fn later_layers_win_and_every_value_knows_its_source() {
    let file = "id = 7\nsegment_size = \"1GiB\"\n[flush]\nmode = \"async\"\ninterval = 20\n";
    let env = [
        ("GANTRY_FLUSH_MODE", "sync"),
        ("GANTRY_NAMESRV", "a:1;b:2"),
        ("GANTRY_LOG", "debug"),
    ];
    let loaded = with_file(
        file,
        &env,
        &[("segment_size", "8KiB"), ("master_key_file", "12")],
    )
    .unwrap();
    let demo = &loaded.settings;
    assert_eq!(
        demo.flush,
        Flush {
            mode: Mode::Sync,
            interval: Millis(20)
        }
    );
    assert_eq!((demo.id, demo.segment_size), (7, ByteSize(8192)));
    assert_eq!(demo.namesrv, ["a:1", "b:2"]);
    assert_eq!(demo.master_key_file.as_deref(), Some("12"));
    let text = loaded.print();
    assert!(
        text.contains("flush.mode = \"sync\"") && text.contains("# GANTRY_FLUSH_MODE"),
        "{text}"
    );
    assert!(
        text.contains("# --segment-size")
            && text.contains("demo.toml")
            && text.contains("# default"),
        "{text}"
    );
    let again: toml::Table = text.parse().unwrap();
    assert_eq!(again["flush"]["interval"].as_str(), Some("20ms"));
}

#[test]
fn all_faults_are_reported_at_once_with_their_source() {
    let file = "idd = 7\nid = \"x\"\n[flush]\nmod = \"async\"\n";
    let env = [("GANTRY_FLUSH_MODE", "sometimes")];
    let Err(Faults(faults)) = with_file(file, &env, &[("segment_size", "12"), ("listen", "here")])
    else {
        panic!("accepted");
    };
    let seen: Vec<(String, String)> = faults
        .iter()
        .map(|f| (f.key.clone(), f.source.as_ref().unwrap().to_string()))
        .collect();
    for (key, source) in [
        ("flush.mode", "GANTRY_FLUSH_MODE"),
        ("segment_size", "--segment-size"),
        ("listen", "--listen"),
    ] {
        assert!(
            seen.contains(&(key.to_owned(), source.to_owned())),
            "{key} not in {seen:?}"
        );
    }
    for key in ["idd", "id", "flush.mod"] {
        assert!(
            seen.iter()
                .any(|(k, s)| k == key && s.ends_with("demo.toml")),
            "{key} not in {seen:?}"
        );
    }
    assert_eq!(faults.len(), 6);
    let listen = faults.iter().find(|f| f.key == "listen").unwrap();
    assert_eq!(
        listen.to_string(),
        r#"--listen: "here" is not an address, such as "127.0.0.1:8080""#
    );
}

#[test]
fn a_missing_or_broken_file_is_a_fault() {
    assert!(with_file("= nonsense", &[], &[]).is_err());
    assert!(
        load::<Demo>(&Layers {
            file: Some("/nowhere/at/all.toml".into()),
            ..Layers::default()
        })
        .is_err()
    );
}

#[test]
fn a_short_name_stands_for_its_key_in_every_layer() {
    assert_eq!(
        with_file("mode = \"async\"\n", &[], &[])
            .unwrap()
            .settings
            .flush
            .mode,
        Mode::Async
    );
    assert_eq!(
        with_file("", &[("GANTRY_MODE", "async")], &[])
            .unwrap()
            .settings
            .flush
            .mode,
        Mode::Async
    );
    let loaded = with_file(
        "mode = \"async\"\n",
        &[("GANTRY_MODE", "async")],
        &[("mode", "sync")],
    )
    .unwrap();
    assert_eq!(loaded.settings.flush.mode, Mode::Sync);
    assert!(loaded.print().contains("# --mode"), "{}", loaded.print());
}
