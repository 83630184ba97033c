//! A table of named, versioned configurations: a snapshot for readers, one writer at a time, deletions kept as versions.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wire::body::config_level::ConfigMark;

use crate::version::DataVersion;

/// Attribute that holds Gantry's configuration version of a topic or group.
pub(crate) const ATTRIBUTE_VERSION: &str = "gantry.version";
/// Attribute that holds when a topic or group was made, epoch ms. It goes with the configuration from broker to broker.
/// Set by the table alone, never by a caller.
pub(crate) const ATTRIBUTE_MADE: &str = "gantry.madeAt";
/// Highest version (2^53): beyond it readers of JSON lose digits. Whoever says a higher one is refused.
pub(crate) const VERSION_MAX: u64 = 1 << 53;
/// Changes remembered for incremental registration.
const CHANGES_MAX: usize = 256;
/// How long a deletion is remembered, ms (30 days).
const DELETION_KEPT_MS: u64 = 30 * 86_400_000;
/// Most deletions remembered; beyond, the oldest is forgotten first.
const DELETIONS_MAX: usize = 100_000;

/// What a table holds.
pub(crate) trait Entry:
    Clone + Debug + PartialEq + Serialize + Send + Sync + 'static
{
    /// Most entries of a table.
    const MAX: usize;

    /// Settings beside those of RocketMQ; the version stands here.
    fn attributes(&self) -> &BTreeMap<String, String>;

    /// The same, to change them.
    fn attributes_mut(&mut self) -> &mut BTreeMap<String, String>;

    /// Whether entries of this name are the same on all brokers that have them.
    fn is_levelled(&self, name: &str) -> bool;

    /// What all brokers that have the entry should agree on, as bytes.
    fn content(&self) -> Vec<u8>;

    /// Puts back what every broker has for itself, whatever the change says. `known` is what was there.
    fn keep_own(&mut self, _known: Option<&Self>, _now_ms: u64) {}

    /// Whether there is more to use than with `known`: until the file has that, a kill would take it back.
    fn outgrows(&self, _known: &Self) -> bool {
        false
    }

    /// Its version; 1 where only native tools wrote it, once, or what stands there can be none.
    fn version(&self) -> u64 {
        self.attributes()
            .get(ATTRIBUTE_VERSION)
            .and_then(|text| text.parse().ok())
            .filter(|version| *version <= VERSION_MAX)
            .unwrap_or(1)
    }

    /// When it was made, epoch ms; 0 where that is not known.
    fn made_ms(&self) -> u64 {
        self.attributes()
            .get(ATTRIBUTE_MADE)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }

    /// Gives it a version.
    fn set_version(&mut self, version: u64) {
        self.attributes_mut()
            .insert(ATTRIBUTE_VERSION.to_owned(), version.to_string());
    }

    /// Decides between two contents of one version: the greater one stays. FNV-1a, 64 bits.
    fn content_hash(&self) -> u64 {
        self.content()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            })
    }
}

/// The version that follows; the highest one stays.
pub(crate) fn after(version: u64) -> u64 {
    version.saturating_add(1).min(VERSION_MAX)
}

/// A deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Deletion {
    /// The version it was.
    pub(crate) version: u64,
    /// When it was, on the clock of the broker where it was, ms.
    pub(crate) at_ms: u64,
    /// When it was done here, ms; 0 where that was not noted.
    pub(crate) here_ms: u64,
    /// Progress goes too, where that is not a matter of course: a start that finishes the deletion must know.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) clean: bool,
}

impl Deletion {
    /// When this broker came to know of it, by its own clock, ms.
    pub(crate) fn noted_ms(&self) -> u64 {
        if self.here_ms == 0 {
            self.at_ms
        } else {
            self.here_ms
        }
    }
}

/// What became of a deletion that another broker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buried {
    /// What is here is newer, or the deletion is known.
    Known,
    /// There was nothing to delete; it is remembered.
    Remembered,
    /// What is here was made after the deletion: it stays, with a version above it.
    Outlived,
    /// The entry is gone.
    Removed,
}

/// Deletions by name.
pub(crate) type Deletions = BTreeMap<String, Deletion>;

type Snapshot<T> = HashMap<Arc<str>, Arc<T>>;

