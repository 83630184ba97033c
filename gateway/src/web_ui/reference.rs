//! `/openapi.json`, and `/docs`: the same as one page without a script.

use super::html::{escape, page as html, prose};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::Value;
use std::fmt::Write;
use std::sync::OnceLock;

/// The committed document; a test keeps it equal to the code.
const DOCUMENT: &str = include_str!("../../../openapi/openapi.json");

/// `GET /openapi.json`
pub(super) async fn openapi() -> Response {
    let mut response = Response::new(Body::from(DOCUMENT));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// `GET /docs`
pub(super) async fn page() -> Response {
    static BODY: OnceLock<String> = OnceLock::new();
    html(StatusCode::OK, "Gantry API", BODY.get_or_init(body))
}

fn body() -> String {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap_or_default();
    let mut out = String::from(
        "<h1>Gantry API</h1>\n<p>Names are case-sensitive; JSON is read strictly; times are RFC 3339, durations look like <code>1500ms</code>, \
         <code>30s</code>, <code>12h</code>. Every refusal is a problem document (<a href=\"/errors\">codes</a>). \
         Machine-readable: <a href=\"/openapi.json\">openapi.json</a>.</p>\n",
    );
    let empty = serde_json::Map::new();
    let paths = document["paths"].as_object().unwrap_or(&empty);
    for tag in [
        "messages",
        "groups",
        "topics",
        "dead letters",
        "operations",
        "not built yet",
    ] {
        // Writing to a String cannot fail, here and below.
        writeln!(out, "<h2>{tag}</h2>").ok();
        for (path, item) in paths {
            for (method, operation) in item.as_object().into_iter().flatten() {
                if operation["tags"][0] == tag {
                    show(
                        &mut out,
                        &document,
                        method,
                        path,
                        operation,
                        tag == "not built yet",
                    );
                }
            }
        }
    }
    out
}

fn show(
    out: &mut String,
    document: &Value,
    method: &str,
    path: &str,
    operation: &Value,
    brief: bool,
) {
    let (method, path) = (method.to_uppercase(), escape(path));
    if brief {
        writeln!(
            out,
            "<div><span class=\"m\">{method}</span> <code>{path}</code></div>"
        )
        .ok();
        return;
    }
    let summary = prose(operation["summary"].as_str().unwrap_or_default());
    writeln!(
        out,
        "<h3><span class=\"m\">{method}</span> <code>{path}</code></h3>\n<p>{summary}</p>"
    )
    .ok();
    let parameters = operation["parameters"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    if !parameters.is_empty() {
        out.push_str("<table><tr><th>parameter</th><th>in</th><th>meaning</th></tr>\n");
        for parameter in parameters {
            let text = |name: &str| prose(parameter[name].as_str().unwrap_or_default());
            writeln!(
                out,
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                text("name"),
                text("in"),
                text("description")
            )
            .ok();
        }
        out.push_str("</table>\n");
    }
    for content in operation["requestBody"]["content"]
        .as_object()
        .into_iter()
        .flat_map(|c| c.values())
    {
        out.push_str("<p class=\"dim\">Body</p>\n");
        schema(out, document, &content["schema"]);
    }
    for (status, response) in operation["responses"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(s, _)| s.starts_with('2') || s.starts_with('1'))
    {
        let description = prose(response["description"].as_str().unwrap_or_default());
        writeln!(out, "<p class=\"dim\">{status}: {description}</p>").ok();
        if let Some(content) = response["content"]
            .as_object()
            .and_then(|c| c.values().next())
        {
            schema(out, document, &content["schema"]);
        }
    }
}

/// The fields of a schema, one level, references followed.
fn schema(out: &mut String, document: &Value, schema: &Value) {
    let Some(schema) = referenced(document, schema) else {
        return;
    };
    if let Some(example) = schema.get("example") {
        writeln!(out, "<pre>{}</pre>", escape(&example.to_string())).ok();
    }
    let Some(fields) = schema["properties"].as_object() else {
        return;
    };
    out.push_str("<table><tr><th>field</th><th>meaning</th></tr>\n");
    for (name, field) in fields {
        let own = field["description"].as_str();
        let meaning = own.or_else(|| referenced(document, field)?["description"].as_str());
        writeln!(
            out,
            "<tr><td><code>{}</code></td><td>{}</td></tr>",
            escape(name),
            prose(meaning.unwrap_or_default())
        )
        .ok();
    }
    out.push_str("</table>\n");
}

/// The schema that a reference leads to, alone or as the one that may also be null.
fn referenced<'a>(document: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    let of = |schema: &Value| {
        let path = schema["$ref"].as_str()?.trim_start_matches('#').to_owned();
        document.pointer(&path)
    };
    let list = schema["oneOf"].as_array();
    of(schema).or_else(|| list?.iter().find_map(of))
}
