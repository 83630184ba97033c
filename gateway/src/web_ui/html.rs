//! The frame of all pages: one style, no script, nothing loaded from elsewhere.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#1b1f24;--bg:#fff;--dim:#59636e;--line:#d1d9e0;--code:#f6f8fa;--link:#0969da}\
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#0d1117;--dim:#9198a1;--line:#3d444d;--code:#151b23;--link:#4493f8}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.2rem;border-bottom:1px solid var(--line)}h3{font-size:1rem;margin:1.4rem 0 .2rem}\
a{color:var(--link)}pre,code{font:.86rem/1.5 ui-monospace,monospace;background:var(--code)}code{padding:.1em .3em;border-radius:4px}\
pre{padding:.8rem;overflow-x:auto;border:1px solid var(--line);border-radius:6px}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid var(--line)}.dim{color:var(--dim)}\
.m{font-weight:600;display:inline-block;min-width:4.2rem}";

/// Text with the characters that mean something in HTML written as entities.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The same for a description: what stands between backticks is code.
pub(super) fn prose(text: &str) -> String {
    let mut parts = escape(text);
    let pairs = parts.matches('`').count() / 2;
    for _ in 0..pairs {
        parts = parts.replacen('`', "<code>", 1).replacen('`', "</code>", 1);
    }
    parts
}

/// A whole page.
pub(super) fn page(status: StatusCode, title: &str, body: &str) -> Response {
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n",
        title = escape(title),
    );
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_show_code_as_code() {
        assert_eq!(
            prose("`a<b` or `c`; it's `"),
            "<code>a&lt;b</code> or <code>c</code>; it's `"
        );
    }
}
