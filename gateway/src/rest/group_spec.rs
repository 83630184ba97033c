//! What a group document asks for: strictly read into the specification brokers take.

use super::labels;
use super::receive::INVISIBLE_MS;
use crate::error::{ApiError, Code};
use crate::json::{Object, Raw};
use crate::params::{duration_in, parse_time};
use crate::upstream::default_group;
use wire::body::gantry::{Backoff, GroupSpec};

const ATTEMPTS: std::ops::RangeInclusive<i64> = 1..=100;
const IN_FLIGHT: std::ops::RangeInclusive<i64> = 1..=200_000;
const DELAYS_MAX: usize = 100;
const DELAY_MS: std::ops::RangeInclusive<u64> = 0..=30 * 86_400_000;
/// 1 h to 3650 d, the longest a broker keeps its log.
const RETENTION_MS: std::ops::RangeInclusive<u64> = 3_600_000..=3_650 * 86_400_000;

/// Fields of a group document; the last six are read-only.
const FIELDS: [&str; 16] = [
    "ordered",
    "invisibleFor",
    "maxInFlight",
    "initialPosition",
    "retry",
    "deadLetter",
    "onExhausted",
    "paused",
    "description",
    "labels",
    "name",
    "etag",
    "subscriptions",
    "stats",
    "blockedKeys",
    "pending",
];
/// The specification a body makes of `base`. With `merge`, absent fields keep what `base` says and null resets.
pub(super) fn spec_of(
    raw: Raw<'_>,
    group: &str,
    base: &GroupSpec,
    merge: bool,
) -> Result<GroupSpec, ApiError> {
    let object = Object::open(raw, "", &FIELDS)?;
    let fresh = default_group();
    let mut spec = base.clone();
    let reset =
        |name: &str| merge && object.get_or_null(name).is_some() && object.get(name).is_none();
    if object
        .string("name", Code::InvalidField)?
        .is_some_and(|n| n != group)
    {
        return Err(ApiError::field(
            Code::InvalidField,
            "/name",
            "the name stands in the path and cannot be changed",
        ));
    }
    if object.boolean("ordered")?.unwrap_or(false) {
        let detail = "ordered groups are part of the API but not built yet; leave ordered out";
        return Err(ApiError::field(Code::NotImplemented, "/ordered", detail));
    }
    if let Some(text) = object.string("invisibleFor", Code::InvalidDuration)? {
        spec.invisible_ms = duration_in(
            &text,
            "invisibleFor",
            "/invisibleFor",
            INVISIBLE_MS,
            Code::InvalidInvisibleFor,
        )?;
    } else if reset("invisibleFor") {
        spec.invisible_ms = fresh.invisible_ms;
    }
    if let Some(n) = object.integer("maxInFlight", IN_FLIGHT, Code::InvalidField)? {
        spec.max_in_flight = u32::try_from(n).unwrap_or(u32::MAX);
    } else if reset("maxInFlight") {
        spec.max_in_flight = fresh.max_in_flight;
    }
    if let Some(text) = object.string("initialPosition", Code::InvalidTime)? {
        spec.initial_position = position(&text, "/initialPosition")?;
    } else if reset("initialPosition") {
        spec.initial_position.clone_from(&fresh.initial_position);
    }
    if let Some(raw) = object.get("retry") {
        retry(raw, &mut spec, merge)?;
    } else if reset("retry") {
        (spec.max_attempts, spec.backoff) = (fresh.max_attempts, fresh.backoff.clone());
    }
    if let Some(raw) = object.get("deadLetter") {
        dead_letter(raw, &mut spec, merge)?;
    } else if reset("deadLetter") {
        (spec.dead_letter_enabled, spec.dead_letter_retention_ms) =
            (fresh.dead_letter_enabled, fresh.dead_letter_retention_ms);
    }
    match object.string("onExhausted", Code::InvalidField)?.as_deref() {
        None | Some("dlq") => {}
        Some("block") => {
            return Err(ApiError::field(
                Code::NotImplemented,
                "/onExhausted",
                "block belongs to ordered groups, which are not built yet; use dlq",
            ));
        }
        Some(_) => {
            return Err(ApiError::field(
                Code::InvalidField,
                "/onExhausted",
                "onExhausted is dlq or block",
            ));
        }
    }
    if let Some(paused) = object.boolean("paused")? {
        spec.paused = paused;
    } else if reset("paused") {
        spec.paused = fresh.paused;
    }
    if let Some(text) = object.string("description", Code::InvalidField)? {
        spec.description = labels::check_text(&text, "/description")?;
    } else if reset("description") {
        spec.description.clear();
    }
    if let Some(raw) = object.get("labels") {
        for (name, value) in labels::read(raw, "/labels")? {
            match value {
                Some(value) => drop(spec.labels.insert(name, value)),
                None => drop(spec.labels.remove(&name)),
            }
        }
        if spec.labels.len() > labels::LABELS_MAX {
            return Err(labels::too_many("/labels"));
        }
    } else if reset("labels") {
        spec.labels.clear();
    }
    Ok(spec)
}

