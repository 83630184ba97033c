//! `/`: the cluster and the curl lines, until the console is there.

use super::html::{escape, page as html};
use crate::http::Call;
use crate::state::AppState;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use std::fmt::Write;
use std::time::Duration;

/// `GET /`
pub(super) async fn page(State(state): State<AppState>, call: Call) -> Response {
    let deadline = (call.started() + Duration::from_secs(2)).min(call.deadline(Duration::ZERO));
    let mut body = format!(
        "<h1>Gantry</h1>\n<p>Gateway <code>{}</code>. ",
        escape(&state.gateway_id)
    );
    body.push_str("<a href=\"/docs\">API reference</a> · <a href=\"/openapi.json\">openapi.json</a> · <a href=\"/readyz\">readiness</a> · ");
    body.push_str("<a href=\"/errors\">error codes</a></p>\n<h2>Brokers</h2>\n");
    match state.upstream.cluster(deadline).await {
        Ok(brokers) if !brokers.is_empty() => {
            body.push_str("<table><tr><th>Broker</th><th>Address of the master</th></tr>");
            for (name, addr) in brokers {
                // Writing to a String cannot fail.
                write!(
                    body,
                    "<tr><td>{}</td><td><code>{}</code></td></tr>",
                    escape(&name),
                    escape(&addr)
                )
                .ok();
            }
            body.push_str("</table>\n");
        }
        Ok(_) => body.push_str("<p>No broker is registered yet.</p>\n"),
        Err(error) => {
            writeln!(
                body,
                "<p>The cluster cannot be seen: {}.</p>",
                escape(error.detail())
            )
            .ok();
        }
    }
    body.push_str("<h2>Send, receive, ack</h2>\n<pre>");
    let host = call.header("host").unwrap_or("127.0.0.1:8080");
    if !state.config.auto_create {
        body.push_str(&escape(&making_lines(host)));
    }
    body.push_str(&escape(&curl_lines(host)));
    body.push_str("</pre>\n<p class=\"dim\">They need curl 7.82 or later. The file <code>h</code> takes the headers of the received message, among them its receipt.</p>");
    html(StatusCode::OK, "Gantry", &body)
}

/// What the three lines need where neither a send nor a receive makes anything.
fn making_lines(addr: &str) -> String {
    let at = format!("{addr}/v1/ns/default");
    format!(
        "curl -X PUT --json '{{}}' {at}/topics/hello\n\
         curl -X PUT --json '{{}}' {at}/groups/me\n\
         curl -X PUT --json '{{}}' {at}/groups/me/subscriptions/hello\n"
    )
}

/// The three lines of the first five minutes.
#[must_use]
pub fn curl_lines(addr: &str) -> String {
    format!(
        "curl --json '{{\"text\":\"hello\"}}' {addr}/v1/ns/default/topics/hello/messages\n\
         curl -d '' -D h -w '\\n' '{addr}/v1/ns/default/groups/me/receive?topic=hello&bodyFormat=raw'\n\
         curl -d '' \"{addr}/v1/ns/default/groups/me/ack?receipt=$(grep -o 'mqr_[[:graph:]]*' h)\"\n"
    )
}
