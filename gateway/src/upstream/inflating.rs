//! Bodies that native clients compressed: inflated on threads of their own, a few answers at a time, within a bound.

use super::Upstream;
use super::decode::{self, Content};
use crate::error::{ApiError, Code};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use wire::message::record::RecordView;

/// Answers that are inflated at a time.
pub(super) const AT_A_TIME: usize = 8;

/// A place to inflate an answer; `None` where nothing of it is deflated.
pub(super) type Place = Option<OwnedSemaphorePermit>;

impl Upstream {
    /// What `read` makes of an answer with the records of `body`.
    ///
    /// # Errors
    /// Those of `read`; `overloaded` where no place is free until the deadline; `internal` where it panicked.
    pub(super) async fn reading<T: Send + 'static>(
        &self,
        body: &Bytes,
        deadline: Instant,
        read: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let place = self.place_to_inflate(body, deadline).await?;
        read_at(place, read).await
    }

    /// A place for an answer with the records of `body`.
    ///
    /// # Errors
    /// `overloaded` where none is free until the deadline.
    pub(super) async fn place_to_inflate(
        &self,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<Place, ApiError> {
        let deflated = |r: Result<RecordView<'_>, _>| r.is_ok_and(|r| decode::is_deflated(&r));
        if !RecordView::each(body).any(deflated) {
            return Ok(None);
        }
        let place = Arc::clone(&self.0.inflating).acquire_owned();
        let busy = "the gateway inflates as many answers as it may; try again";
        match timeout_at(deadline, place).await {
            Ok(Ok(place)) => Ok(Some(place)),
            _ => Err(ApiError::new(Code::Overloaded, busy)),
        }
    }
}

/// What `read` makes of an answer: inflating takes its time, and its memory until it is counted.
///
/// # Errors
/// Those of `read`; `internal` where it panicked.
pub(super) async fn read_at<T: Send + 'static>(
    place: Place,
    read: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let Some(place) = place else {
        return read();
    };
    let reading = tokio::task::spawn_blocking(move || {
        let _place = place;
        read()
    });
    reading.await.map_err(|_| unreadable())?
}

/// How many bytes of inflated bodies an answer may still hold. The broker counted them as they are stored.
#[derive(Debug)]
pub(super) struct InflateRoom {
    left: usize,
    /// How many the first may have.
    first: usize,
    used: bool,
}

impl InflateRoom {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            left: bytes,
            first: decode::INFLATED_MAX,
            used: false,
        }
    }

    /// A first one has to fit as well, in so many bytes.
    pub(super) fn with_first(self, first: usize) -> Self {
        Self { first, ..self }
    }

    /// For no inflated body at all.
    pub(super) fn none() -> Self {
        Self {
            left: 0,
            first: 0,
            used: true,
        }
    }

    /// The content of the next record; `None` once its body inflates beyond what is left.
    pub(super) fn content(&mut self, record: &RecordView<'_>, source: &Bytes) -> Option<Content> {
        let max = if self.used { self.left } else { self.first };
        let (content, inflated) = decode::content_within(record, source, max)?;
        (self.left, self.used) = (self.left.saturating_sub(inflated), true);
        Some(content)
    }
}

pub(super) fn unreadable() -> ApiError {
    ApiError::new(Code::Internal, "the broker's answer cannot be read")
}
