//! Who is in a group.

use super::answer;
use crate::error::ApiError;
use crate::http::Call;
use crate::page::limit;
use crate::render::Members;
use crate::state::AppState;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use std::time::Duration;
use wire::body::members::GroupMember;

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/ns/{ns}/groups/{group}/members", get(list))
}

/// `GET …/groups/{group}/members`
#[utoipa::path(get, path = "/v1/ns/{ns}/groups/{group}/members", operation_id = "listMembers", tag = "groups", summary = "See who is in a group", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("limit" = Option<u32>, Query, description = "1–500, default 50"), ("pageToken" = Option<String>, Query, description = "Of the page before; valid for an hour")), responses((status = 200, description = "A page of the members that are alive, in order of their names", body = openapi::groups::MemberList)))]
pub(crate) async fn list(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    let group = call.group()?;
    call.no_body()?;
    let query = call.query(&["limit", "pageToken"])?;
    let limit = limit(&query)?;
    let key = format!("members/{group}");
    let after = match query.get("pageToken") {
        Some(token) => state.pages.decode(&key, token, state.now_ms())?,
        None => String::new(),
    };
    let deadline = call.deadline(Duration::ZERO);
    state.upstream.get_group(group, deadline).await?;
    let page = state
        .upstream
        .members(group, &after, limit, deadline)
        .await?;
    let mut out = Vec::with_capacity(128 + page.members.len() * 300);
    let mut object = Members::open(&mut out);
    let items = object.member("items");
    items.push(b'[');
    for (i, member) in page.members.iter().enumerate() {
        if i > 0 {
            items.push(b',');
        }
        show(items, member);
    }
    items.push(b']');
    let last = page.members.last().filter(|_| page.more);
    let token = last.map(|last| state.pages.encode(&key, &last.client, state.now_ms()));
    object.text_or_null("nextPageToken", token.as_deref());
    answer::partial(object.member("partial"), &page.partial);
    object.close();
    Ok(answer::json(StatusCode::OK, out))
}

fn show(out: &mut Vec<u8>, member: &GroupMember) {
    let mut object = Members::open(out);
    object.text("client", &member.client);
    // There are no keys while authentication is off.
    object.raw("keyId", b"null");
    object.text("kind", member.kind.as_str());
    object.text_or_null("transport", member.transport.map(|t| t.as_str()));
    object.text_or_null("gateway", member.gateway.as_deref());
    object.time_or_null("lastReceiveAt", member.last_receive_at_ms);
    let held = member.in_flight.map(|held| held.to_string());
    object.raw("inFlight", held.as_deref().unwrap_or("null").as_bytes());
    object.raw("ackRate", rate(member.acks).as_bytes());
    object.raw("errRate", rate(member.nacks).as_bytes());
    object.text_or_null("ip", member.ip.as_deref());
    object.text_or_null("language", member.language.as_deref());
    object.close();
}

/// What was counted in a minute, a second.
fn rate(counted: Option<u64>) -> String {
    counted.map_or_else(
        || "null".to_owned(),
        |counted| {
            let thousandths = counted.saturating_mul(1_000) / 60;
            format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_a_second_and_null_where_nothing_is_known() {
        assert_eq!(rate(None), "null");
        let shown = [0, 3, 60, 90_061].map(|counted| rate(Some(counted)));
        assert_eq!(shown, ["0.000", "0.050", "1.000", "1501.016"]);
    }
}
