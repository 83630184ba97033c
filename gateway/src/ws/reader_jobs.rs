//! What a reader subscription asks of the brokers, as futures that end in one event.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::action::Event;
use super::jobs::{Done, refusal};
use super::reader_fields::ReaderSubscribe;
use crate::error::{ApiError, Code};
use crate::params::{check_namespace, check_topic};
use crate::reader::{Feed, FeedOptions, Origin, TagFilter, Wanted};
use crate::state::AppState;

/// Pause before a read that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// A reader subscription in the driver's hands.
#[derive(Debug, Default)]
pub(super) struct Reading {
    feed: Option<Arc<tokio::sync::Mutex<Feed>>>,
    /// Ends the read under way.
    stop: CancellationToken,
}

impl Reading {
    /// The feed is open.
    pub(super) fn opened(&mut self, feed: Feed) {
        self.feed = Some(Arc::new(tokio::sync::Mutex::new(feed)));
    }

    /// Ends what is under way.
    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// A read in place of the one under way, if any: only one that watches is ever replaced.
    pub(super) fn read(
        &mut self,
        sub: u32,
        wanted: Wanted,
    ) -> Option<impl Future<Output = Done> + Send + use<>> {
        self.stop.cancel();
        self.stop = CancellationToken::new();
        let (feed, stop) = (Arc::clone(self.feed.as_ref()?), self.stop.clone());
        Some(async move {
            let reading = async {
                let mut feed = feed.lock().await;
                let mut wanted = wanted;
                loop {
                    match feed.next(&mut wanted).await {
                        // The tail says when the topic is gone for good.
                        Err(error)
                            if error.code().retryable() || error.code() == Code::TopicNotFound =>
                        {
                            tracing::debug!(%error, "read of a topic failed");
                            tokio::time::sleep(RETRY).await;
                        }
                        result => return result,
                    }
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => Done::Nothing,
                result = reading => Done::Event(Event::Chunk { sub, result: result.map_err(|e| refusal(&e)) }),
            }
        })
    }
}

/// `turns` are those of the socket.
pub(super) async fn open(
    state: AppState,
    turns: Arc<Semaphore>,
    sub: u32,
    spec: Box<ReaderSubscribe>,
) -> Done {
    Done::ReaderOpened {
        sub,
        result: look_up(&state, turns, &spec).await.map(Box::new),
    }
}

async fn look_up(
    state: &AppState,
    turns: Arc<Semaphore>,
    spec: &ReaderSubscribe,
) -> Result<(Feed, Arc<str>), ApiError> {
    check_namespace(&spec.ns)?;
    check_topic(&spec.topic)?;
    let filter = match &spec.tag {
        Some(tag) => TagFilter::parse(tag, "/tag")?,
        None => None,
    };
    let origin = Origin::parse(&state.cursors, &spec.topic, &spec.from, "/from")?;
    let options = FeedOptions {
        topic: spec.topic.as_str().into(),
        filter,
        format: spec.body_format,
        max_rate: spec.max_rate,
        latest_by_key: spec.latest_by_key,
        turns,
    };
    Feed::open(state, options, &origin).await
}
