//! All routes of the gateway and the one layer around them.

use crate::error::{ApiError, Code};
use crate::state::AppState;
use axum::Router;
use axum::routing::any;

/// The router of a gateway.
pub fn app(state: AppState) -> Router {
    Router::new()
        .route("/v1/ws", any(crate::ws::upgrade))
        .fallback(|| async { ApiError::new(Code::RouteNotFound, "no such route; see /docs") })
        .with_state(state)
}
