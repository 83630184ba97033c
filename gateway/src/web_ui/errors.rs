//! `/errors/{code}`: what a code means; the `type` of every problem document leads here.

use super::html::{escape, page as html};
use crate::error::{ApiError, Code};
use crate::http::{Call, names_type};
use crate::render::Members;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

/// `GET /errors/{code}`
pub(super) async fn page(call: Call) -> Result<Response, ApiError> {
    let name = call.named("code");
    let Some(code) = Code::parse(name) else {
        return Err(ApiError::new(
            Code::RouteNotFound,
            "there is no such error code; /errors lists them all",
        ));
    };
    if names_type(call.headers(), "application/json") {
        return Ok(as_json(code));
    }
    let retry = if code.retryable() {
        "The same request may succeed later."
    } else {
        "The same request will fail again; change it."
    };
    let body = format!(
        "<h1>{}</h1>\n<p><code>{}</code> · HTTP {}</p>\n<p>{retry}</p>\n<p>The member <code>detail</code> of the answer says what was wrong in your \
         case and what would be right; <code>errors</code> names the fields, <code>requestId</code> finds the request in the gateway's log.</p>\n\
         <p><a href=\"/errors\">All codes</a></p>",
        escape(code.title()),
        code.as_str(),
        code.status_u16(),
    );
    Ok(html(StatusCode::OK, code.title(), &body))
}

/// `GET /errors`
pub(super) async fn list() -> Response {
    let rows: String = Code::ALL
        .iter()
        .map(|c| {
            let retry = if c.retryable() { "yes" } else { "no" };
            format!("<tr><td>{}</td><td><a href=\"/errors/{1}\"><code>{1}</code></a></td><td>{2}</td><td>{retry}</td></tr>\n", c.status_u16(), c.as_str(), escape(c.title()))
        })
        .collect();
    let body = format!(
        "<h1>Error codes</h1>\n<table><tr><th>HTTP</th><th>code</th><th>meaning</th><th>retry</th></tr>\n{rows}</table>"
    );
    html(StatusCode::OK, "Error codes", &body)
}

fn as_json(code: Code) -> Response {
    let mut out = Vec::new();
    let mut object = Members::open(&mut out);
    object.text("code", code.as_str());
    object.text("title", code.title());
    object.number("status", i64::from(code.status_u16()));
    object.boolean("retryable", code.retryable());
    object.close();
    out.push(b'\n');
    let mut response = Response::new(Body::from(out));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}
