//! Peeking: what a group would be given next. Nothing is leased or counted.

use super::answer;
use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::memory::Whose;
use crate::page::limit;
use crate::params::check_topic;
use crate::render::{BodyFormat, Members, peeked};
use crate::state::AppState;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use std::time::Duration;

/// Bytes of bodies in one answer; one message is given in any case.
const BYTES_MAX: usize = 4 << 20;

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/ns/{ns}/groups/{group}/peek", get(peek))
}

/// `GET …/groups/{group}/peek`
#[utoipa::path(get, path = "/v1/ns/{ns}/groups/{group}/peek", operation_id = "peek", tag = "groups", summary = "See what a group would be given next", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("topic" = Option<String>, Query, description = "One topic; default all subscribed"), ("limit" = Option<u32>, Query, description = "1–500, default 50"), ("bodyFormat" = Option<String>, Query, description = "`auto` (default), `base64`, `text`, `none`")), responses((status = 200, description = "The next messages, waiting retries that are due included", body = openapi::messages::PeekAnswer)))]
pub(crate) async fn peek(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    let group = call.group()?;
    call.no_body()?;
    let query = call.query(&["topic", "limit", "bodyFormat"])?;
    if let Some(topic) = query.get("topic") {
        check_topic(topic)?;
    }
    let format = match query.get("bodyFormat") {
        None => BodyFormat::Auto,
        Some(text) => BodyFormat::parse(text).ok_or_else(|| {
            let detail = "bodyFormat is auto, base64, text or none";
            ApiError::field(Code::InvalidField, "?bodyFormat", detail)
        })?,
    };
    let (limit, deadline) = (limit(&query)?, call.deadline(Duration::ZERO));
    let upstream = &state.upstream;
    let held = answer::room(&state, Whose::Group(group), BYTES_MAX, deadline).await?;
    let page = upstream
        .peek(group, query.get("topic"), limit, held.bytes(), deadline)
        .await?;
    let mut out = Vec::with_capacity(128 + page.messages.len() * 700);
    let mut object = Members::open(&mut out);
    let items = object.member("items");
    items.push(b'[');
    for (i, message) in page.messages.iter().enumerate() {
        if i > 0 {
            items.push(b',');
        }
        peeked(items, message, format);
    }
    items.push(b']');
    object.boolean("more", page.more);
    object.boolean("paused", page.paused);
    answer::partial(object.member("partial"), &page.partial);
    object.close();
    Ok(answer::counted(out, held))
}
