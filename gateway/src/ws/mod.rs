//! The socket protocol `mq.v1.json`.

use crate::error::ApiError;
use crate::state::AppState;
use axum::extract::State;

/// `GET /v1/ws`.
///
/// # Errors
/// 501 until it is there.
pub async fn upgrade(State(state): State<AppState>) -> Result<(), ApiError> {
    let _ = state;
    Err(ApiError::not_implemented("sockets are not there yet"))
}