/// Answer of a change.
#[derive(Clone, Debug)]
pub(crate) struct Change<T> {
    /// The entry as it is now.
    pub(crate) config: Arc<T>,
    /// False when the table already held exactly this.
    pub(crate) changed: bool,
}

/// What a name server has to be told: everything, or the entries that changed.
#[derive(Debug)]
pub(crate) struct View<T> {
    /// Sequence number of the last change included.
    pub(crate) sequence: u64,
    /// Version that goes with it.
    pub(crate) version: DataVersion,
    /// The entries to send.
    pub(crate) entries: Vec<Arc<T>>,
    /// All entries of the table are included.
    pub(crate) full: bool,
}

#[derive(Debug)]
struct Inner {
    version: DataVersion,
    sequence: u64,
    /// Sequence up to which the file has everything.
    saved: u64,
    /// Names that are to be had since a change after that, with its sequence.
    unsaved: HashMap<String, u64>,
    changes: VecDeque<(u64, Arc<str>)>,
    deleted: Deletions,
}

/// Readers take a snapshot; writers are serialized.
#[derive(Debug)]
pub(crate) struct Table<T> {
    snapshot: ArcSwap<Snapshot<T>>,
    /// Number of unsaved names: mostly none, and then nobody looks for one.
    unsaved: AtomicUsize,
    /// Held by who writes the file for all that wait for it.
    saving: Mutex<()>,
    inner: Mutex<Inner>,
}

