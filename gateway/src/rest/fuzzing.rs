//! The readers of request bodies, for the fuzz targets.

use super::settle::{self, Kind};
use super::{group_spec, subscriptions, topic_spec};
use crate::json::{Object, Raw};
use crate::upstream::admin::default_group;

/// Reads one body: 1 topic, 2 group, 3 group as a patch, 4 subscription, 5 to 7 ack, nack, extend; others none.
pub(crate) fn read_body(kind: u8, raw: Raw<'_>) {
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
        _ => return,
    };
    if let Ok(object) = Object::open(raw, "", &settle_kind.with(&["receipts", "items"])) {
        drop(settle::asked_of(&object, settle_kind));
    }
}
