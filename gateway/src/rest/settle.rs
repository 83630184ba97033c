//! Settling: ack, nack, extend, each for one receipt in the query, many with shared fields, or items with their own.

use super::answer;
use super::receive::INVISIBLE_MS;
use crate::error::{ApiError, Code};
use crate::http::Call;
use crate::json::{Object, write_string};
use crate::params::{Query, duration_in};
use crate::receipt::ReceiptError;
use crate::render::Members;
use crate::state::AppState;
use crate::upstream::{Scope, SettleOp, SettleOutcome, SettleStatus, Settlement};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use std::time::Duration;

/// `delay` of a nack.
const DELAY_MS: std::ops::RangeInclusive<u64> = 0..=30 * 86_400_000;
const CODE_MAX: usize = 128;
const REASON_MAX: usize = 1_024;

pub(super) fn router() -> Router<AppState> {
    Router::new()
        .route("/v1/ns/{ns}/groups/{group}/ack", post(ack))
        .route("/v1/ns/{ns}/groups/{group}/nack", post(nack))
        .route("/v1/ns/{ns}/groups/{group}/extend", post(extend))
}

#[utoipa::path(post, path = "/v1/ns/{ns}/groups/{group}/ack", operation_id = "ack", tag = "groups", summary = "Settle messages", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("receipt" = Option<String>, Query, description = "One receipt, with an empty body")), request_body = Option<openapi::settle::AckRequest>, responses((status = 200, description = "All fine", body = openapi::settle::SettleResponse), (status = 207, description = "Mixed", body = openapi::settle::SettleResponse), (status = 410, description = "`receipt_gone`", body = openapi::problem::Problem)))]
pub(crate) async fn ack(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    settle(&state, &call, Kind::Ack).await
}

#[utoipa::path(post, path = "/v1/ns/{ns}/groups/{group}/nack", operation_id = "nack", tag = "groups", summary = "Give messages back with a reason", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("receipt" = Option<String>, Query, description = "One receipt, with an empty body"), ("delay" = Option<String>, Query, description = "With `receipt`"), ("code" = Option<String>, Query, description = "With `receipt`"), ("reason" = Option<String>, Query, description = "With `receipt`"), ("deadLetter" = Option<bool>, Query, description = "With `receipt`")), request_body = Option<openapi::settle::NackRequest>, responses((status = 200, description = "All fine", body = openapi::settle::SettleResponse), (status = 207, description = "Mixed", body = openapi::settle::SettleResponse), (status = 410, description = "`receipt_gone`", body = openapi::problem::Problem)))]
pub(crate) async fn nack(State(state): State<AppState>, call: Call) -> Result<Response, ApiError> {
    settle(&state, &call, Kind::Nack).await
}

#[utoipa::path(post, path = "/v1/ns/{ns}/groups/{group}/extend", operation_id = "extend", tag = "groups", summary = "Prolong leases", params(("ns" = String, Path, description = "Namespace; `default`"), ("group" = String, Path, description = "Group, ^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$"), ("receipt" = Option<String>, Query, description = "One receipt, with an empty body"), ("invisibleFor" = Option<String>, Query, description = "With `receipt`")), request_body = Option<openapi::settle::ExtendRequest>, responses((status = 200, description = "All fine", body = openapi::settle::SettleResponse), (status = 207, description = "Mixed", body = openapi::settle::SettleResponse), (status = 410, description = "`receipt_gone`", body = openapi::problem::Problem)))]
pub(crate) async fn extend(
    State(state): State<AppState>,
    call: Call,
) -> Result<Response, ApiError> {
    settle(&state, &call, Kind::Extend).await
}

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ack,
    Nack,
    Extend,
}

