//! The admin listener: `/healthz`, `/readyz`, `/metrics` over HTTP, loopback unless set otherwise.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::context::Context;
use crate::metrics::CONTENT_TYPE;
use crate::ready::Role;

/// The admin routes, to be served here or beneath another server's own routes.
pub fn router(ctx: &Context) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(ctx.clone())
}

/// Listens at `addr` until the context's shutdown and tells the address as `role`.
///
/// # Errors
/// The address cannot be bound.
pub async fn serve(addr: SocketAddr, role: Role, ctx: &Context) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(addr).await?;
    let local = listener.local_addr()?;
    ctx.ready.listening(role, local);
    let stop = ctx.shutdown.token();
    let routes = router(ctx);
    ctx.shutdown.spawn(async move {
        let served = axum::serve(listener, routes)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await;
        if let Err(error) = served {
            tracing::error!(%error, role, "admin listener failed");
        }
    });
    Ok(local)
}

async fn readyz(State(ctx): State<Context>) -> impl IntoResponse {
    if ctx.shutdown.is_requested() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    match ctx.ready.check() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn metrics(State(ctx): State<Context>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], ctx.metrics.text())
}
