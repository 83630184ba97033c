//! The listening socket: accepts within a bound, serves HTTP/1.1 and HTTP/2, stops in order.

use super::Peer;
use super::connection::{Phase, WRITE_TIME, WRITE_TIME_SHORT, Watched};
use super::stalled::Stalled;
use super::written::follow;
use crate::memory::Budget;
use crate::state::AppState;
use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::Service;

/// Bytes of a head the library buffers: above our own limits, so that most heads over them get our answer.
const HEAD_BUFFER: usize = 128 * 1_024;
const HEADERS_MAX: usize = 512;
/// How long after the end of a drain a connection may end its request: less than the whole process has left, so that a
/// client that never ends its own is cut off and the stop is still in order.
const DRAIN: Duration = Duration::from_secs(3);

/// Accepts until `stop`; connections are tasks of the state's tracker.
pub async fn serve(listener: TcpListener, app: Router, state: AppState, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(
        state.config.connections_max.min(Semaphore::MAX_PERMITS),
    ));
    let builder = Arc::new(builder());
    loop {
        let place = tokio::select! {
            () = stop.cancelled() => return,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let task = connection(
                    stream,
                    Peer(peer.ip()),
                    app.clone(),
                    state.clone(),
                    Arc::clone(&builder),
                    stop.clone(),
                );
                state.tracker.spawn(async move {
                    task.await;
                    drop(place);
                });
            }
            Err(error) => {
                // Out of file handles, or the peer was gone already: never a reason to stop.
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(HEAD_BUFFER)
        .max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        .max_header_list_size(64 * 1_024)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Ends when an answer was not taken for [`WRITE_TIME`], or [`WRITE_TIME_SHORT`] while memory for answers is short.
async fn give_up(stalled: &Stalled, answers: &Budget) {
    loop {
        tokio::time::sleep(WRITE_TIME_SHORT).await;
        let patience = if answers.is_short() {
            WRITE_TIME_SHORT
        } else {
            WRITE_TIME
        };
        if stalled
            .longest()
            .is_some_and(|since| since.elapsed() >= patience)
        {
            return;
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: Peer,
    app: Router,
    state: AppState,
    builder: Arc<Builder<TokioExecutor>>,
    stop: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY not set");
    }
    let phase = Phase::default();
    let io = Watched::new(
        stream,
        phase.clone(),
        Arc::clone(&state.clock),
        state.gateway_id.clone(),
        state.request_max(),
        Arc::clone(&state.answers),
    );
    let (stalled, answers) = (Stalled::default(), Arc::clone(&state.answers));
    let watched = stalled.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let http2 = request.version() == Version::HTTP_2;
        if http2 {
            phase.free();
        }
        let watched = http2.then(|| watched.clone());
        phase.serving();
        let phase = phase.clone();
        let answer = app.clone().call(request.map(Body::new));
        async move {
            let response = answer.await;
            if response
                .as_ref()
                .is_ok_and(|r| r.status() == StatusCode::SWITCHING_PROTOCOLS)
            {
                phase.free();
            } else {
                phase.answered();
            }
            response.map(|response| follow(response, watched.as_ref()))
        }
    });
    let mut serving = pin!(builder.serve_connection_with_upgrades(TokioIo::new(io), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = give_up(&stalled, &answers) => {
            tracing::debug!("connection cut off: its client does not take an answer");
            return;
        }
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let Ok(ended) = tokio::time::timeout(DRAIN, serving).await else {
                tracing::info!("connection cut off: its request did not end while draining");
                return;
            };
            ended
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