impl Kind {
    /// The fields besides receipts.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Ack => &[],
            Self::Nack => &["delay", "code", "reason", "deadLetter"],
            Self::Extend => &["invisibleFor"],
        }
    }

    pub(super) fn with(self, names: &[&'static str]) -> Vec<&'static str> {
        names.iter().chain(self.fields()).copied().collect()
    }
}

/// A receipt and what to do with it.
pub(crate) type Asked = (String, SettleOp);

async fn settle(state: &AppState, call: &Call, kind: Kind) -> Result<Response, ApiError> {
    let group = call.group()?;
    let asked = if call.body.is_empty() {
        from_query(call, kind)?
    } else {
        from_body(call, kind, state.config.receipts_max)?
    };
    let deadline = call.deadline(Duration::ZERO);
    let outcomes = settle_all(state, group, &asked, deadline).await;
    Ok(answer_of(&asked, &outcomes))
}

/// Decodes the receipts and settles those that are ours; same order, same length.
pub(crate) async fn settle_all(
    state: &AppState,
    group: &str,
    asked: &[Asked],
    deadline: tokio::time::Instant,
) -> Vec<SettleOutcome> {
    let none = |status| SettleOutcome {
        status,
        late: false,
        already: false,
        visible_at_ms: None,
    };
    let mut outcomes = Vec::with_capacity(asked.len());
    let mut places = Vec::new();
    let mut items = Vec::new();
    for (i, (receipt, op)) in asked.iter().enumerate() {
        match state.receipts.decode(&Scope, group, receipt) {
            Ok(lease) => {
                places.push(i);
                items.push(Settlement {
                    lease,
                    op: op.clone(),
                });
                outcomes.push(none(SettleStatus::Unavailable));
            }
            Err(ReceiptError::Invalid) => outcomes.push(none(SettleStatus::Invalid)),
            Err(ReceiptError::WrongGroup) => outcomes.push(none(SettleStatus::Forbidden)),
        }
    }
    for (place, outcome) in places
        .into_iter()
        .zip(state.upstream.settle(&Scope, group, &items, deadline).await)
    {
        outcomes[place] = outcome;
    }
    outcomes
}

/// One receipt and its fields as parameters.
fn from_query(call: &Call, kind: Kind) -> Result<Vec<Asked>, ApiError> {
    let query = call.query(&kind.with(&["receipt"]))?;
    let Some(receipt) = query.get("receipt") else {
        let detail = "give {\"receipts\":[…]} or {\"items\":[…]} as JSON body, or one ?receipt= with an empty body";
        return Err(ApiError::new(Code::InvalidJson, detail));
    };
    let op = op_of_query(&query, kind)?;
    Ok(vec![(receipt.to_owned(), op)])
}

fn op_of_query(query: &Query, kind: Kind) -> Result<SettleOp, ApiError> {
    match kind {
        Kind::Ack => Ok(SettleOp::Ack),
        Kind::Extend => Ok(SettleOp::Extend {
            invisible_ms: query.duration(
                "invisibleFor",
                INVISIBLE_MS,
                Code::InvalidInvisibleFor,
            )?,
            member: None,
        }),
        Kind::Nack => {
            let text = |name: &str, max| match query.get(name) {
                Some(value) => check_text(value, name, &format!("?{name}"), max).map(Some),
                None => Ok(None),
            };
            let delay_ms = query.duration("delay", DELAY_MS, Code::InvalidDuration)?;
            nack_op(
                query.boolean("deadLetter")?,
                delay_ms,
                text("code", CODE_MAX)?,
                text("reason", REASON_MAX)?,
                "?delay",
            )
        }
    }
}

fn from_body(call: &Call, kind: Kind, max: usize) -> Result<Vec<Asked>, ApiError> {
    call.no_query()?;
    let object = Object::open(call.plain_json()?, "", &kind.with(&["receipts", "items"]))?;
    asked_of(&object, kind, max)
}

/// `receipts` with shared fields, or `items` with their own; at most `max`.
pub(crate) fn asked_of(
    object: &Object<'_>,
    kind: Kind,
    max: usize,
) -> Result<Vec<Asked>, ApiError> {
    let receipts = object.array("receipts", Code::InvalidField)?;
    let items = object.array("items", Code::InvalidField)?;
    let (list, single) = match (receipts, items) {
        (Some(list), None) => (list, true),
        (None, Some(list)) => (list, false),
        _ => {
            let detail = "give either receipts or items, not both and not none";
            return Err(ApiError::field(
                Code::InvalidField,
                object.pointer("receipts"),
                detail,
            ));
        }
    };
    let name = if single { "receipts" } else { "items" };
    let count = list.clone().take(max + 1).count();
    if count == 0 {
        return Err(ApiError::field(
            Code::BatchEmpty,
            object.pointer(name),
            format!("{name} holds at least one entry"),
        ));
    }
    if count > max {
        let detail = format!("at most {max} receipts a call");
        return Err(
            ApiError::field(Code::BatchTooLarge, object.pointer(name), detail)
                .with("limit", max)
                .with("actual", list.count()),
        );
    }
    let mut asked = Vec::with_capacity(count);
    if single {
        let op = op_of_object(object, kind)?;
        for (i, raw) in list.enumerate() {
            let text = raw.as_string()?;
            let not_text = || {
                ApiError::field(
                    Code::InvalidField,
                    object.pointer(&format!("receipts/{i}")),
                    "a receipt is a string",
                )
            };
            asked.push((text.ok_or_else(not_text)?.into_owned(), op.clone()));
        }
        return Ok(asked);
    }
    if let Some(shared) = kind.fields().iter().find(|f| object.get(f).is_some()) {
        let detail = format!("{shared} stands in each item when items are given");
        return Err(ApiError::field(
            Code::InvalidField,
            object.pointer(shared),
            detail,
        ));
    }
    for (i, raw) in list.enumerate() {
        let item = Object::open(
            raw,
            &object.pointer(&format!("items/{i}")),
            &kind.with(&["receipt"]),
        )?;
        let receipt = item.string("receipt", Code::InvalidField)?;
        let missing = || {
            ApiError::field(
                Code::InvalidField,
                item.pointer("receipt"),
                "an item needs its receipt",
            )
        };
        asked.push((
            receipt.ok_or_else(missing)?.into_owned(),
            op_of_object(&item, kind)?,
        ));
    }
    Ok(asked)
}

fn op_of_object(object: &Object<'_>, kind: Kind) -> Result<SettleOp, ApiError> {
    let duration = |name: &str, range, code| match object.string(name, Code::InvalidDuration)? {
        Some(text) => duration_in(&text, name, &object.pointer(name), range, code).map(Some),
        None => Ok(None),
    };
    let text = |name: &str, max| match object.string(name, Code::InvalidField)? {
        Some(value) => check_text(&value, name, &object.pointer(name), max).map(Some),
        None => Ok(None),
    };
    match kind {
        Kind::Ack => Ok(SettleOp::Ack),
        Kind::Extend => Ok(SettleOp::Extend {
            invisible_ms: duration("invisibleFor", INVISIBLE_MS, Code::InvalidInvisibleFor)?,
            member: None,
        }),
        Kind::Nack => {
            let dead = object.boolean("deadLetter")?.unwrap_or(false);
            let delay_ms = duration("delay", DELAY_MS, Code::InvalidDuration)?;
            nack_op(
                dead,
                delay_ms,
                text("code", CODE_MAX)?,
                text("reason", REASON_MAX)?,
                &object.pointer("delay"),
            )
        }
    }
}

fn nack_op(
    dead: bool,
    delay_ms: Option<u64>,
    code: Option<String>,
    reason: Option<String>,
    pointer: &str,
) -> Result<SettleOp, ApiError> {
    if dead && delay_ms.is_some() {
        return Err(ApiError::field(
            Code::InvalidField,
            pointer,
            "a message that is dead-lettered has no delay; give one or the other",
        ));
    }
    Ok(if dead {
        SettleOp::Dead { code, reason }
    } else {
        SettleOp::Nack {
            delay_ms,
            code,
            reason,
        }
    })
}

fn check_text(value: &str, name: &str, pointer: &str, max: usize) -> Result<String, ApiError> {
    if value.len() <= max && !value.contains(['\0', '\u{1}', '\u{2}']) {
        return Ok(value.to_owned());
    }
    let detail = format!("{name} has at most {max} bytes, without U+0000 to U+0002");
    Err(ApiError::field(Code::InvalidField, pointer, detail).with("limit", max))
}

/// The member `results`.
pub(crate) fn results(out: &mut Vec<u8>, asked: &[Asked], outcomes: &[SettleOutcome]) {
    out.push(b'[');
    for (i, (asked, outcome)) in asked.iter().zip(outcomes).enumerate() {
        if i > 0 {
            out.push(b',');
        }
        result(out, asked, outcome);
    }
    out.push(b']');
}

/// One of the results.
pub(crate) fn result(out: &mut Vec<u8>, (receipt, op): &Asked, outcome: &SettleOutcome) {
    let mut object = Members::open(out);
    // What is no receipt is not sent back whole.
    let shown: String = if receipt.len() > 1_024 {
        receipt.chars().take(64).collect()
    } else {
        receipt.clone()
    };
    write_string(object.member("receipt"), &shown);
    object.text("status", outcome.status.as_str());
    if let Some(code) = outcome.status.code() {
        object.text("code", code.as_str());
    }
    object.boolean("late", outcome.late);
    object.boolean("already", outcome.already);
    if let Some(at) = outcome.visible_at_ms {
        let name = if matches!(op, SettleOp::Extend { .. }) {
            "invisibleUntil"
        } else {
            "nextDeliveryAt"
        };
        object.time(name, at);
    }
    object.close();
}

fn answer_of(asked: &[Asked], outcomes: &[SettleOutcome]) -> Response {
    let mut list = Vec::with_capacity(outcomes.len() * 240);
    results(&mut list, asked, outcomes);
    let mut codes = outcomes.iter().map(|o| o.status.code());
    let first = codes.next().flatten();
    // All the same failure: a problem of that status. Anything mixed: 207.
    if let Some(code) = first
        && codes.all(|c| c == first)
    {
        return problem(code, &list).into_response_now();
    }
    let mut out = Vec::with_capacity(list.len() + 16);
    out.extend_from_slice(b"{\"results\":");
    out.extend_from_slice(&list);
    out.push(b'}');
    let fine = outcomes.iter().all(|o| o.status.code().is_none());
    answer::json(
        if fine {
            StatusCode::OK
        } else {
            StatusCode::MULTI_STATUS
        },
        out,
    )
}

fn problem(code: Code, results: &[u8]) -> ApiError {
    let detail = match code {
        Code::ReceiptGone => {
            "this receipt decides nothing any more: the message was settled otherwise, or the lease ran out and it is delivered again"
        }
        Code::ReceiptInvalid => {
            "this is no receipt of this cluster, or it was changed on the way; take it as it was received"
        }
        Code::ReceiptWrongGroup => "this receipt was given to another group; settle it there",
        Code::LeaseLimitReached => "a lease lasts at most 12 h in all",
        _ => {
            "the broker that holds the lease could not be asked or did not answer; try again with the same receipt"
        }
    };
    let list = serde_json::from_slice::<serde_json::Value>(results).unwrap_or_default();
    let error = ApiError::new(code, detail).with("results", list);
    if code == Code::BrokerUnavailable {
        error.unknown_outcome()
    } else {
        error
    }
}

impl ApiError {
    /// For handlers that answer with an error they made themselves.
    fn into_response_now(self) -> Response {
        axum::response::IntoResponse::into_response(self)
    }
}
