//! Own requests that wait for an answer, by opaque. The waiting caller keeps the deadline; an entry
//! leaves with its answer, with its caller, or with the connection.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use wire::Command;

/// The table of one connection.
#[derive(Debug)]
pub(crate) struct Pending {
    inner: Mutex<Inner>,
    max: usize,
}

#[derive(Debug, Default)]
struct Inner {
    next: i32,
    closed: bool,
    waiting: HashMap<i32, oneshot::Sender<Command>>,
}

/// Why no place was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlace {
    Full,
    Closed,
}

/// A place in the table; dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    table: &'a Pending,
    pub(crate) opaque: i32,
    pub(crate) answer: oneshot::Receiver<Command>,
}

impl Pending {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            inner: Mutex::new(Inner::default()),
            max,
        }
    }

    /// Takes a place under an opaque that no other waiting request has.
    pub(crate) fn place(&self) -> Result<Place<'_>, NoPlace> {
        let (send, answer) = oneshot::channel();
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(NoPlace::Closed);
        }
        if inner.waiting.len() >= self.max {
            return Err(NoPlace::Full);
        }
        loop {
            let opaque = inner.next;
            inner.next = inner.next.checked_add(1).unwrap_or(0);
            if let std::collections::hash_map::Entry::Vacant(slot) = inner.waiting.entry(opaque) {
                slot.insert(send);
                return Ok(Place {
                    table: self,
                    opaque,
                    answer,
                });
            }
        }
    }

    /// Hands an answer to its caller; `false` when nobody waits for it (any more).
    pub(crate) fn complete(&self, answer: Command) -> bool {
        let waiting = self.inner.lock().waiting.remove(&answer.opaque);
        waiting.is_some_and(|caller| caller.send(answer).is_ok())
    }

    /// Ends every wait; later ones are refused.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.waiting.clear();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.table.inner.lock().waiting.remove(&self.opaque);
    }
}
