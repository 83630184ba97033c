//! The readers of request bodies, for the fuzz targets.

use super::settle::{self, Kind};
use super::{group_spec, messages, raw, subscriptions, topic_spec};
use crate::json::{Object, Raw};
use crate::params::percent_encode;
use crate::upstream::Draft;
use crate::upstream::admin::default_group;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;

/// Reads one body: 1 topic, 2 group, 3 group as a patch, 4 subscription, 5 to 7 ack, nack, extend, 8 batch of messages,
/// whose bytes are in `source` and at most `body_max`; others none.
pub(crate) fn read_body(kind: u8, raw: Raw<'_>, source: &Bytes, body_max: usize) {
    let settle_kind = match kind {
        1 => return drop(topic_spec::Wish::read(raw, "topic")),
        2 | 3 => {
            return drop(group_spec::spec_of(
                raw,
                "group",
                &default_group(),
                kind == 3,
            ));
        }
        4 => return drop(subscriptions::spec(raw, "topic")),
        5 => Kind::Ack,
        6 => Kind::Nack,
        7 => Kind::Extend,
        8 => return drop(messages::read_batch(raw, source, body_max, 256)),
        _ => return,
    };
    if let Ok(object) = Object::open(raw, "", &settle_kind.with(&["receipts", "items"])) {
        drop(settle::asked_of(&object, settle_kind, 256));
    }
}

/// Headers of a send whose body is the payload, a `name:value` in each line. What is read is read the same once it is
/// written again.
pub(crate) fn read_headers(lines: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let (name, value) = line.split_at(colon);
        let value = HeaderValue::from_bytes(value[1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            headers.append(name, value);
        }
    }
    let body = Bytes::from_static(b"x");
    let Ok(draft) = raw::draft(&headers, &body) else {
        return;
    };
    let again = raw::draft(&written(&draft), &body);
    assert_eq!(
        again.as_ref().ok().map(said),
        Some(said(&draft)),
        "{again:?}"
    );
}

type Said<'a> = (
    &'a Option<String>,
    &'a [String],
    &'a Option<String>,
    &'a [(String, String)],
);

fn said(draft: &Draft) -> Said<'_> {
    (
        &draft.tag,
        &draft.keys,
        &draft.ordering_key,
        &draft.properties,
    )
}

/// The headers that say the same.
fn written(draft: &Draft) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: &str, text: &str| {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&percent_encode(text))) {
            headers.append(name, value);
        }
    };
    if let Some(tag) = &draft.tag {
        put("mq-tag", tag);
    }
    for key in &draft.keys {
        put("mq-keys", key);
    }
    if let Some(key) = &draft.ordering_key {
        put("mq-ordering-key", key);
    }
    for (name, value) in &draft.properties {
        put(&format!("mq-prop-{name}"), value);
    }
    headers
}
