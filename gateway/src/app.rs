//! All routes of the gateway and the one layer around them.

use crate::http::outer;
use crate::state::AppState;
use crate::{rest, web_ui};
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::any;

/// The router of a gateway.
pub fn app(state: AppState) -> Router {
    Router::new()
        .route("/v1/ws", any(crate::ws::upgrade))
        .merge(rest::router())
        .merge(web_ui::router())
        .layer(from_fn_with_state(state.clone(), outer))
        .with_state(state)
}
