//! Brokers that take requests and do not answer: stopped, stuck on their disk, or behind a link that drops everything.
//!
//! A call that waits for one of them must not use up the time of the whole request while others could serve it. Who does
//! not answer for [`PATIENCE`] is noted; from then on the others go first and nobody waits for it, until any answer of it
//! comes. One small question is kept open to it meanwhile.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use remoting::{ErrorKind, RemotingError};
use tokio::time::{Instant, timeout_at};
use wire::{Command, RequestCode};

use super::{Upstream, mapping};
use crate::error::ApiError;

/// How long a broker may take to answer before the others go on without it.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// The same for one that is known to be silent: it may be back.
pub(super) const GRACE: Duration = Duration::from_millis(100);
/// How long one question to a silent broker stays open, and the shortest time between two.
const PROBE: Duration = Duration::from_secs(5);
/// Addresses noted at a time; more are waited for.
const ADDRESSES_MAX: usize = 1_000;

/// Addresses that do not answer.
#[derive(Debug, Default)]
pub(super) struct Silence {
    addresses: Mutex<HashSet<String>>,
    count: AtomicUsize,
}

impl Silence {
    /// Whether this address owes an answer for long.
    pub(super) fn has(&self, addr: &str) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.addresses.lock().contains(addr)
    }

    /// True where it was not noted before.
    fn note(&self, addr: &str) -> bool {
        let mut addresses = self.addresses.lock();
        let is_new = addresses.len() < ADDRESSES_MAX && addresses.insert(addr.to_owned());
        self.count.store(addresses.len(), Ordering::Relaxed);
        is_new
    }

    /// True where it was noted.
    fn heard(&self, addr: &str) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut addresses = self.addresses.lock();
        let was_silent = addresses.remove(addr);
        self.count.store(addresses.len(), Ordering::Relaxed);
        was_silent
    }
}

impl Upstream {
    /// Sends one request and waits at most `timeout`; every call to a broker or name server goes this way.
    ///
    /// # Errors
    /// No answer.
    pub(super) async fn invoke(
        &self,
        addr: &str,
        command: Command,
        timeout: Duration,
    ) -> Result<Command, RemotingError> {
        let answer = self.0.client.invoke(addr, command, timeout).await;
        match &answer {
            Ok(_) => self.heard(addr),
            Err(error) if error.kind == ErrorKind::Timeout && timeout >= PATIENCE => {
                self.fell_silent(addr);
            }
            Err(_) => {}
        }
        answer
    }

    /// Whether the others go first.
    pub(super) fn is_silent(&self, addr: &str) -> bool {
        self.0.silence.has(addr)
    }

    /// It did not answer for [`PATIENCE`].
    pub(super) fn fell_silent(&self, addr: &str) {
        if self.0.silence.note(addr) {
            tracing::warn!(addr, "does not answer; others go first until it does");
            let (upstream, addr) = (self.clone(), addr.to_owned());
            self.0
                .options
                .tracker
                .spawn(async move { upstream.probe(&addr).await });
        }
    }

    fn heard(&self, addr: &str) {
        if self.0.silence.heard(addr) {
            tracing::info!(addr, "answers again");
        }
    }

    /// Asks until there is an answer, or a failure at once: then nobody waits for it.
    async fn probe(&self, addr: &str) {
        while self.is_silent(addr) {
            let question =
                Command::request(RequestCode::GetGroup).with_ext("group", "GANTRY_GATEWAY");
            let next = Instant::now() + PROBE;
            let answer = tokio::select! {
                answer = self.invoke(addr, question, PROBE) => answer,
                () = self.0.options.draining.cancelled() => return,
            };
            match answer {
                Err(error) if error.kind == ErrorKind::Timeout => {}
                // Nobody took the connection, which took as long.
                Err(_) if Instant::now() + PROBE > next + PATIENCE => {
                    tokio::time::sleep_until(next).await;
                }
                _ => self.heard(addr),
            }
        }
    }

    /// Asks several at the same time; answers in the order asked. Nobody is waited for beyond `deadline`. Once one has
    /// answered, or where `enough` says that none needs to, nobody is waited for longer than `patience`, nor is a silent
    /// one longer than 100 ms.
    pub(super) async fn ask_each<'a>(
        &self,
        asked: impl IntoIterator<Item = (&'a str, Command)>,
        mut enough: bool,
        patience: Duration,
        deadline: Instant,
    ) -> Vec<Result<Command, ApiError>> {
        let begun = Instant::now();
        let (mut answers, mut waits) = (Vec::new(), Vec::new());
        let mut calls = FuturesUnordered::new();
        for (at, (addr, command)) in asked.into_iter().enumerate() {
            let wait = if self.is_silent(addr) {
                GRACE
            } else {
                patience
            };
            waits.push(Some((addr, begun + wait)));
            answers.push(Err(mapping::unanswered()));
            calls.push(async move { (at, self.call(addr, command, deadline).await) });
        }
        while let Some(longest) = waits.iter().flatten().map(|(_, until)| *until).max() {
            let until = if enough {
                longest.min(deadline)
            } else {
                deadline
            };
            let Ok(Some((at, answer))) = timeout_at(until, calls.next()).await else {
                break;
            };
            enough |= answer.is_ok();
            (answers[at], waits[at]) = (answer, None);
        }
        if begun.elapsed() >= PATIENCE {
            for (addr, _) in waits.into_iter().flatten() {
                self.fell_silent(addr);
            }
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_a_silence() {
        let silence = Silence::default();
        assert!(!silence.has("a") && !silence.heard("a"));
        assert!(silence.note("a") && silence.note("b"));
        assert!(!silence.note("a"));
        assert!(silence.has("a") && !silence.has("c"));
        assert!(silence.heard("a") && !silence.has("a") && silence.has("b"));
        for n in 0..2 * ADDRESSES_MAX {
            silence.note(&n.to_string());
        }
        assert_eq!(silence.addresses.lock().len(), ADDRESSES_MAX);
    }
}
