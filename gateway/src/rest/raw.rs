//! `/raw`: the body is the payload, metadata travels in headers.

use super::messages::{finish, mode, writable};
use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::later;
use crate::message::{
    PropertyList, check_body, check_content_type, check_durability, check_key, check_ordering_key,
    check_tag, is_traceparent,
};
use crate::params::percent_decode;
use crate::state::AppState;
use crate::upstream::Draft;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;

/// `POST …/topics/{topic}/raw`
#[utoipa::path(post, path = "/v1/ns/{ns}/topics/{topic}/raw", operation_id = "sendRaw", tag = "messages", summary = "Send bytes; metadata in headers", params(("ns" = String, Path, description = "Namespace; `default`"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$"), ("mode" = Option<String>, Query, description = "`sync` (default) or `oneway`"), ("Mq-Tag" = Option<String>, Header, description = "Tag, percent-encoded"), ("Mq-Keys" = Option<String>, Header, description = "Keys, percent-encoded, joined by commas"), ("Mq-Ordering-Key" = Option<String>, Header, description = "Ordering key, percent-encoded"), ("Mq-Durability" = Option<String>, Header, description = "`buffered` or `flushed`")), request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The payload, any Content-Type; `Mq-Prop-<name>` headers are properties"), responses((status = 201, description = "Stored with the durability named", body = openapi::messages::SendReceipt, headers(("Location" = String, description = "The message"))), (status = 202, description = "One-way: accepted", body = openapi::messages::Accepted)))]
pub(crate) async fn send_raw(
    State(state): State<AppState>,
    call: Call,
) -> Result<Response, ApiError> {
    let topic = writable(&call)?;
    let mode = mode(&call)?;
    call.no_idempotency_key()?;
    check_body(call.body.len(), state.message_max())?;
    let draft = draft(call.headers(), &call.body)?;
    finish(&state, &call, topic, mode, &draft).await
}

/// The message of a body and the headers about it.
pub(super) fn draft(headers: &HeaderMap, body: &Bytes) -> Result<Draft, ApiError> {
    let mut draft = Draft {
        body: body.clone(),
        ..Draft::default()
    };
    draft.content_type = match headers.get("content-type") {
        Some(value) => {
            check_content_type(value.to_str().unwrap_or_default(), "header:Content-Type")?
        }
        None => "application/octet-stream".to_owned(),
    };
    let mut properties = PropertyList::default();
    for (name, value) in headers {
        let name = name.as_str();
        if name == "ce-specversion" {
            return Err(ApiError::not_implemented(
                "CloudEvents are part of the API but not built yet; leave the ce- headers out",
            ));
        }
        let Some(field) = name.strip_prefix("mq-") else {
            continue;
        };
        let pointer = format!("header:{name}");
        let value = value.as_bytes();
        match field {
            "tag" => {
                draft.tag = Some(check_tag(
                    &text(value, &pointer, Code::InvalidTag)?,
                    &pointer,
                )?)
            }
            "keys" => {
                for (i, key) in value.split(|b| *b == b',').enumerate() {
                    draft.keys.push(check_key(
                        &text(key.trim_ascii(), &pointer, Code::InvalidKey)?,
                        i,
                        &pointer,
                    )?);
                }
            }
            "ordering-key" => {
                draft.ordering_key = Some(check_ordering_key(
                    &text(value, &pointer, Code::InvalidField)?,
                    &pointer,
                )?)
            }
            "durability" => {
                draft.durability = Some(check_durability(
                    &text(value, &pointer, Code::InvalidField)?,
                    &pointer,
                )?)
            }
            "delay" | "deliver-at" | "ttl" | "priority" => {
                let field = if field == "deliver-at" {
                    "deliverAt"
                } else {
                    field
                };
                let text = text(value, &pointer, Code::InvalidField)?;
                return Err(later::refusal(field, &text, &pointer));
            }
            "timeout" | "client" | "tenant" => {}
            _ => match field.strip_prefix("prop-") {
                Some(property) => {
                    if properties.list.iter().any(|(n, _)| n == property) {
                        let detail = format!(
                            "property '{property}' is given twice; header names do not tell upper from lower case"
                        );
                        return Err(ApiError::field(Code::InvalidField, pointer, detail));
                    }
                    properties.add(
                        property,
                        &text(value, &pointer, Code::InvalidField)?,
                        &pointer,
                    )?;
                }
                None => {
                    let detail = "known: Mq-Tag, Mq-Keys, Mq-Ordering-Key, Mq-Durability, Mq-Prop-<name>, Mq-Timeout, Mq-Client";
                    return Err(ApiError::field(Code::UnknownField, pointer, detail));
                }
            },
        }
    }
    draft.properties = properties.list;
    draft.traceparent = headers
        .get("traceparent")
        .and_then(|value| value.to_str().ok())
        .filter(|t| is_traceparent(t))
        .map(str::to_owned);
    Ok(draft)
}

fn text(value: &[u8], pointer: &str, code: Code) -> Result<String, ApiError> {
    percent_decode(value)
        .ok_or_else(|| ApiError::field(code, pointer, "the value must be percent-encoded UTF-8"))
}