impl<T: Entry> Table<T> {
    /// An empty table.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            snapshot: ArcSwap::from_pointee(Snapshot::new()),
            unsaved: AtomicUsize::new(0),
            saving: Mutex::new(()),
            inner: Mutex::new(Inner {
                version: DataVersion::new(now_ms),
                sequence: 1,
                saved: 1,
                unsaved: HashMap::new(),
                changes: VecDeque::new(),
                deleted: Deletions::new(),
            }),
        }
    }

    /// Replaces the content by that of the file.
    pub(crate) fn fill(
        &self,
        version: DataVersion,
        entries: impl Iterator<Item = (String, T)>,
        deleted: Deletions,
    ) -> usize {
        let mut inner = self.inner.lock();
        inner.version = version;
        inner.sequence += 1;
        inner.saved = inner.sequence;
        inner.unsaved.clear();
        self.unsaved.store(0, Ordering::Release);
        inner.changes.clear();
        inner.deleted = deleted;
        let map: Snapshot<T> = entries
            .map(|(name, config)| (Arc::from(name), Arc::new(config)))
            .collect();
        let count = map.len();
        self.snapshot.store(Arc::new(map));
        count
    }

    /// Everything, as its file wants it.
    pub(crate) fn export(&self) -> (DataVersion, BTreeMap<String, T>, Deletions) {
        let inner = self.inner.lock();
        let entries = self
            .snapshot
            .load()
            .iter()
            .map(|(name, config)| (name.to_string(), config.as_ref().clone()))
            .collect();
        (inner.version, entries, inner.deleted.clone())
    }

    /// The entry, if it exists. Cheap: no lock.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<T>> {
        self.snapshot.load().get(name).cloned()
    }

    /// Whether the entry exists.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.snapshot.load().contains_key(name)
    }

    /// All entries with the version that belongs to them.
    pub(crate) fn all(&self) -> (DataVersion, Vec<Arc<T>>) {
        let inner = self.inner.lock();
        (
            inner.version,
            self.snapshot.load().values().cloned().collect(),
        )
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.snapshot.load().len()
    }

    /// All names, in order.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.snapshot.load().keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Something beside the entries changed that goes with their version.
    pub(crate) fn touch(&self, now_ms: u64) {
        let mut inner = self.inner.lock();
        inner.version.bump(now_ms);
        inner.sequence += 1;
    }

    /// The version in which the name was deleted; 0 where no deletion is remembered.
    pub(crate) fn deleted_in(&self, name: &str) -> u64 {
        self.deletion(name).map_or(0, |deletion| deletion.version)
    }

    /// The deletion of the name, where one is remembered: then there is no entry.
    pub(crate) fn deletion(&self, name: &str) -> Option<Deletion> {
        self.inner.lock().deleted.get(name).copied()
    }

    /// Whether any deletion is remembered.
    pub(crate) fn has_deletions(&self) -> bool {
        !self.inner.lock().deleted.is_empty()
    }

    /// Adds what every table has, without a version of its own.
    pub(crate) fn add_silently(&self, name: &str, config: T) {
        let _alone = self.inner.lock();
        let mut next = self.snapshot.load().as_ref().clone();
        next.entry(Arc::from(name))
            .or_insert_with(|| Arc::new(config));
        self.snapshot.store(Arc::new(next));
    }

    /// Changes one entry; see [`Batch::modify`].
    pub(crate) fn modify(
        &self,
        name: &str,
        now_ms: u64,
        change: impl FnOnce(Option<&T>) -> Option<T>,
    ) -> Option<Change<T>> {
        self.batch(now_ms, |batch| batch.modify(name, change))
    }

    /// Several changes under the table lock that readers see all at once. `work` must not come back to this table to
    /// change it.
    pub(crate) fn batch<R>(&self, now_ms: u64, work: impl FnOnce(&mut Batch<'_, T>) -> R) -> R {
        let mut inner = self.inner.lock();
        let before = self.snapshot.load_full();
        let mut batch = Batch {
            inner: &mut inner,
            before: &before,
            next: None,
            changed: Vec::new(),
            now_ms,
        };
        let result = work(&mut batch);
        let (next, changed) = (batch.next, batch.changed);
        if let Some(next) = next {
            self.publish(&mut inner, next, &changed, now_ms);
        }
        result
    }

    /// Removes an entry; the deletion is a version of its own, and `clean` where progress goes too. Whether anything
    /// changed.
    pub(crate) fn remove(&self, name: &str, now_ms: u64, clean: bool) -> bool {
        let mut inner = self.inner.lock();
        let mut next = self.snapshot.load().as_ref().clone();
        let Some(known) = next.remove(name) else {
            return false;
        };
        if known.is_levelled(name) {
            let deletion = Deletion {
                version: after(known.version()),
                at_ms: now_ms,
                here_ms: now_ms,
                clean,
            };
            remember(&mut inner.deleted, name, deletion);
        }
        self.publish(&mut inner, next, &[Arc::from(name)], now_ms);
        // A removal cannot be said by listing entries: the next registration carries the whole table.
        inner.changes.clear();
        true
    }

    /// Takes over a deletion of another broker: `version`, at `at_ms` by its clock; the progress of what is here goes. An
    /// entry that was made later is not what was deleted, it only did not know of that: it stays and becomes the newer
    /// one.
    pub(crate) fn bury(&self, name: &str, now_ms: u64, version: u64, at_ms: u64) -> Buried {
        let mut inner = self.inner.lock();
        let known = self.get(name);
        let floor = match &known {
            Some(known) => known.version(),
            None => inner.deleted.get(name).map_or(0, |d| d.version),
        };
        if version <= floor {
            return Buried::Known;
        }
        let mut next = self.snapshot.load().as_ref().clone();
        if let Some(known) = &known
            && known.made_ms() > at_ms
        {
            let mut config = known.as_ref().clone();
            config.set_version(after(version));
            next.insert(Arc::from(name), Arc::new(config));
            self.publish(&mut inner, next, &[Arc::from(name)], now_ms);
            return Buried::Outlived;
        }
        next.remove(name);
        if known.as_ref().is_none_or(|known| known.is_levelled(name)) {
            let before = inner.deleted.get(name).is_some_and(|d| d.clean);
            let deletion = Deletion {
                version,
                at_ms,
                here_ms: now_ms,
                clean: known.is_some() || before,
            };
            remember(&mut inner.deleted, name, deletion);
        }
        self.publish(&mut inner, next, &[Arc::from(name)], now_ms);
        // As for any removal.
        inner.changes.clear();
        if known.is_some() {
            Buried::Removed
        } else {
            Buried::Remembered
        }
    }

    fn publish(&self, inner: &mut Inner, next: Snapshot<T>, changed: &[Arc<str>], now_ms: u64) {
        inner.version.bump(now_ms);
        for name in changed {
            inner.sequence += 1;
            if inner.changes.len() == CHANGES_MAX {
                inner.changes.pop_front();
            }
            inner.changes.push_back((inner.sequence, name.clone()));
            if !next.contains_key(name) {
                inner.unsaved.remove(name.as_ref());
            }
        }
        // Before the entries can be seen.
        self.unsaved.store(inner.unsaved.len(), Ordering::Release);
        self.snapshot.store(Arc::new(next));
    }

    /// What a name server that knows everything up to `synced` still needs. The version and the entries belong
    /// together. `None` asks for everything.
    pub(crate) fn registration(&self, synced: Option<u64>) -> View<T> {
        let inner = self.inner.lock();
        let snapshot = self.snapshot.load_full();
        let first_kept = inner
            .changes
            .front()
            .map_or(inner.sequence + 1, |(sequence, _)| *sequence);
        let incremental = synced.filter(|known| known + 1 >= first_kept && *known < inner.sequence);
        let entries = match incremental {
            Some(known) => {
                let mut names: Vec<&str> = inner
                    .changes
                    .iter()
                    .filter(|(sequence, _)| *sequence > known)
                    .map(|(_, name)| name.as_ref())
                    .collect();
                names.sort_unstable();
                names.dedup();
                names
                    .iter()
                    .filter_map(|name| snapshot.get(*name).cloned())
                    .collect()
            }
            None => snapshot.values().cloned().collect(),
        };
        View {
            sequence: inner.sequence,
            version: inner.version,
            entries,
            full: incremental.is_none(),
        }
    }

    /// Whether the entry, or what its last change added, may be lost in a kill. Mostly cheap: one atomic load.
    pub(crate) fn is_unsaved(&self, name: &str) -> bool {
        self.unsaved.load(Ordering::Acquire) > 0 && self.inner.lock().unsaved.contains_key(name)
    }

    /// Has `write` put the table into its file, unless that has every change; whether it did. One write serves all that
    /// came while the one before was under way.
    ///
    /// # Errors
    /// Those of `write`: what is unsaved stays so.
    pub(crate) fn save<E>(&self, write: impl FnOnce() -> Result<(), E>) -> Result<bool, E> {
        let _alone = self.saving.lock();
        let sequence = {
            let inner = self.inner.lock();
            if inner.saved == inner.sequence {
                return Ok(false);
            }
            inner.sequence
        };
        write()?;
        let mut inner = self.inner.lock();
        inner.saved = sequence;
        inner.unsaved.retain(|_, made| *made > sequence);
        self.unsaved.store(inner.unsaved.len(), Ordering::Release);
        Ok(true)
    }

    /// Sequence number of the last change.
    pub(crate) fn sequence(&self) -> u64 {
        self.inner.lock().sequence
    }

    /// The levelled entries and the deletions whose names follow `after`, in order, at most `limit`; and whether there
    /// are more.
    pub(crate) fn marks(&self, after: &str, limit: usize) -> (Vec<ConfigMark>, bool) {
        // Of the lock only what is copied: one more deletion than fits the page is enough to see that there are more.
        let (snapshot, deleted): (_, Vec<(String, u64)>) = {
            let inner = self.inner.lock();
            let behind = (Bound::Excluded(after), Bound::Unbounded);
            let gone = inner.deleted.range::<str, _>(behind).take(limit + 1);
            let gone = gone.map(|(name, deletion)| (name.clone(), deletion.version));
            (self.snapshot.load_full(), gone.collect())
        };
        let mut page: BTreeMap<&str, Result<&Arc<T>, u64>> = BTreeMap::new();
        let live = snapshot
            .iter()
            .filter(|(name, config)| &***name > after && config.is_levelled(name))
            .map(|(name, config)| (name.as_ref(), Ok(config)));
        let gone = deleted
            .iter()
            .map(|(name, version)| (name.as_str(), Err(*version)));
        let mut more = false;
        for (name, found) in live.chain(gone) {
            page.insert(name, found);
            if page.len() > limit {
                page.pop_last();
                more = true;
            }
        }
        let marks = page
            .into_iter()
            .map(|(name, found)| ConfigMark {
                deleted: found.is_err(),
                hash: found
                    .map_or_else(|_| String::new(), |c| format!("{:016x}", c.content_hash())),
                name: name.to_owned(),
                version: found.map_or_else(|version| version, |c| c.version()),
            })
            .collect();
        (marks, more)
    }
}