/// `earliest`, `latest` or a time, as brokers take it.
pub(super) fn position(text: &str, pointer: &str) -> Result<String, ApiError> {
    if matches!(text, "earliest" | "latest") {
        return Ok(text.to_owned());
    }
    let at = parse_time(text).filter(|ms| *ms >= 0).ok_or_else(|| {
        ApiError::field(
            Code::InvalidTime,
            pointer,
            "a position is earliest, latest or a time such as 2026-11-29T16:30:21Z",
        )
    })?;
    Ok(at.to_string())
}

fn retry(raw: Raw<'_>, spec: &mut GroupSpec, merge: bool) -> Result<(), ApiError> {
    let object = Object::open(raw, "/retry", &["maxAttempts", "backoff"])?;
    if let Some(n) = object.integer("maxAttempts", ATTEMPTS, Code::InvalidField)? {
        spec.max_attempts = u32::try_from(n).unwrap_or(100);
    } else if merge && object.get_or_null("maxAttempts").is_some() {
        spec.max_attempts = default_group().max_attempts;
    }
    if let Some(raw) = object.get("backoff") {
        spec.backoff = backoff(raw)?;
    }
    Ok(())
}

fn backoff(raw: Raw<'_>) -> Result<Backoff, ApiError> {
    let object = Object::open(
        raw,
        "/retry/backoff",
        &["kind", "delays", "initial", "max", "multiplier", "jitter"],
    )?;
    let kind = object.string("kind", Code::InvalidField)?;
    let foreign = |names: &[&str]| {
        names.iter().find(|n| object.get(n).is_some()).map(|n| {
            ApiError::field(
                Code::InvalidField,
                object.pointer(n),
                format!("{n} does not belong to this kind of backoff"),
            )
        })
    };
    match kind.as_deref() {
        Some("list") => {
            if let Some(error) = foreign(&["initial", "max", "multiplier", "jitter"]) {
                return Err(error);
            }
            let mut delays_ms = Vec::new();
            for (i, raw) in object
                .array("delays", Code::InvalidField)?
                .into_iter()
                .flatten()
                .enumerate()
            {
                let at = object.pointer(&format!("delays/{i}"));
                if i == DELAYS_MAX {
                    return Err(ApiError::field(
                        Code::InvalidField,
                        at,
                        format!("at most {DELAYS_MAX} delays"),
                    )
                    .with("limit", DELAYS_MAX));
                }
                let text = raw.as_string()?.unwrap_or_default();
                delays_ms.push(duration_in(
                    &text,
                    "a delay",
                    &at,
                    DELAY_MS,
                    Code::InvalidDuration,
                )?);
            }
            if delays_ms.is_empty() {
                return Err(ApiError::field(
                    Code::InvalidField,
                    object.pointer("delays"),
                    "a list has at least one delay, such as [\"1s\",\"10s\"]",
                ));
            }
            Ok(Backoff::List { delays_ms })
        }
        Some("exponential") => {
            if let Some(error) = foreign(&["delays"]) {
                return Err(error);
            }
            let duration = |name: &str| {
                let text = object
                    .string(name, Code::InvalidDuration)?
                    .unwrap_or_default();
                duration_in(
                    &text,
                    name,
                    &object.pointer(name),
                    DELAY_MS,
                    Code::InvalidDuration,
                )
            };
            let number =
                |name: &str, range: std::ops::RangeInclusive<f64>, default: f64| match object
                    .get(name)
                {
                    None => Ok(default),
                    Some(raw) => raw
                        .as_number()
                        .filter(|n| range.contains(n))
                        .ok_or_else(|| {
                            let detail = format!(
                                "{name} is a number between {} and {}",
                                range.start(),
                                range.end()
                            );
                            ApiError::field(Code::InvalidField, object.pointer(name), detail)
                        }),
                };
            let (initial_ms, max_ms) = (duration("initial")?, duration("max")?);
            if max_ms < initial_ms {
                return Err(ApiError::field(
                    Code::InvalidField,
                    object.pointer("max"),
                    "max is not less than initial",
                ));
            }
            Ok(Backoff::Exponential {
                initial_ms,
                max_ms,
                multiplier: number("multiplier", 1.0..=100.0, 2.0)?,
                jitter: number("jitter", 0.0..=0.5, 0.0)?,
            })
        }
        _ => Err(ApiError::field(
            Code::InvalidField,
            object.pointer("kind"),
            "kind is list or exponential",
        )),
    }
}

