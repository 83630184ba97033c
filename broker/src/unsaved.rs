//! Topics that are in the table and perhaps not in its file yet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Names, each as often as somebody makes it at this moment.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    /// Looked at first: mostly there is none.
    any: AtomicUsize,
    names: Mutex<HashMap<String, usize>>,
}

/// Somebody makes the topic for as long as this lives.
#[derive(Debug)]
pub(crate) struct Making<'a> {
    unsaved: &'a Unsaved,
    name: String,
}

impl Unsaved {
    /// From before the topic can be seen until its table is on the disk.
    pub(crate) fn enter(&self, name: &str) -> Making<'_> {
        let mut names = self.names.lock();
        *names.entry(name.to_owned()).or_default() += 1;
        self.any.store(names.len(), Ordering::Release);
        Making {
            unsaved: self,
            name: name.to_owned(),
        }
    }

    /// Whether the topic may be lost in a kill.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.any.load(Ordering::Acquire) > 0 && self.names.lock().contains_key(name)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut names = self.unsaved.names.lock();
        if let Some(count) = names.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                names.remove(&self.name);
            }
        }
        self.unsaved.any.store(names.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_unsaved_until_the_last_who_makes_it_is_done() {
        let unsaved = Unsaved::default();
        let first = unsaved.enter("t");
        let second = unsaved.enter("t");
        drop(first);
        assert!(unsaved.contains("t") && !unsaved.contains("u"));
        drop(second);
        assert!(!unsaved.contains("t"));
    }
}
