//! Reading a request body within limits of size and time.

use crate::error::{ApiError, Code};
use crate::memory::{Budget, Held};
use axum::body::{Body, HttpBody};
use axum::http::HeaderMap;
use bytes::Bytes;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// No byte for this long ends the request with 408.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// The declared length, if any.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get("content-length")?.to_str().ok()?.parse().ok()
}

/// Refuses a declared length over the limit, without reading.
pub(super) fn check_length(headers: &HeaderMap, max: usize) -> Result<(), ApiError> {
    match content_length(headers) {
        Some(length) if length > max as u64 => Err(too_large(max).with("actual", length)),
        _ => Ok(()),
    }
}

fn too_large(max: usize) -> ApiError {
    ApiError::new(
        Code::RequestTooLarge,
        format!("a request body may have {max} bytes"),
    )
    .with("limit", max)
    .closing()
}

/// The whole body.
///
/// # Errors
/// `request_too_large`, `request_timeout`, `overloaded`; all end the connection.
pub(super) async fn read_body(
    mut body: Body,
    max: usize,
    budget: &Arc<Budget>,
) -> Result<(Bytes, Option<Held>), ApiError> {
    if body.is_end_stream() {
        return Ok((Bytes::new(), None));
    }
    // The budget is taken as bytes arrive: a length that is only declared holds nothing.
    let mut held = budget.empty();
    let most = body.size_hint().upper().unwrap_or(u64::MAX);
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(max);
    let mut first: Option<Bytes> = None;
    let mut joined: Vec<u8> = Vec::new();
    loop {
        let frame = timeout(SILENCE, poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).await;
        let frame = match frame {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => {
                return Err(ApiError::new(
                    Code::InvalidJson,
                    "the request body ended early or is badly framed",
                )
                .closing());
            }
            Ok(None) => break,
            Err(_) => {
                let detail = format!("no byte of the body came for {} s", SILENCE.as_secs());
                return Err(ApiError::new(Code::RequestTimeout, detail).closing());
            }
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let before = first.as_ref().map_or(joined.len(), Bytes::len);
        let length = before + data.len();
        if length > max {
            return Err(too_large(max));
        }
        if before == 0 {
            if !held.grow(length) {
                return Err(no_room());
            }
            first = Some(data);
            continue;
        }
        if length > joined.capacity() {
            // Doubled, as far as the body may go.
            let capacity = (2 * joined.capacity()).min(most).max(length);
            if !held.grow(capacity.saturating_sub(held.bytes())) {
                return Err(no_room());
            }
            joined.reserve_exact(capacity - joined.len());
        }
        if let Some(start) = first.take() {
            joined.extend_from_slice(&start);
        }
        joined.extend_from_slice(&data);
    }
    let whole = match first {
        Some(whole) => whole,
        None => {
            joined.shrink_to_fit();
            held.set(joined.len());
            joined.into()
        }
    };
    Ok((whole, Some(held)))
}

fn no_room() -> ApiError {
    ApiError::new(
        Code::Overloaded,
        "the gateway holds as many request bodies as it may; try again",
    )
    .closing()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use std::convert::Infallible;

    #[tokio::test]
    async fn memory_grows_with_what_arrived() {
        let parts = ["a", "b", "c"].map(|part| Ok::<_, Infallible>(Bytes::from(part)));
        let budget = Budget::new(4);
        let body = Body::from_stream(stream::iter(parts));
        let (whole, held) = read_body(body, 1 << 20, &budget).await.unwrap();
        assert_eq!(&whole[..], b"abc");
        assert_eq!(held.map(|held| held.bytes()), Some(3));
        assert!(whole.try_into_mut().unwrap().capacity() < 1_024);
    }
}