fn dead_letter(raw: Raw<'_>, spec: &mut GroupSpec, merge: bool) -> Result<(), ApiError> {
    let object = Object::open(raw, "/deadLetter", &["enabled", "retention"])?;
    let reset = |name: &str| merge && object.get_or_null(name).is_some();
    if let Some(enabled) = object.boolean("enabled")? {
        spec.dead_letter_enabled = enabled;
    } else if reset("enabled") {
        spec.dead_letter_enabled = default_group().dead_letter_enabled;
    }
    if let Some(text) = object.string("retention", Code::InvalidDuration)? {
        spec.dead_letter_retention_ms = duration_in(
            &text,
            "retention",
            "/deadLetter/retention",
            RETENTION_MS,
            Code::InvalidField,
        )?;
    } else if reset("retention") {
        spec.dead_letter_retention_ms = default_group().dead_letter_retention_ms;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::group_document::shown_position;
    use super::*;
    use crate::json::document as parse;

    fn spec(text: &str) -> Result<GroupSpec, ApiError> {
        spec_of(parse(text.as_bytes())?, "billing", &default_group(), false)
    }

    #[test]
    fn the_documented_example_is_taken() {
        let example = r#"{"ordered":false,"invisibleFor":"45s","maxInFlight":100,"initialPosition":"2026-11-29T16:30:21.123Z",
            "retry":{"maxAttempts":5,"backoff":{"kind":"exponential","initial":"1s","max":"1m","multiplier":2,"jitter":0.1}},
            "deadLetter":{"enabled":true,"retention":"30d"},"onExhausted":"dlq","paused":false,"description":"bills","labels":{"team":"a"}}"#;
        let spec = spec(example).unwrap();
        assert_eq!(
            (spec.description.as_str(), spec.labels["team"].as_str()),
            ("bills", "a")
        );
        assert_eq!(
            (spec.invisible_ms, spec.max_in_flight, spec.max_attempts),
            (45_000, 100, 5)
        );
        assert_eq!(spec.dead_letter_retention_ms, 30 * 86_400_000);
        assert_eq!(spec.initial_position, "1795969821123");
        assert_eq!(
            shown_position(&spec.initial_position),
            "2026-11-29T16:30:21.123Z"
        );
    }

    #[test]
    fn faults_name_their_field_and_code() {
        for (text, code, pointer) in [
            (r#"{"ordered":true}"#, Code::NotImplemented, "/ordered"),
            (
                r#"{"onExhausted":"block"}"#,
                Code::NotImplemented,
                "/onExhausted",
            ),
            (r#"{"labels":{"a":1}}"#, Code::InvalidField, "/labels/a"),
            (
                r#"{"labels":{"a/b":"c"}}"#,
                Code::InvalidField,
                "/labels/a/b",
            ),
            (
                r#"{"description":"a=b"}"#,
                Code::InvalidField,
                "/description",
            ),
            (
                r#"{"deadLetter":{"retention":"59m"}}"#,
                Code::InvalidField,
                "/deadLetter/retention",
            ),
            (
                r#"{"deadLetter":{"retention":"3651d"}}"#,
                Code::InvalidField,
                "/deadLetter/retention",
            ),
            (
                r#"{"invisibleFor":30}"#,
                Code::InvalidDuration,
                "/invisibleFor",
            ),
            (
                r#"{"invisibleFor":"1ms"}"#,
                Code::InvalidInvisibleFor,
                "/invisibleFor",
            ),
            (
                r#"{"initialPosition":"yesterday"}"#,
                Code::InvalidTime,
                "/initialPosition",
            ),
            (
                r#"{"retry":{"maxAttempts":0}}"#,
                Code::InvalidField,
                "/retry/maxAttempts",
            ),
            (
                r#"{"retry":{"maxAttempt":1}}"#,
                Code::UnknownField,
                "/retry/maxAttempt",
            ),
            (
                r#"{"retry":{"backoff":{"kind":"list","delays":[]}}}"#,
                Code::InvalidField,
                "/retry/backoff/delays",
            ),
            (
                r#"{"retry":{"backoff":{"kind":"list","delays":["x"]}}}"#,
                Code::InvalidDuration,
                "/retry/backoff/delays/0",
            ),
            (
                r#"{"maxInFlight":200001}"#,
                Code::InvalidField,
                "/maxInFlight",
            ),
        ] {
            let error = spec(text).unwrap_err();
            assert_eq!(
                (error.code(), error.fault().errors[0].pointer.as_str()),
                (code, pointer),
                "{text}"
            );
        }
    }

    #[test]
    fn a_merge_patch_keeps_what_it_does_not_name_and_null_resets() {
        let base = GroupSpec {
            invisible_ms: 1_000,
            max_attempts: 3,
            paused: true,
            dead_letter_retention_ms: 2 * 86_400_000,
            description: "bills".to_owned(),
            labels: [("team", "a"), ("tier", "1")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..default_group()
        };
        let patch =
            |text: &str| spec_of(parse(text.as_bytes()).unwrap(), "billing", &base, true).unwrap();
        assert_eq!(patch("{}"), base);
        assert_eq!(
            patch(r#"{"invisibleFor":null}"#).invisible_ms,
            default_group().invisible_ms
        );
        assert_eq!(patch(r#"{"retry":null}"#).max_attempts, 16);
        assert!(!patch(r#"{"paused":null}"#).paused);
        let kept = |text: &str| patch(text).dead_letter_retention_ms / 3_600_000;
        assert_eq!(kept(r#"{"deadLetter":{"retention":"1h"}}"#), 1);
        assert_eq!(kept(r#"{"deadLetter":{"enabled":false}}"#), 48);
        assert_eq!(kept(r#"{"deadLetter":{"retention":null}}"#), 14 * 24);
        assert_eq!(patch(r#"{"description":null}"#).description, "");
        assert!(patch(r#"{"labels":null}"#).labels.is_empty());
        let names = |spec: GroupSpec| spec.labels.into_keys().collect::<Vec<_>>();
        let merged = patch(r#"{"labels":{"team":null,"region":"eu"}}"#);
        assert_eq!(names(merged), ["region", "tier"]);
    }
}
