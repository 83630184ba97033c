//! The readers of files, properties and requests of the broker, opened to the fuzz targets: each takes anything, must not
//! panic, and reads its own writing.

use node::config::Pinned;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::WireError;
use wire::body::config_level::ConfigEntry;

use crate::adopt::{self, Kind};
use crate::carry;
use crate::config::Config;
use crate::delay::{self, DelayFile};
use crate::filter::Filter;
use crate::group::{GroupConfig, GroupTable};
use crate::offsets::OffsetTable;
use crate::peer_config;
use crate::pop::Start;
use crate::pop::put_back::LeaseEnd;
use crate::request_modes::RequestModes;
use crate::settings::LiveSettings;
use crate::table::Entry;
use crate::topic::{TopicConfig, TopicTable};

/// What is read when a table is written and read again is what was there.
fn table<T>(
    bytes: &[u8],
    new: fn() -> T,
    load: fn(&T, &[u8]) -> Result<usize, WireError>,
    text: fn(&T) -> Vec<u8>,
) {
    let read = new();
    if load(&read, bytes).is_err() {
        return;
    }
    let (again, written) = (new(), text(&read));
    assert!(load(&again, &written).is_ok(), "{}", shown(&written));
    assert_eq!(shown(&text(&again)), shown(&written));
}

fn shown(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The file `config/topics.json`.
pub fn topics(json: &[u8]) {
    table(
        json,
        || TopicTable::new(1),
        TopicTable::load,
        TopicTable::to_json,
    );
}

/// The file `config/subscriptionGroup.json`.
pub fn groups(json: &[u8]) {
    table(
        json,
        || GroupTable::new(1),
        GroupTable::load,
        GroupTable::to_json,
    );
}

/// The file `config/consumerOffset.json`.
pub fn offsets(json: &[u8]) {
    table(
        json,
        || OffsetTable::new(1),
        OffsetTable::load,
        OffsetTable::to_json,
    );
}

/// The file `config/messageRequestMode.json`.
pub fn request_modes(json: &[u8]) {
    table(
        json,
        RequestModes::default,
        RequestModes::load,
        RequestModes::to_json,
    );
}

/// The file `config/delayOffset.json`.
pub fn delay_offsets(json: &[u8]) {
    let Ok(file) = wire::json::from_slice::<DelayFile>(json) else {
        return;
    };
    let written = file.to_json();
    let again = wire::json::from_slice::<DelayFile>(&written);
    let again = again.map(|file| file.to_json());
    assert_eq!(
        again.ok().as_deref(),
        Some(&*written),
        "{}",
        shown(&written)
    );
}

/// The file `config/gantry.json`.
pub fn settings(json: &[u8]) {
    let restored = |json: &[u8]| {
        let live = LiveSettings::new(&Config::default(), Pinned::default());
        live.restore(json);
        live.to_json(&[])
    };
    let written = restored(json);
    assert_eq!(shown(&restored(&written)), shown(&written));
}

/// The file `config/peers.json`.
pub fn peers(json: &[u8]) {
    if let Ok(peers) = peer_config::read_file(json) {
        let again = peer_config::read_file(&peer_config::file_text(&peers));
        assert_eq!(again.ok(), Some(peers));
    }
}

/// The file `config/carry.json`.
pub fn carried(json: &[u8]) {
    if let Ok(state) = serde_json::from_slice::<carry::State>(json) {
        let written = serde_json::to_vec(&state).unwrap_or_default();
        assert_eq!(
            serde_json::from_slice::<carry::State>(&written).ok(),
            Some(state)
        );
    }
}

/// An entry of another broker's tables.
pub fn adopted(json: &[u8]) {
    if let Ok(entry) = wire::json::from_slice::<ConfigEntry>(json) {
        taken::<TopicConfig>(&entry);
        taken::<GroupConfig>(&entry);
    }
}

fn taken<T: DeserializeOwned + Serialize + Entry>(entry: &ConfigEntry) {
    if let Ok(config) = adopt::parse::<T>(entry) {
        let again = ConfigEntry {
            config: serde_json::to_value(&config).unwrap_or_default(),
            ..entry.clone()
        };
        assert_eq!(adopt::parse::<T>(&again).ok(), Some(config));
    }
}

/// Bodies of requests that this crate alone reads.
pub fn request_body(bytes: &[u8]) {
    crate::handlers::fuzzing::read_body(bytes);
}

/// Properties that the broker gives to messages, and fields of requests.
pub fn texts(text: &str) {
    if let Some(end) = LeaseEnd::parse(text) {
        assert_eq!(LeaseEnd::parse(&end.encode()), Some(end));
    }
    if let Some((topic, queue_id, offset)) = carry::parse_mark(text) {
        let again = carry::mark(topic, queue_id, offset);
        assert_eq!(carry::parse_mark(&again), Some((topic, queue_id, offset)));
    }
    let _parsed = (
        delay::parse_from(text),
        delay::parse_due(text),
        Start::parse(text),
    );
    if let Some(kind) = Kind::parse(text) {
        assert_eq!(kind.as_str(), text);
    }
    drop(Filter::parse(None, Some(text)));
}
