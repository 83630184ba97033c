//! Lets a worker sleep until there is work, at no cost to the threads that make work while it runs.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// One sleeper, any number of wakers.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    sleeping: AtomicBool,
    signalled: Mutex<bool>,
    bell: Condvar,
}

impl Gate {
    /// Wakes the sleeper, or does nothing (one fence and one load) if there is none.
    /// Call it after the work has been made visible.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            *self.signalled.lock() = true;
            self.bell.notify_one();
        }
    }

    /// Sleeps until woken, until `ready` holds, or for `at_most`.
    pub(crate) fn sleep(&self, at_most: Duration, ready: impl Fn() -> bool) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            let mut signalled = self.signalled.lock();
            if !*signalled {
                self.bell.wait_for(&mut signalled, at_most);
            }
            *signalled = false;
        }
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn no_wake_is_lost() {
        let gate = Arc::new(Gate::default());
        let made = Arc::new(AtomicU64::new(0));
        let worker = std::thread::spawn({
            let (gate, made) = (Arc::clone(&gate), Arc::clone(&made));
            move || {
                let mut seen = 0;
                while seen < 10_000 {
                    let now = made.load(Ordering::Acquire);
                    if now == seen {
                        // A lost wake would sleep for the whole minute and fail the test run.
                        gate.sleep(Duration::from_secs(60), || {
                            made.load(Ordering::Acquire) != seen
                        });
                    }
                    seen = now;
                }
            }
        });
        for _ in 0..10_000 {
            made.fetch_add(1, Ordering::Release);
            gate.wake();
        }
        worker.join().unwrap();
    }
}