/// Changes of a table that are not published yet.
#[derive(Debug)]
pub(crate) struct Batch<'a, T> {
    inner: &'a mut Inner,
    before: &'a Snapshot<T>,
    /// Copied from `before` at the first change.
    next: Option<Snapshot<T>>,
    changed: Vec<Arc<str>>,
    now_ms: u64,
}

impl<T: Entry> Batch<'_, T> {
    /// The entry as it will be.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<T>> {
        self.next.as_ref().unwrap_or(self.before).get(name).cloned()
    }

    /// The version in which the name was deleted; 0 where no deletion is remembered.
    pub(crate) fn deleted_in(&self, name: &str) -> u64 {
        self.inner.deleted.get(name).map_or(0, |d| d.version)
    }

    /// Changes one entry: `change` sees what is there and says what shall be. A change gets a version above that of what
    /// was there, a deletion included, whatever it says itself. `None` from `change`, or a full table, leaves everything
    /// as it is.
    pub(crate) fn modify(
        &mut self,
        name: &str,
        change: impl FnOnce(Option<&T>) -> Option<T>,
    ) -> Option<Change<T>> {
        let known = self.get(name);
        let mut wanted = change(known.as_deref())?;
        wanted.keep_own(known.as_deref(), self.now_ms);
        let made = match &known {
            Some(known) => known.attributes().get(ATTRIBUTE_MADE).cloned(),
            None => Some(self.now_ms.to_string()),
        };
        match made {
            Some(made) => wanted
                .attributes_mut()
                .insert(ATTRIBUTE_MADE.to_owned(), made),
            None => wanted.attributes_mut().remove(ATTRIBUTE_MADE),
        };
        if known.as_deref() != Some(&wanted) {
            let floor = match &known {
                Some(known) => known.version(),
                None => self.deleted_in(name),
            };
            if wanted.version() <= floor {
                wanted.set_version(after(floor));
            }
        }
        self.set(name, known, wanted)
    }

    /// Takes over what a peer has, version included. `choose` sees what is there, and the version of a deletion.
    pub(crate) fn take(
        &mut self,
        name: &str,
        choose: impl FnOnce(Option<&T>, u64) -> Option<T>,
    ) -> Option<Change<T>> {
        let known = self.get(name);
        let mut wanted = choose(known.as_deref(), self.deleted_in(name))?;
        wanted.keep_own(known.as_deref(), self.now_ms);
        self.set(name, known, wanted)
    }

    fn set(&mut self, name: &str, known: Option<Arc<T>>, wanted: T) -> Option<Change<T>> {
        let len = self.next.as_ref().unwrap_or(self.before).len();
        match known {
            Some(known) if *known == wanted => {
                return Some(Change {
                    config: known,
                    changed: false,
                });
            }
            None if len >= T::MAX => return None,
            _ => {}
        }
        let (name, config) = (Arc::<str>::from(name), Arc::new(wanted));
        // The number that the change gets when it is published.
        let sequence = self.inner.sequence + self.changed.len() as u64 + 1;
        if known.is_none_or(|known| config.outgrows(&known)) {
            self.inner.unsaved.insert(name.to_string(), sequence);
        }
        let next = self.next.get_or_insert_with(|| self.before.clone());
        next.insert(Arc::clone(&name), config.clone());
        self.inner.deleted.remove(name.as_ref());
        self.changed.push(name);
        Some(Change {
            config,
            changed: true,
        })
    }
}

fn remember(deleted: &mut Deletions, name: &str, deletion: Deletion) {
    let here_ms = deletion.here_ms;
    deleted.insert(name.to_owned(), deletion);
    deleted.retain(|_, deletion| here_ms.saturating_sub(deletion.noted_ms()) < DELETION_KEPT_MS);
    if deleted.len() > DELETIONS_MAX {
        let oldest = deleted
            .iter()
            .min_by_key(|(_, deletion)| deletion.noted_ms())
            .map(|(name, _)| name.clone());
        oldest.and_then(|name| deleted.remove(&name));
    }
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
