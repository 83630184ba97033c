//! What a topic document asks for: strictly read, then applied to the topic that is there.

use super::labels;
use crate::error::{ApiError, Code};
use crate::json::{Object, Raw};
use crate::upstream::{BrokerTopic, queues_in_all};
use std::collections::BTreeMap;

const QUEUES: std::ops::RangeInclusive<i64> = 1..=1_024;
const QUEUES_DEFAULT: i32 = 8;
const TYPE: &str = "message.type";
pub(super) const DESCRIPTION: &str = "gantry.description";
pub(super) const LABEL: &str = "gantry.label.";

/// Fields of a topic document; the last five are read-only.
const FIELDS: [&str; 16] = [
    "type",
    "queues",
    "retention",
    "durability",
    "dedupWindow",
    "priorityLevels",
    "onExpire",
    "trace",
    "labels",
    "description",
    "schema",
    "name",
    "etag",
    "queueList",
    "pending",
    "partial",
];

/// What a body asks for: `None` = not mentioned, `Some(None)` = back to the default.
#[derive(Debug, Default)]
pub(super) struct Wish {
    kind: Option<Option<String>>,
    queues: Option<Option<i32>>,
    description: Option<Option<String>>,
    labels: Option<BTreeMap<String, Option<String>>>,
    labels_null: bool,
}

impl Wish {
    pub(super) fn read(raw: Raw<'_>, topic: &str) -> Result<Self, ApiError> {
        let object = Object::open(raw, "", &FIELDS)?;
        let mut wish = Self::default();
        let given = |name: &str| object.get_or_null(name).is_some();
        if given("type") {
            wish.kind = Some(
                object
                    .string("type", Code::InvalidField)?
                    .map(|t| check_type(&t, "/type"))
                    .transpose()?,
            );
        }
        if given("queues") {
            let number = object.integer("queues", QUEUES, Code::InvalidField)?;
            wish.queues = Some(number.and_then(|n| i32::try_from(n).ok()));
        }
        if given("description") {
            wish.description = Some(
                object
                    .string("description", Code::InvalidField)?
                    .map(|t| labels::check_text(&t, &object.pointer("description")))
                    .transpose()?,
            );
        }
        if let Some(raw) = object.get("labels") {
            wish.labels = Some(labels::read(raw, &object.pointer("labels"))?);
        } else if given("labels") {
            wish.labels_null = true;
        }
        if object
            .string("name", Code::InvalidField)?
            .is_some_and(|n| n != topic)
        {
            return Err(ApiError::field(
                Code::InvalidField,
                "/name",
                "the name stands in the path and cannot be changed",
            ));
        }
        not_built(&object)?;
        Ok(wish)
    }

    /// Queues and attributes of the topic this makes of what is there.
    pub(super) fn apply(
        &self,
        current: &[BrokerTopic],
        merge: bool,
    ) -> Result<(i32, BTreeMap<String, String>), ApiError> {
        let first = current.first().map(|t| &t.detail.spec);
        let had = queues_in_all(current);
        let old = first.map(|s| s.attributes.clone()).unwrap_or_default();
        let mut attributes: BTreeMap<String, String> = old
            .iter()
            .filter(|(k, _)| merge || !k.starts_with("gantry."))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let old_type = type_of(&old).to_owned();
        let kind = match &self.kind {
            Some(kind) => kind.clone().unwrap_or_else(|| "mixed".to_owned()),
            None if merge || first.is_some() => old_type.clone(),
            None => "mixed".to_owned(),
        };
        if first.is_some() && kind != old_type {
            let detail = format!(
                "the type of a topic ('{old_type}') cannot be changed; make a new topic and move its groups"
            );
            return Err(ApiError::field(Code::ImmutableField, "/type", detail));
        }
        if first.is_none() && !matches!(kind.as_str(), "mixed" | "normal") {
            let detail =
                format!("type '{kind}' is part of the API but not built yet; use mixed or normal");
            return Err(ApiError::field(Code::NotImplemented, "/type", detail));
        }
        if first.is_none() && kind != "mixed" {
            attributes.insert(TYPE.to_owned(), kind.to_uppercase());
        }
        let queues = match self.queues {
            Some(Some(n)) => n,
            Some(None) => QUEUES_DEFAULT.max(had),
            None if had > 0 => had,
            None => QUEUES_DEFAULT,
        };
        if queues < had {
            let detail =
                format!("the topic has {had} queues; fewer is part of the API but not built yet");
            return Err(ApiError::field(Code::NotImplemented, "/queues", detail));
        }
        match &self.description {
            Some(Some(text)) if !text.is_empty() => {
                drop(attributes.insert(DESCRIPTION.to_owned(), text.clone()))
            }
            Some(_) => drop(attributes.remove(DESCRIPTION)),
            None => {}
        }
        if self.labels_null {
            attributes.retain(|k, _| !k.starts_with(LABEL));
        }
        for (name, value) in self.labels.iter().flatten() {
            let key = format!("{LABEL}{name}");
            match value {
                Some(value) => drop(attributes.insert(key, value.clone())),
                None => drop(attributes.remove(&key)),
            }
        }
        if attributes.keys().filter(|k| k.starts_with(LABEL)).count() > labels::LABELS_MAX {
            return Err(labels::too_many("/labels"));
        }
        Ok((queues, attributes))
    }
}

