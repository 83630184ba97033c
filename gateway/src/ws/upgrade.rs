//! From an HTTP request to a socket: subprotocol, bounds, buffers.

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, Method, Version, header};
use axum::response::Response;
use futures_util::future::OptionFuture;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use openapi::ws::SUBPROTOCOL_JSON;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use wire::body::members::Transport;

use super::driver;
use super::line::Socket;
use crate::error::{ApiError, Code};
use crate::http::Peer;
use crate::params::new_ulid;
use crate::state::AppState;
use crate::upstream::Member;

/// Small, since a gateway holds many idle sockets: 128 KiB a socket is the library's default.
const BUFFER: usize = 4_096;
/// Bound of the library's own write buffer: pings, pongs and a close.
const WRITE_BUFFER_MAX: usize = 64 * 1024;
/// A client's label, characters.
const LABEL_MAX: usize = 64;

/// `GET /v1/ws`: becomes a socket of the subprotocol `mq.v1.json`.
///
/// # Errors
/// `upgrade_required` without an upgrade, `method_not_allowed`, `invalid_field` for a bad handshake or when no
/// subprotocol known here is offered, `draining`, `overloaded` when all sockets are taken.
pub async fn upgrade(
    State(state): State<AppState>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, _) = request.into_parts();
    if parts.method != Method::GET
        && !(parts.version == Version::HTTP_2 && parts.method == Method::CONNECT)
    {
        return Err(
            ApiError::new(Code::MethodNotAllowed, "a socket is opened with GET").with_allow("GET"),
        );
    }
    // The socket is made here of the connection; the checks and the answer are the library's, whose own part gets none.
    let connection = parts.extensions.remove::<OnUpgrade>();
    if connection.is_some() {
        let none = hyper::upgrade::on(axum::http::Request::new(()));
        parts.extensions.insert(none);
    }
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &state)
        .await
        .map_err(|rejection| refused(&rejection))?;
    if !offers(&parts.headers, SUBPROTOCOL_JSON) {
        let detail = format!(
            "offer the subprotocol {SUBPROTOCOL_JSON}: new WebSocket(url, [\"{SUBPROTOCOL_JSON}\"])"
        );
        return Err(ApiError::field(
            Code::InvalidField,
            "header:Sec-WebSocket-Protocol",
            detail,
        ));
    }
    if state.draining.is_cancelled() {
        return Err(ApiError::new(
            Code::Draining,
            "this gateway is going away; connect again",
        ));
    }
    let Some(place) = state.sockets.open() else {
        let detail = format!("this gateway holds its {} sockets", state.config.ws.sockets);
        return Err(ApiError::new(Code::Overloaded, detail).with("limit", state.config.ws.sockets));
    };
    let session = new_ulid(state.clock.now_ms());
    let member = Member {
        label: match label(&parts.headers) {
            Some(label) => format!("{label}.{session}"),
            None => format!("ws-{session}"),
        },
        transport: Transport::WebSocket,
        ip: parts.extensions.get::<Peer>().map(|peer| peer.0),
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_write_buffer_size(WRITE_BUFFER_MAX)
        .max_frame_size(Some(driver::FRAME_MAX))
        .max_message_size(Some(driver::FRAME_MAX));
    let (tracker, under_way) = (state.tracker.clone(), state.under_way.token());
    tracker.spawn(async move {
        if let Some(Ok(connection)) = OptionFuture::from(connection).await {
            let socket = Socket::new(TokioIo::new(connection), config).await;
            driver::run(socket, state, session, member).await;
        }
        drop((place, under_way));
    });
    let upgrade = upgrade.protocols([SUBPROTOCOL_JSON]);
    Ok(upgrade.on_upgrade(|_| async {}))
}

fn refused(rejection: &WebSocketUpgradeRejection) -> ApiError {
    match rejection {
        WebSocketUpgradeRejection::MethodNotGet(_)
        | WebSocketUpgradeRejection::MethodNotConnect(_) => {
            ApiError::new(Code::MethodNotAllowed, "a socket is opened with GET").with_allow("GET")
        }
        WebSocketUpgradeRejection::InvalidWebSocketVersionHeader(_) => ApiError::field(
            Code::InvalidField,
            "header:Sec-WebSocket-Version",
            "expected 13",
        ),
        WebSocketUpgradeRejection::WebSocketKeyHeaderMissing(_) => ApiError::field(
            Code::InvalidField,
            "header:Sec-WebSocket-Key",
            "expected a key",
        ),
        _ => ApiError::new(
            Code::UpgradeRequired,
            "this address speaks WebSocket: send Connection: Upgrade and Upgrade: websocket",
        ),
    }
}

fn offers(headers: &HeaderMap, protocol: &str) -> bool {
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    offered
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|name| name.trim() == protocol)
}

/// The label the client gave itself, where it is one.
fn label(headers: &HeaderMap) -> Option<String> {
    let label = headers.get("mq-client")?.to_str().ok()?.trim();
    (!label.is_empty() && label.len() <= LABEL_MAX).then(|| label.to_owned())
}
