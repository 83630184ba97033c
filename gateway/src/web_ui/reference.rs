//! `/docs` and `/openapi.json`.

use super::html::page as html;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

/// `GET /openapi.json`
pub(super) async fn openapi() -> Response {
    let mut response = Response::new(Body::from("{}\n"));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// `GET /docs`
pub(super) async fn page() -> Response {
    html(StatusCode::OK, "Gantry API", "<h1>Gantry API</h1>")
}