/// A type by its name; `pointer` says where it was given.
pub(super) fn check_type(text: &str, pointer: &str) -> Result<String, ApiError> {
    match text {
        "mixed" | "normal" | "ordered" | "delayed" | "transactional" => Ok(text.to_owned()),
        _ => Err(ApiError::field(
            Code::InvalidField,
            pointer,
            "type is mixed, normal, ordered, delayed or transactional",
        )),
    }
}

/// 501 for parts of a topic that are not built, unless they say what is so anyway.
fn not_built(object: &Object<'_>) -> Result<(), ApiError> {
    let same = |name: &str, value: &str| object.get(name).is_none_or(|raw| raw.text() == value);
    let retention = match object.get("retention") {
        Some(raw) => {
            let inner = Object::open(raw, "/retention", &["time", "bytes"])?;
            inner.get("time").is_none() && inner.get("bytes").is_none()
        }
        None => true,
    };
    let checks = [
        ("retention", retention),
        ("durability", object.get("durability").is_none()),
        ("dedupWindow", same("dedupWindow", "\"0s\"")),
        ("priorityLevels", same("priorityLevels", "1")),
        ("onExpire", same("onExpire", "\"drop\"")),
        ("trace", same("trace", "\"off\"")),
        ("schema", object.get("schema").is_none()),
    ];
    match checks.iter().find(|(_, fine)| !fine) {
        Some((name, _)) => {
            let detail = format!("{name} is part of the API but not built yet; leave it out");
            Err(ApiError::field(
                Code::NotImplemented,
                object.pointer(name),
                detail,
            ))
        }
        None => Ok(()),
    }
}

pub(super) fn type_of(attributes: &BTreeMap<String, String>) -> &'static str {
    match attributes
        .get(TYPE)
        .map(|t| t.to_ascii_uppercase())
        .as_deref()
    {
        Some("NORMAL") => "normal",
        Some("FIFO" | "ORDERED") => "ordered",
        Some("DELAY" | "DELAYED") => "delayed",
        Some("TRANSACTION" | "TRANSACTIONAL") => "transactional",
        _ => "mixed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::document as parse;

    fn wish(text: &str) -> Result<Wish, ApiError> {
        Wish::read(parse(text.as_bytes())?, "orders")
    }

    #[test]
    fn what_is_not_built_is_501_with_its_field() {
        for (text, pointer) in [
            (r#"{"type":"ordered"}"#, "/type"),
            (r#"{"retention":{"time":"3d"}}"#, "/retention"),
            (r#"{"durability":"flushed"}"#, "/durability"),
            (r#"{"priorityLevels":3}"#, "/priorityLevels"),
            (r#"{"schema":{}}"#, "/schema"),
        ] {
            let error = wish(text)
                .and_then(|wish| wish.apply(&[], false))
                .unwrap_err();
            assert_eq!(
                (error.code(), error.fault().errors[0].pointer.as_str()),
                (Code::NotImplemented, pointer),
                "{text}"
            );
        }
        assert!(wish(r#"{"type":"mixed","queues":4,"retention":{"time":null},"priorityLevels":1,"etag":"\"1\"","name":"orders"}"#).is_ok());
        assert_eq!(
            wish(r#"{"queues":0}"#).unwrap_err().code(),
            Code::InvalidField
        );
        assert_eq!(
            wish(r#"{"queues":"8"}"#).unwrap_err().code(),
            Code::InvalidField
        );
        assert_eq!(
            wish(r#"{"name":"other"}"#).unwrap_err().code(),
            Code::InvalidField
        );
    }

    #[test]
    fn a_type_is_for_ever() {
        let made = wish(r#"{"type":"normal","queues":2}"#)
            .unwrap()
            .apply(&[], false)
            .unwrap();
        assert_eq!(
            made,
            (2, BTreeMap::from([(TYPE.to_owned(), "NORMAL".to_owned())]))
        );
        let detail = wire::body::gantry::TopicDetail {
            spec: wire::body::gantry::TopicSpec {
                read_queues: 2,
                write_queues: 2,
                attributes: made.1,
                ..Default::default()
            },
            ..Default::default()
        };
        let current = [BrokerTopic {
            broker: "a".into(),
            detail,
        }];
        assert_eq!(
            wish(r#"{"type":"mixed"}"#)
                .unwrap()
                .apply(&current, false)
                .unwrap_err()
                .code(),
            Code::ImmutableField
        );
        assert_eq!(
            wish(r#"{"queues":4}"#)
                .unwrap()
                .apply(&current, true)
                .unwrap()
                .0,
            4
        );
        assert_eq!(
            wish(r#"{"queues":1}"#)
                .unwrap()
                .apply(&current, true)
                .unwrap_err()
                .code(),
            Code::NotImplemented
        );
        let labelled = wish(r#"{"labels":{"team":"a"},"description":"d"}"#)
            .unwrap()
            .apply(&current, true)
            .unwrap()
            .1;
        assert_eq!(
            labelled.get("gantry.label.team").map(String::as_str),
            Some("a")
        );
    }
}
