//! Who reads a topic, and how far they are.

use super::answer;
use super::group_document::Totals;
use super::topics::{existing, finish_list};
use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::page::limit;
use crate::render::Members;
use crate::state::AppState;
use crate::upstream::{Lag, Partial, is_of_topic, leave_out};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use futures_util::future::join_all;
use std::time::Duration;
use tokio::time::Instant;

/// Groups that are asked for at a time.
const AT_A_TIME: usize = 16;

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/ns/{ns}/topics/{topic}/groups", get(list))
}

/// `GET …/topics/{topic}/groups`
#[utoipa::path(get, path = "/v1/ns/{ns}/topics/{topic}/groups", operation_id = "listTopicGroups", tag = "topics", summary = "List the groups that subscribe a topic", description = "Groups of native clients keep their subscriptions in the clients and are not listed.", params(("ns" = String, Path, description = "Namespace; `default`"), ("topic" = String, Path, description = "Topic, ^[A-Za-z0-9][A-Za-z0-9_-]{0,89}$"), ("limit" = Option<u32>, Query, description = "1–500, default 50"), ("pageToken" = Option<String>, Query, description = "Of the page before; valid for an hour")), responses((status = 200, description = "A page", body = openapi::topics::TopicGroups)))]
pub(crate) async fn list(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    let topic = call.topic()?;
    let query = call.query(&["limit", "pageToken"])?;
    let limit = limit(&query)?;
    let key = format!("topics/{topic}/groups");
    let after = match query.get("pageToken") {
        Some(token) => Some(state.pages.decode(&key, token, state.now_ms())?),
        None => None,
    };
    let deadline = call.deadline(Duration::ZERO);
    existing(&state, topic, deadline).await?;
    let (mut names, partial) = subscribers(&state, topic, deadline).await?;
    names.retain(|name| after.as_ref().is_none_or(|after| name > after));
    let more = names.len() > limit;
    names.truncate(limit);
    let mut out = Vec::with_capacity(1_024);
    out.extend_from_slice(b"{\"items\":[");
    for (i, (name, lag)) in lags(&state, topic, &names, deadline)
        .await?
        .iter()
        .enumerate()
    {
        if i > 0 {
            out.push(b',');
        }
        let totals = Totals::of(&lag.brokers);
        let mut object = Members::open(&mut out);
        object.text("name", name);
        totals.show(&mut object);
        object.time_or_null("oldestReadyAt", totals.oldest_ready_at_ms);
        answer::partial(object.member("partial"), &lag.partial);
        object.close();
    }
    let last = names.last().map_or("", |name| name);
    finish_list(
        &mut out,
        &partial,
        more.then(|| state.pages.encode(&key, last, state.now_ms())),
    );
    Ok(answer::json(StatusCode::OK, out))
}

/// Names, and the brokers that may know of more.
async fn subscribers(
    state: &AppState,
    topic: &str,
    deadline: Instant,
) -> Result<(Vec<String>, Partial), ApiError> {
    let (groups, partial) = state.upstream.groups(deadline).await?;
    let subscribed = groups.into_iter().filter(|(_, group)| group.reads(topic));
    Ok((subscribed.map(|(name, _)| name).collect(), partial))
}

/// How far these groups are in the topic. One that was deleted meanwhile is left out.
async fn lags(
    state: &AppState,
    topic: &str,
    names: &[String],
    deadline: Instant,
) -> Result<Vec<(String, Lag)>, ApiError> {
    let mut found = Vec::with_capacity(names.len());
    for some in names.chunks(AT_A_TIME) {
        let asked = some.iter().map(|name| state.upstream.lag(name, deadline));
        for (name, answer) in some.iter().zip(join_all(asked).await) {
            match answer {
                Ok(mut lag) => {
                    for (_, part) in &mut lag.brokers {
                        part.queues.retain(|queue| is_of_topic(queue, topic));
                    }
                    found.push((name.clone(), lag));
                }
                Err(error) if error.code() == Code::GroupNotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

/// Groups that have not read all of a topic, with how much is missing, and the brokers that could not be asked.
///
/// # Errors
/// `no_route`, `broker_unavailable`.
pub(super) async fn behind(
    state: &AppState,
    topic: &str,
    deadline: Instant,
) -> Result<(Vec<(String, i64)>, Partial), ApiError> {
    let (names, _) = subscribers(state, topic, deadline).await?;
    let (mut behind, mut partial) = (Vec::new(), Partial::new());
    for (name, lag) in lags(state, topic, &names, deadline).await? {
        let left = Totals::of(&lag.brokers).lag();
        if left > 0 {
            behind.push((name, left));
        }
        for (broker, reason) in lag.partial {
            leave_out(&mut partial, &broker, reason);
        }
    }
    Ok((behind, partial))
}
