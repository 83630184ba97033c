//! Fields of a send that are part of the API but not built: a wrong value is refused as such, a right one with 501.

use crate::error::{ApiError, Code};
use crate::json::Object;
use crate::params::{duration_in, format_duration, parse_duration, parse_time};

/// Largest delay of a message, ms: 30 d.
const DELAY_MAX_MS: u64 = 30 * 86_400_000;
/// Priorities of a message.
const PRIORITIES: std::ops::RangeInclusive<i64> = 0..=9;
/// An idempotency key, bytes.
const KEY_MAX: usize = 255;

/// Refuses the fields `delay`, `deliverAt`, `ttl`, `priority` and `idempotencyKey` of a message object.
///
/// # Errors
/// The field's own code where its value is wrong, else 501.
pub(crate) fn refuse_fields(object: &Object<'_>) -> Result<(), ApiError> {
    if object.get("delay").is_some() && object.get("deliverAt").is_some() {
        return Err(ApiError::field(
            Code::InvalidField,
            object.pointer("deliverAt"),
            "either delay or deliverAt",
        ));
    }
    for (name, code) in [
        ("delay", Code::InvalidDuration),
        ("deliverAt", Code::InvalidTime),
        ("ttl", Code::InvalidDuration),
        ("idempotencyKey", Code::IdempotencyKeyInvalid),
    ] {
        if let Some(text) = object.string(name, code)? {
            return Err(refusal(name, &text, &object.pointer(name)));
        }
    }
    match object.integer("priority", PRIORITIES, Code::InvalidField)? {
        None => Ok(()),
        Some(_) => Err(not_built("priority", &object.pointer("priority"))),
    }
}

/// What is wrong with the value of such a field or header, or that it is not built. `field` is its name in JSON.
pub(crate) fn refusal(field: &str, text: &str, pointer: &str) -> ApiError {
    let wrong = match field {
        "delay" => {
            let out_of_range = Code::DeliverAtOutOfRange;
            duration_in(text, field, pointer, 0..=DELAY_MAX_MS, out_of_range)
                .err()
                .map(|error| error.with("max", format_duration(DELAY_MAX_MS)))
        }
        "ttl" => parse_duration(text).is_none().then(|| {
            let detail = "ttl must be a duration such as 1500ms, 30s, 5m, 12h or 3d";
            ApiError::field(Code::InvalidDuration, pointer, detail)
        }),
        "deliverAt" => parse_time(text).is_none().then(|| {
            let detail = "deliverAt must be a time such as 2026-11-29T16:30:21Z";
            ApiError::field(Code::InvalidTime, pointer, detail)
        }),
        "priority" => {
            let good = text.parse().is_ok_and(|n: i64| PRIORITIES.contains(&n));
            let detail = "priority must be a whole number between 0 and 9";
            (!good).then(|| ApiError::field(Code::InvalidField, pointer, detail))
        }
        _ => {
            let good = (1..=KEY_MAX).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
            let detail = "an idempotency key has 1 to 255 visible ASCII characters";
            (!good).then(|| ApiError::field(Code::IdempotencyKeyInvalid, pointer, detail))
        }
    };
    wrong.unwrap_or_else(|| not_built(field, pointer))
}

fn not_built(field: &str, pointer: &str) -> ApiError {
    let detail = format!("{field} is part of the API but not built yet; leave it out");
    ApiError::field(Code::NotImplemented, pointer, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::document;

    #[test]
    fn a_wrong_value_is_told_before_what_is_not_built() {
        for (text, code) in [
            (r#"{"delay":5}"#, "invalid_duration"),
            (r#"{"delay":"5"}"#, "invalid_duration"),
            (r#"{"delay":"31d"}"#, "deliver_at_out_of_range"),
            (r#"{"delay":"30d"}"#, "not_implemented"),
            (r#"{"deliverAt":1}"#, "invalid_time"),
            (r#"{"deliverAt":"tomorrow"}"#, "invalid_time"),
            (
                r#"{"deliverAt":"2026-12-01T09:00:00+01:00"}"#,
                "not_implemented",
            ),
            (
                r#"{"delay":"1s","deliverAt":"2026-12-01T09:00:00Z"}"#,
                "invalid_field",
            ),
            (r#"{"ttl":7}"#, "invalid_duration"),
            (r#"{"ttl":"7"}"#, "invalid_duration"),
            (r#"{"ttl":"1h"}"#, "not_implemented"),
            (r#"{"priority":10}"#, "invalid_field"),
            (r#"{"priority":"4"}"#, "invalid_field"),
            (r#"{"priority":4}"#, "not_implemented"),
            (r#"{"idempotencyKey":""}"#, "idempotency_key_invalid"),
            (r#"{"idempotencyKey":1}"#, "idempotency_key_invalid"),
            (r#"{"idempotencyKey":"k"}"#, "not_implemented"),
        ] {
            let raw = document(text.as_bytes()).unwrap();
            let names = ["delay", "deliverAt", "ttl", "priority", "idempotencyKey"];
            let object = Object::open(raw, "", &names).unwrap();
            let error = refuse_fields(&object).unwrap_err();
            assert_eq!(error.code().as_str(), code, "{text}");
        }
        let none = document(br#"{"delay":null}"#).unwrap();
        assert!(refuse_fields(&Object::open(none, "", &["delay"]).unwrap()).is_ok());
    }
}
