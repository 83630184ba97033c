//! The one layer around all routes: request id, limits, who may ask, the body, panics, problem documents, headers.

use super::origin::Origin;
use super::read::{check_length, content_length, read_body};
use super::{accept, problem};
use crate::error::{ApiError, Code};
use crate::memory::Held;
use crate::params::{new_ulid, parse_duration};
use crate::state::AppState;
use crate::upstream::measured;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::body::Body as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The header block, all names and values.
const HEADERS_MAX: usize = 32 * 1_024;
/// Path and query.
const URI_MAX: usize = 16 * 1_024;
/// `Mq-Timeout` at most.
const TIMEOUT_MAX_MS: u64 = 90_000;

static MQ_REQUEST_ID: HeaderName = HeaderName::from_static("mq-request-id");
static MQ_GATEWAY: HeaderName = HeaderName::from_static("mq-gateway");
static SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What the layer knows about a request.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) request_id: Arc<str>,
    pub(crate) started: Instant,
    pub(crate) timeout: Option<Duration>,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            request_id: "".into(),
            started: Instant::now(),
            timeout: None,
        }
    }
}

/// See the module.
pub(crate) async fn outer(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let _under_way = state.under_way.token();
    let request_id: Arc<str> = new_ulid(state.clock.now_ms()).into();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let arrived = Instant::now();
    let origin = state.origins.check(request.headers(), &uri, state.port());
    let result = match &origin {
        Ok(_) => admit(&method, &uri, request.headers()),
        // A browser that asks whether it may: no is an answer without CORS headers.
        Err(error) if method == Method::OPTIONS && error.code() == Code::OriginNotAllowed => {
            admit(&method, &uri, request.headers())
        }
        Err(error) => Err(error.clone()),
    };
    let mut brokers = None;
    let outcome = match result {
        Err(error) => refuse(&state, request, error).await,
        Ok(_) if method == Method::OPTIONS => Ok(preflight(&origin, request.headers())),
        Ok(timeout) => {
            let with_body = !is_upgrade(&uri);
            let share = if with_body {
                take_body(&state, &mut request).await
            } else {
                Ok(None)
            };
            match share {
                Err(error) => Err(error),
                Ok(_share) => {
                    let meta = Meta {
                        request_id: Arc::clone(&request_id),
                        started: Instant::now(),
                        timeout,
                    };
                    request.extensions_mut().insert(meta);
                    let handled = AssertUnwindSafe(next.run(request)).catch_unwind();
                    let (handled, waited) = measured(handled).await;
                    brokers = Some(waited);
                    handled.map_err(|_| {
                        tracing::error!(request_id = &*request_id, route = route.as_ref().map(|r| r.as_str()), "handler panicked");
                        ApiError::new(Code::Internal, "the gateway met a fault of its own; its log has details under the request id").unknown_outcome()
                    })
                }
            }
        }
    };
    let mut response = match outcome {
        Ok(response) => explain(response, &method, &uri, &request_id),
        Err(error) => problem::response(&error, &method, uri.path(), &request_id),
    };
    dress(&mut response, &state, &request_id, &origin);
    time(&mut response, brokers, arrived.elapsed());
    if method == Method::HEAD {
        without_body(&mut response);
    }
    state.metrics.request(
        route.as_ref().map_or("none", |r| r.as_str()),
        &method,
        response.status().as_u16(),
        arrived.elapsed(),
    );
    response
}

/// What can be refused by line and headers alone; the value of `Mq-Timeout`.
fn admit(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    let length = uri.path_and_query().map_or(0, |p| p.as_str().len());
    if length > URI_MAX {
        return Err(ApiError::new(
            Code::UriTooLong,
            format!("path and query may have {URI_MAX} bytes"),
        )
        .with("limit", URI_MAX)
        .with("actual", length)
        .closing());
    }
    let block: usize = headers
        .iter()
        .map(|(n, v)| n.as_str().len() + v.len() + 4)
        .sum();
    if block > HEADERS_MAX {
        return Err(ApiError::new(
            Code::HeadersTooLarge,
            format!("the header block may have {HEADERS_MAX} bytes"),
        )
        .with("limit", HEADERS_MAX)
        .with("actual", block)
        .closing());
    }
    if headers.get_all(header::HOST).iter().count() > 1 {
        let detail = "send the Host header once";
        return Err(ApiError::field(Code::InvalidField, "header:Host", detail).closing());
    }
    if let Some(expect) = headers.get(header::EXPECT)
        && !expect.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        return Err(ApiError::new(
            Code::ExpectationFailed,
            "the only expectation met here is 100-continue",
        )
        .closing());
    }
    if let Some(tenant) = headers.get("mq-tenant")
        && tenant.as_bytes() != b"default"
    {
        return Err(ApiError::new(
            Code::TenantSwitchForbidden,
            "there is one tenant here, 'default'; leave Mq-Tenant out",
        ));
    }
    let path = uri.path();
    if path.starts_with("/v1/") && !is_upgrade(uri) && *method != Method::OPTIONS {
        let json = accept::allows(headers, "application", "json");
        let raw =
            path.ends_with("/receive") && accept::allows(headers, "application", "octet-stream");
        if !json && !raw {
            return Err(ApiError::new(
                Code::NotAcceptable,
                "answers are application/json; Accept excludes that",
            ));
        }
    }
    let Some(value) = headers.get("mq-timeout") else {
        return Ok(None);
    };
    let ms = value
        .to_str()
        .ok()
        .and_then(parse_duration)
        .ok_or_else(|| {
            ApiError::field(
                Code::InvalidDuration,
                "header:Mq-Timeout",
                "Mq-Timeout must be a duration such as 30s",
            )
        })?;
    if !(1..=TIMEOUT_MAX_MS).contains(&ms) {
        return Err(ApiError::field(
            Code::InvalidField,
            "header:Mq-Timeout",
            "Mq-Timeout must be between 1ms and 90s",
        )
        .with("limit", "90s"));
    }
    Ok(Some(Duration::from_millis(ms)))
}

