//! The problem document (RFC 9457) of an [`ApiError`].

use crate::error::{ApiError, Outcome};
use crate::render::Members;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, header};

/// Whether a failed request of this kind says `outcome`: sends, settles and changes of configuration do.
fn is_write(method: &Method, path: &str) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
        && !path.ends_with("/receive")
        && path.starts_with("/v1/")
}

/// The document, ending with a line feed.
pub(super) fn document(error: &ApiError, method: &Method, path: &str, request_id: &str) -> Vec<u8> {
    let fault = error.fault();
    let code = fault.code;
    let mut out = Vec::with_capacity(512);
    let mut object = Members::open(&mut out);
    object.text("type", &format!("/errors/{}", code.as_str()));
    object.text("title", code.title());
    object.number("status", i64::from(code.status_u16()));
    object.text("code", code.as_str());
    object.text("detail", &fault.detail);
    object.text("instance", path);
    object.text("requestId", request_id);
    object.boolean("retryable", code.retryable());
    if is_write(method, path) {
        object.text(
            "outcome",
            fault.outcome.unwrap_or(Outcome::NotApplied).as_str(),
        );
    }
    if let Some(seconds) = fault.retry_after_s {
        object.number("retryAfter", i64::from(seconds));
    }
    for (name, value) in &fault.extra {
        object.raw(name, value.to_string().as_bytes());
    }
    if !fault.errors.is_empty() {
        let list = object.member("errors");
        list.push(b'[');
        for (i, error) in fault.errors.iter().enumerate() {
            if i > 0 {
                list.push(b',');
            }
            let mut entry = Members::open(list);
            entry.text("pointer", &error.pointer);
            entry.text("code", error.code);
            entry.text("detail", &error.detail);
            entry.close();
        }
        list.push(b']');
    }
    object.close();
    out.push(b'\n');
    out
}

/// Makes an answer of an error.
pub(super) fn response(
    error: &ApiError,
    method: &Method,
    path: &str,
    request_id: &str,
) -> Response<Body> {
    let text = document(error, method, path, request_id);
    let fault = error.fault();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = fault.code.status();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    if let Some(seconds) = fault.retry_after_s {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(allow) = fault
        .allow
        .as_ref()
        .and_then(|a| HeaderValue::from_str(a).ok())
    {
        headers.insert(header::ALLOW, allow);
    }
    if fault.close {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
