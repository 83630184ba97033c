//! `/healthz`, `/readyz`, `/metrics`.

use crate::error::{ApiError, Code};
use crate::state::AppState;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use std::time::Duration;
use tokio::time::Instant;

/// `GET /healthz`: the process turns.
pub(super) async fn healthz() -> Response {
    text("ok\n", "text/plain; charset=utf-8")
}

/// `GET /readyz`: every part of the process serves and a broker is known.
pub(super) async fn readyz(State(state): State<AppState>) -> Result<Response, ApiError> {
    let checks = |name: &'static str, why: String| {
        serde_json::Value::Object([(name.to_owned(), why.into())].into_iter().collect())
    };
    if state.draining.is_cancelled() || state.context.shutdown.is_requested() {
        return Err(ApiError::new(Code::Draining, "this gateway is going away")
            .with("checks", checks("gateway", "draining".into())));
    }
    if let Err(why) = state.context.ready.check() {
        return Err(
            ApiError::new(Code::NoRoute, "not every part of the process serves yet")
                .with("checks", checks("process", why)),
        );
    }
    let deadline = Instant::now() + Duration::from_secs(2);
    match state.upstream.cluster(deadline).await {
        Ok(brokers) if !brokers.is_empty() => Ok(text("ready\n", "text/plain; charset=utf-8")),
        Ok(_) => Err(ApiError::new(Code::NoRoute, "no broker is registered")
            .with("checks", checks("brokers", "none".into()))),
        Err(error) => Err(ApiError::new(Code::NoRoute, error.detail().to_owned())
            .with("checks", checks("nameServers", error.detail().to_owned()))),
    }
}

/// `GET /metrics`: here only where the process has no admin socket.
pub(super) async fn metrics(State(state): State<AppState>) -> Result<Response, ApiError> {
    if !state.config.public_metrics {
        return Err(ApiError::new(
            Code::RouteNotFound,
            "metrics are on the admin socket of this gateway",
        ));
    }
    state
        .metrics
        .observe(state.upstream.waiters(), state.sockets.count());
    Ok(text(
        state.context.metrics.text(),
        node::metrics::CONTENT_TYPE,
    ))
}

fn text(body: impl Into<Body>, kind: &'static str) -> Response {
    let mut response = Response::new(body.into());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
