//! What a browser opens: the start page, the reference, the pages of error codes; and health, metrics, openapi.json.

mod errors;
mod health;
mod html;
mod reference;
mod start;

pub use start::curl_lines;

use crate::state::AppState;
use axum::Router;
use axum::routing::get;

pub(crate) fn router() -> Router<AppState> {
    Router::new()
        .route("/", get(start::page))
        .route("/docs", get(reference::page))
        .route("/openapi.json", get(reference::openapi))
        .route("/errors", get(errors::list))
        .route("/errors/{code}", get(errors::page))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
}