fn is_upgrade(uri: &Uri) -> bool {
    uri.path() == "/v1/ws"
}

/// Reads the body into an extension, and its share of the budget into another: who keeps the body after the answer
/// keeps that too.
async fn take_body(state: &AppState, request: &mut Request) -> Result<Option<Arc<Held>>, ApiError> {
    check_length(request.headers(), state.request_max())?;
    let body = std::mem::take(request.body_mut());
    let (bytes, share) = read_body(body, state.request_max(), &state.bodies).await?;
    if let Some(coding) = request.headers().get(header::CONTENT_ENCODING)
        && !bytes.is_empty()
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        let detail = "Content-Encoding would be lost with the message: send the body as it is, or its coded bytes to \
                      /raw under a Content-Type such as application/gzip";
        return Err(ApiError::new(Code::UnsupportedMediaType, detail));
    }
    request.extensions_mut().insert(bytes);
    let share = share.map(Arc::new);
    if let Some(share) = &share {
        request.extensions_mut().insert(Arc::clone(share));
    }
    Ok(share)
}

/// Reads what is left of a refused request, so that the connection serves the next one; where that is too much, or the
/// client waits for a go-ahead, the connection ends.
async fn refuse(state: &AppState, request: Request, error: ApiError) -> Result<Response, ApiError> {
    if error.fault().close {
        return Err(error);
    }
    let max = state.request_max();
    let waits = request.headers().contains_key(header::EXPECT);
    let much = content_length(request.headers()).is_some_and(|n| n > max as u64);
    if waits || much {
        return Err(error.closing());
    }
    match read_body(request.into_body(), max, &state.bodies).await {
        Ok(_) => Err(error),
        Err(_) => Err(error.closing()),
    }
}

/// `OPTIONS`: 204, with CORS headers for a listed origin.
fn preflight(origin: &Result<Origin, ApiError>, headers: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if matches!(origin, Ok(Origin::Listed(_))) {
        let out = response.headers_mut();
        out.insert(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE"),
        );
        if let Some(wanted) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            out.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        out.insert(
            header::ACCESS_CONTROL_MAX_AGE,
            HeaderValue::from_static("7200"),
        );
    }
    response
}

/// Turns an error left by a handler, an extractor or the router into its document.
fn explain(mut response: Response, method: &Method, uri: &Uri, request_id: &str) -> Response {
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        return problem::response(&error, method, uri.path(), request_id);
    }
    let status = response.status();
    let ours = response.headers().contains_key(header::CONTENT_TYPE);
    match status {
        // The router itself adds `Allow` outside this layer.
        StatusCode::METHOD_NOT_ALLOWED if !ours => {
            let detail = format!("{method} is not possible here; the header Allow says what is");
            problem::response(
                &ApiError::new(Code::MethodNotAllowed, detail),
                method,
                uri.path(),
                request_id,
            )
        }
        StatusCode::NOT_FOUND if !ours => problem::response(
            &ApiError::new(
                Code::RouteNotFound,
                "there is no such path; /docs lists them all",
            ),
            method,
            uri.path(),
            request_id,
        ),
        _ => response,
    }
}

/// The answer to HEAD: the length is that of the body GET would have.
fn without_body(response: &mut Response) {
    if let Some(length) = response.body().size_hint().exact() {
        let length = HeaderValue::from(length);
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, length);
    }
    *response.body_mut() = Body::empty();
}

/// Headers of every answer.
fn dress(
    response: &mut Response,
    state: &AppState,
    request_id: &str,
    origin: &Result<Origin, ApiError>,
) {
    let draining = state.draining.is_cancelled();
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(MQ_REQUEST_ID.clone(), id);
    }
    headers.insert(MQ_GATEWAY.clone(), state.gateway_header.clone());
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    if let Ok(Origin::Listed(origin)) = origin
        && let Ok(value) = HeaderValue::from_str(origin)
    {
        const EXPOSED: &str = "Mq-Request-Id, Location, ETag, Retry-After, RateLimit, RateLimit-Policy, Idempotency-Replayed, \
                               Mq-Receive-Replayed, Mq-Receipt, Mq-Message-Id, Mq-Topic, Mq-Attempt, Mq-Tag, Mq-Keys, \
                               Mq-Ordering-Key, Mq-Paused, Mq-Gap, Mq-Partial";
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, value);
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(EXPOSED),
        );
    }
    if draining && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// `Server-Timing`: how long brokers were waited for, where they were, and all of it; ms with two decimals.
fn time(response: &mut Response, brokers: Option<Duration>, total: Duration) {
    let ms = |time: Duration| {
        let micros = time.as_micros();
        format!("{}.{:02}", micros / 1_000, micros % 1_000 / 10)
    };
    let brokers = brokers
        .filter(|time| !time.is_zero())
        .map(|time| format!("broker;dur={}, ", ms(time)))
        .unwrap_or_default();
    if let Ok(timing) = HeaderValue::from_str(&format!("{brokers}total;dur={}", ms(total))) {
        response.headers_mut().insert(SERVER_TIMING.clone(), timing);
    }
}
