//! Bodies that native clients compressed: inflated on threads of their own, a few answers at a time, within a bound.

use super::Upstream;
use super::decode::{self, Content};
use crate::error::{ApiError, Code};
use bytes::Bytes;
use std::sync::Arc;
use wire::message::record::RecordView;

/// Answers that are inflated at a time.
pub(super) const AT_A_TIME: usize = 8;

impl Upstream {
    /// What `read` makes of an answer with the records of `body`.
    ///
    /// # Errors
    /// Those of `read`; `internal` where it panicked.
    pub(super) async fn reading<T: Send + 'static>(
        &self,
        body: &Bytes,
        read: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let deflated = |r: Result<RecordView<'_>, _>| r.is_ok_and(|r| decode::is_deflated(&r));
        if !RecordView::each(body).any(deflated) {
            return read();
        }
        // Inflating takes its time, and its memory until it is counted.
        let place = Arc::clone(&self.0.inflating).acquire_owned().await.ok();
        let reading = tokio::task::spawn_blocking(move || {
            let _place = place;
            read()
        });
        reading.await.map_err(|_| unreadable())?
    }
}

/// How many bytes of inflated bodies an answer may still hold. The broker counted them as they are stored.
#[derive(Debug)]
pub(super) struct InflateRoom {
    left: usize,
    used: bool,
}

impl InflateRoom {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            left: bytes,
            used: false,
        }
    }

    /// The content of the next record; `None` once its body inflates beyond what is left. A first one fits in any case.
    pub(super) fn content(&mut self, record: &RecordView<'_>, source: &Bytes) -> Option<Content> {
        let content = decode::content(record, source);
        if decode::is_deflated(record) {
            let left = self.left.checked_sub(content.body.len());
            if left.is_none() && self.used {
                return None;
            }
            self.left = left.unwrap_or(0);
        }
        self.used = true;
        Some(content)
    }
}

pub(super) fn unreadable() -> ApiError {
    ApiError::new(Code::Internal, "the broker's answer cannot be read")
}
