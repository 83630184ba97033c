//! Answers: JSON bodies ending with a line feed, entity tags, conditions.

use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::http::guarded::guard;
use crate::memory::{Held, Whose};
use crate::render::Members;
use crate::state::AppState;
use crate::upstream::{Precondition, etag};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use tokio::time::Instant;

/// A JSON answer.
pub(super) fn json(status: StatusCode, mut body: Vec<u8>) -> Response {
    body.push(b'\n');
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// A JSON answer whose memory is counted until the client has taken it.
pub(super) fn counted(mut body: Vec<u8>, mut held: Held) -> Response {
    body.push(b'\n');
    body.shrink_to_fit();
    held.set(body.len());
    let mut response = json(StatusCode::OK, Vec::new());
    guard(&mut response, body.into(), held, drop);
    response
}

/// Memory for the messages of an answer; they stay with the broker while clients have yet to take so many others.
/// Whoever asks for one group or topic is served in turn with those who ask for others.
///
/// # Errors
/// `overloaded` where there is none until the deadline.
pub(super) async fn room(
    state: &AppState,
    whose: Whose<'_>,
    bytes: usize,
    deadline: Instant,
) -> Result<Held, ApiError> {
    taken(state, state.answers.take_part(whose, bytes), deadline).await
}

/// The same for all of `bytes`, or all there is.
///
/// # Errors
/// As [`room`].
pub(super) async fn room_of(
    state: &AppState,
    whose: Whose<'_>,
    bytes: usize,
    deadline: Instant,
) -> Result<Held, ApiError> {
    taken(state, state.answers.take(whose, bytes), deadline).await
}

async fn taken(
    state: &AppState,
    take: impl Future<Output = Held>,
    deadline: Instant,
) -> Result<Held, ApiError> {
    tokio::time::timeout_at(deadline, take).await.map_err(|_| {
        let detail = "clients have yet to take as many bytes of messages as the gateway may hold; try again, or use \
                      another gateway";
        ApiError::new(Code::Overloaded, detail).with("limit", state.config.answers_max.bytes())
    })
}

/// No place is free among those that wait.
pub(super) fn too_many_waiters(state: &AppState) -> ApiError {
    let max = state.config.waiters_max;
    let detail = format!(
        "{max} receives and browses wait at this gateway; try again, or use another gateway"
    );
    ApiError::new(Code::TooManyWaiters, detail).with("limit", max)
}

/// A JSON answer with its version.
pub(super) fn versioned(status: StatusCode, body: Vec<u8>, version: u64) -> Response {
    let mut response = json(status, body);
    if let Ok(tag) = HeaderValue::from_str(&etag(version)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// For a deletion that is not forced: it is refused where brokers could not be asked.
///
/// # Errors
/// `broker_unavailable` with the brokers that cannot say `what`.
pub(super) fn all_asked(partial: &[(String, &'static str)], what: &str) -> Result<(), ApiError> {
    if partial.is_empty() {
        return Ok(());
    }
    let brokers: Vec<&str> = partial.iter().map(|(name, _)| name.as_str()).collect();
    let detail = format!(
        "{} cannot be asked {what}; try again when it is back, or delete with ?force=true",
        brokers.join(", ")
    );
    Err(ApiError::new(Code::BrokerUnavailable, detail))
}

/// Brokers an answer is without, and why; null where none.
pub(super) fn partial(out: &mut Vec<u8>, brokers: &[(String, &'static str)]) {
    if brokers.is_empty() {
        out.extend_from_slice(b"null");
        return;
    }
    out.push(b'[');
    for (i, (broker, reason)) in brokers.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let mut object = Members::open(out);
        object.text("broker", broker);
        object.text("reason", reason);
        object.close();
    }
    out.push(b']');
}

/// 204, or 200 naming the brokers a deletion did not reach.
pub(super) fn deleted(pending: &[String]) -> Response {
    if pending.is_empty() {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return response;
    }
    let mut out = Vec::new();
    let mut object = Members::open(&mut out);
    object.texts("pending", pending);
    object.close();
    json(StatusCode::OK, out)
}

/// `If-Match` and `If-None-Match` of a write.
///
/// # Errors
/// `invalid_field` for forms other than one strong tag, or `*`.
pub(super) fn conditions(call: &Call) -> Result<Precondition, ApiError> {
    let mut condition = Precondition::default();
    if let Some(value) = call.headers().get(header::IF_NONE_MATCH) {
        if value.as_bytes().trim_ascii() != b"*" {
            let detail = "If-None-Match of a write can only be *";
            return Err(ApiError::field(
                Code::InvalidField,
                "header:If-None-Match",
                detail,
            ));
        }
        condition.absent = true;
    }
    if let Some(value) = call.headers().get(header::IF_MATCH) {
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            condition.present = true;
            return Ok(condition);
        }
        let version = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
        let Some(version) = version.filter(|t| !t.contains('"')) else {
            let detail = "If-Match must be one strong entity tag as given in ETag, quotes included";
            return Err(ApiError::field(
                Code::InvalidField,
                "header:If-Match",
                detail,
            ));
        };
        // A tag this gateway never gave matches nothing.
        condition.version = Some(version.parse().unwrap_or(u64::MAX));
    }
    Ok(condition)
}
