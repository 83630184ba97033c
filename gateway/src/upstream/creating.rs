//! Turns of topics, groups and subscriptions that are made by being used: few at a time, so that the reads of what exists
//! are not held up at the brokers, and none that cannot be made in time.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::error::{ApiError, Code};

/// Made at a time; a broker has 64 places for administration by default.
const AT_A_TIME: usize = 4;
/// Waiting for a turn.
const WAITING_MAX: usize = 256;
/// What is left of a request's time when its turn comes: for the creation and the request itself.
const NEEDED: Duration = Duration::from_secs(3);

/// Who makes something takes a turn.
#[derive(Debug)]
pub(super) struct Creating {
    running: Semaphore,
    waiting: Semaphore,
}

impl Default for Creating {
    fn default() -> Self {
        Self {
            running: Semaphore::new(AT_A_TIME),
            waiting: Semaphore::new(WAITING_MAX),
        }
    }
}

impl Creating {
    /// A turn. Nothing was begun where it is refused.
    ///
    /// # Errors
    /// `overloaded` where 256 wait already, or the turn does not come 3 s before `deadline`.
    pub(super) async fn turn(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, ApiError> {
        if let Ok(turn) = self.running.try_acquire() {
            return Ok(turn);
        }
        let Ok(_place) = self.waiting.try_acquire() else {
            return Err(refused());
        };
        let latest = deadline.checked_sub(NEEDED).unwrap_or_else(Instant::now);
        match timeout_at(latest, self.running.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            // Nobody closes it.
            Ok(Err(_)) | Err(_) => Err(refused()),
        }
    }
}

fn refused() -> ApiError {
    ApiError::new(
        Code::Overloaded,
        "too many topics and groups are being made at a time; nothing was done, try again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn few_are_made_at_a_time_and_who_has_no_time_left_is_refused_before() {
        let creating = Creating::default();
        let soon = Instant::now() + Duration::from_secs(10);
        let mut turns = Vec::new();
        for _ in 0..AT_A_TIME {
            turns.push(creating.turn(soon).await.unwrap());
        }
        let began = Instant::now();
        let refused = creating.turn(soon).await.unwrap_err();
        assert_eq!(refused.code(), Code::Overloaded);
        assert_eq!(refused.fault().outcome, None);
        assert_eq!(began.elapsed().as_secs(), 7);
        let began = Instant::now();
        let short = Instant::now() + Duration::from_secs(1);
        assert!(creating.turn(short).await.is_err());
        assert!(began.elapsed() < Duration::from_millis(10));
        let far = Instant::now() + Duration::from_secs(60);
        let waits = creating.turn(far);
        let frees = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            turns.pop();
        };
        assert!(tokio::join!(waits, frees).0.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_wait_and_the_next_is_refused_at_once() {
        let creating = Creating::default();
        let far = Instant::now() + Duration::from_secs(60);
        let _turns = creating.running.acquire_many(AT_A_TIME as u32).await;
        let waits = futures_util::future::join_all((0..WAITING_MAX).map(|_| creating.turn(far)));
        let next = async {
            tokio::task::yield_now().await;
            let began = Instant::now();
            let next = creating.turn(far).await;
            (next.is_err(), began.elapsed() < Duration::from_millis(10))
        };
        let (waited, next) = tokio::join!(waits, next);
        assert_eq!(next, (true, true));
        assert!(waited.iter().all(Result::is_err));
    }
}
