//! The OpenAPI document: paths from the handlers, bodies from the crate `openapi`, and what holds for every operation.

use crate::error::Code;
use crate::rest::{self, PLANNED};
use axum::routing::MethodFilter;
use openapi::problem::Problem;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(title = "Gantry", description = "A durable message broker that anyone can use with curl.", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    paths(
        rest::messages::send, rest::browse::browse, rest::messages::send_batch, rest::raw::send_raw,
        rest::receive::receive, rest::settle::ack, rest::settle::nack, rest::settle::extend,
        rest::topics::list, rest::topics::read, rest::topics::put, rest::topics::patch, rest::topics::delete,
        rest::topic_groups::list,
        rest::groups::list, rest::groups::read, rest::groups::put, rest::groups::patch, rest::groups::delete,
        rest::groups::lag, rest::groups::pause, rest::groups::resume,
        rest::subscriptions::read, rest::subscriptions::put, rest::subscriptions::delete,
        rest::peek::peek, rest::members::list, rest::in_flight::list, rest::in_flight::release, rest::dead_letters::summary, rest::dead_letters::list,
    ),
    components(schemas(Problem)),
    tags((name = "messages"), (name = "groups"), (name = "topics"), (name = "dead letters"), (name = "not built yet")),
)]
struct Paths;

/// Statuses any operation may answer with.
const COMMON: [u16; 19] = [
    400, 403, 404, 405, 406, 408, 409, 410, 412, 413, 414, 415, 417, 429, 431, 500, 501, 503, 504,
];

/// The document, pretty, ending with a line feed: what `openapi/openapi.json` holds.
#[must_use]
pub fn api_document() -> String {
    let mut document = serde_json::to_value(Paths::openapi()).unwrap_or_default();
    document["info"]["version"] = json!("1");
    document["components"]["responses"] = problems();
    if let Some(paths) = document["paths"].as_object_mut() {
        add_planned(paths);
        add_others(paths);
        for item in paths.values_mut() {
            for (method, operation) in item.as_object_mut().into_iter().flatten() {
                if matches!(method.as_str(), "get" | "put" | "post" | "delete" | "patch") {
                    add_common(operation);
                }
            }
        }
    }
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// The problem document of a status, once.
fn problems() -> Value {
    let one = |status: u16| {
        let codes: Vec<&str> = Code::ALL
            .iter()
            .filter(|c| c.status_u16() == status)
            .map(|c| c.as_str())
            .collect();
        let schema = json!({ "$ref": "#/components/schemas/Problem" });
        let response = json!({
            "description": codes.join(", "),
            "content": { "application/problem+json": { "schema": schema } }
        });
        (format!("Problem{status}"), response)
    };
    Value::Object(COMMON.iter().map(|status| one(*status)).collect())
}

/// Problem documents of every operation.
fn add_common(operation: &mut Value) {
    let Some(responses) = operation["responses"].as_object_mut() else {
        return;
    };
    for status in COMMON {
        let reference = json!({ "$ref": format!("#/components/responses/Problem{status}") });
        responses.entry(status.to_string()).or_insert(reference);
    }
}

/// Known parts that answer 501.
fn add_planned(paths: &mut Map<String, Value>) {
    let names = [
        (MethodFilter::GET, "get"),
        (MethodFilter::POST, "post"),
        (MethodFilter::PUT, "put"),
        (MethodFilter::PATCH, "patch"),
        (MethodFilter::DELETE, "delete"),
    ];
    for (path, methods) in PLANNED {
        let parameters: Vec<Value> = path
            .split('/')
            .filter_map(|s| s.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
            .collect();
        for (_, name) in names.iter().filter(|(m, _)| methods.contains(m)) {
            let mut operation = json!({ "tags": ["not built yet"], "summary": "Known, answers 501", "responses": {} });
            if !parameters.is_empty() {
                operation["parameters"] = json!(parameters);
            }
            let item = paths.entry(path.to_owned()).or_insert_with(|| json!({}));
            item[*name] = operation;
        }
    }
}

/// Pages and probes.
fn add_others(paths: &mut Map<String, Value>) {
    for (path, summary, kind) in [
        ("/healthz", "The process turns", "text/plain"),
        ("/readyz", "The gateway can serve", "text/plain"),
        (
            "/metrics",
            "OpenMetrics; where the process has no admin socket",
            "application/openmetrics-text",
        ),
        ("/openapi.json", "This document", "application/json"),
        ("/docs", "This document as a page", "text/html"),
        ("/errors", "All error codes", "text/html"),
        (
            "/",
            "The cluster and the first three curl lines",
            "text/html",
        ),
    ] {
        let ok = json!({ "description": summary, "content": { kind: { "schema": { "type": "string" } } } });
        paths.insert(path.to_owned(), json!({ "get": { "tags": ["operations"], "summary": summary, "responses": { "200": ok } } }));
    }
    let code =
        json!([{ "name": "code", "in": "path", "required": true, "schema": { "type": "string" } }]);
    let ok = json!({ "description": "The code", "content": { "text/html": { "schema": { "type": "string" } } } });
    paths.insert("/errors/{code}".into(), json!({ "get": { "tags": ["operations"], "summary": "What an error code means", "parameters": code, "responses": { "200": ok } } }));
    let upgrade = json!({ "description": "Switches to the subprotocol mq.v1.json" });
    let needed = json!({ "description": "upgrade_required", "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } } });
    paths.insert("/v1/ws".into(), json!({ "get": { "tags": ["operations"], "summary": "WebSocket, subprotocol mq.v1.json", "responses": { "101": upgrade, "426": needed } } }));
}
