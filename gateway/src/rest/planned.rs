//! Routes of the API that are known but not built: 501 with a problem document, never a weaker promise.

use crate::error::ApiError;
use crate::state::AppState;
use axum::Router;
use axum::routing::{MethodFilter, on};

/// Paths and methods, in the order of the endpoint list.
pub(crate) const PLANNED: &[(&str, &[MethodFilter])] = &[
    ("/v1/ns/{ns}/topics/{topic}/messages/stream", &[POST]),
    ("/v1/ns/{ns}/topics/{topic}/scheduled", &[GET]),
    (
        "/v1/ns/{ns}/topics/{topic}/scheduled/{handle}",
        &[DELETE, PATCH],
    ),
    ("/v1/ns/{ns}/topics/{topic}/transactions", &[GET, POST]),
    ("/v1/ns/{ns}/topics/{topic}/transactions/{id}", &[GET]),
    (
        "/v1/ns/{ns}/topics/{topic}/transactions/{id}/commit",
        &[POST],
    ),
    (
        "/v1/ns/{ns}/topics/{topic}/transactions/{id}/rollback",
        &[POST],
    ),
    ("/v1/ns/{ns}/producers/{producer}", &[GET, PUT, DELETE]),
    ("/v1/ns/{ns}/producers/{producer}/checks/receive", &[POST]),
    ("/v1/ns/{ns}/topics/{topic}/messages/{id}", &[GET]),
    ("/v1/ns/{ns}/topics/{topic}/messages/{id}/body", &[GET]),
    ("/v1/ns/{ns}/topics/{topic}/messages/{id}/timeline", &[GET]),
    ("/v1/ns/{ns}/topics/{topic}/messages/{id}/status", &[GET]),
    ("/v1/ns/{ns}/topics/{topic}/events", &[GET]),
    ("/v1/ns/{ns}/topics/{topic}/stats", &[GET]),
    ("/v1/ns/{ns}/topics/{topic}/purge", &[POST]),
    ("/v1/ns/{ns}/overview", &[GET]),
    ("/v1/ns/{ns}/groups/{group}/events", &[GET]),
    ("/v1/ns/{ns}/groups/{group}/retries", &[GET]),
    ("/v1/ns/{ns}/groups/{group}/retries/deliver-now", &[POST]),
    ("/v1/ns/{ns}/groups/{group}/retries/dead-letter", &[POST]),
    ("/v1/ns/{ns}/groups/{group}/stats", &[GET]),
    ("/v1/ns/{ns}/groups/{group}/keys/unblock", &[POST]),
    ("/v1/ns/{ns}/groups/{group}/seek", &[POST]),
    ("/v1/ns/{ns}/groups/{group}/snapshots", &[GET]),
    (
        "/v1/ns/{ns}/groups/{group}/snapshots/{snapshot}",
        &[GET, PUT, DELETE],
    ),
    ("/v1/ns/{ns}/groups/{group}/dlq/messages/{id}", &[GET]),
    (
        "/v1/ns/{ns}/groups/{group}/dlq/messages/{id}/redrive",
        &[POST],
    ),
    (
        "/v1/ns/{ns}/groups/{group}/dlq/messages/{id}/reopen",
        &[POST],
    ),
    ("/v1/ns/{ns}/groups/{group}/dlq/facets", &[GET]),
    ("/v1/ns/{ns}/groups/{group}/dlq/export", &[GET]),
    ("/v1/ns/{ns}/groups/{group}/dlq/redrive", &[POST]),
    ("/v1/ns/{ns}/groups/{group}/dlq/delete", &[POST]),
    ("/v1/ns/{ns}/groups/{group}/dlq/purge", &[POST]),
    ("/v1/ns/{ns}/jobs", &[GET]),
    ("/v1/ns/{ns}/jobs/{id}", &[GET, PATCH, DELETE]),
    ("/v1/ns/{ns}/jobs/{id}/pause", &[POST]),
    ("/v1/ns/{ns}/jobs/{id}/resume", &[POST]),
    ("/v1/whoami", &[GET]),
    ("/v1/authz/check", &[POST]),
    ("/v1/tickets", &[POST]),
    ("/v1/session", &[POST, DELETE]),
    ("/v1/session/oidc/{provider}/start", &[GET]),
    ("/v1/session/oidc/{provider}/callback", &[GET]),
    ("/v1/tenant", &[GET, PATCH]),
    ("/v1/tenant/usage", &[GET]),
    ("/v1/tenant/quotas", &[GET]),
    ("/v1/tenant/namespaces", &[GET]),
    ("/v1/tenant/namespaces/{id}", &[GET, PUT, DELETE]),
    ("/v1/tenant/keys", &[GET, POST]),
    ("/v1/tenant/keys/{id}", &[GET, PATCH, DELETE]),
    ("/v1/tenant/keys/{id}/rotate", &[POST]),
    ("/v1/tenant/roles", &[GET]),
    ("/v1/tenant/roles/{id}", &[GET, PUT, DELETE]),
    ("/v1/tenant/users", &[GET]),
    ("/v1/tenant/users/{id}", &[GET, PUT, DELETE]),
    ("/v1/tenant/oidc", &[GET]),
    ("/v1/tenant/oidc/{id}", &[GET, PUT, DELETE]),
    ("/v1/tenant/audit", &[GET]),
    ("/v1/tenant/audit/export", &[GET]),
    ("/v1/views", &[GET]),
    ("/v1/views/{id}", &[GET, PUT, DELETE]),
    ("/v1/admin/tenants", &[GET, POST]),
    ("/v1/admin/tenants/{id}", &[GET, PATCH, DELETE]),
    ("/v1/admin/tenants/{id}/suspend", &[POST]),
    ("/v1/admin/tenants/{id}/resume", &[POST]),
    ("/v1/admin/tenants/{id}/quotas", &[GET, PUT]),
    ("/v1/cluster", &[GET]),
    ("/v1/cluster/brokers", &[GET]),
    ("/v1/cluster/brokers/{id}", &[GET]),
    ("/v1/cluster/brokers/{id}/write-protect", &[POST]),
    ("/v1/cluster/brokers/{id}/allow", &[POST]),
    ("/v1/cluster/gateways", &[GET]),
    ("/v1/cluster/gateways/{id}/drain", &[POST]),
    ("/v1/cluster/metrics", &[GET]),
    ("/asyncapi.json", &[GET]),
    ("/gantry.js", &[GET]),
];

const GET: MethodFilter = MethodFilter::GET;
const POST: MethodFilter = MethodFilter::POST;
const PUT: MethodFilter = MethodFilter::PUT;
const PATCH: MethodFilter = MethodFilter::PATCH;
const DELETE: MethodFilter = MethodFilter::DELETE;

/// Answers 501.
async fn not_built() -> ApiError {
    ApiError::not_implemented(
        "this part of the API is known but not built yet; /docs shows what is",
    )
}

pub(super) fn router() -> Router<AppState> {
    PLANNED
        .iter()
        .fold(Router::new(), |router, (path, methods)| {
            let any = methods
                .iter()
                .copied()
                .reduce(MethodFilter::or)
                .unwrap_or(GET);
            router.route(path, on(any, not_built))
        })
}
