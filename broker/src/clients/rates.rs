//! What became of the leases of each member in the last minute.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;

/// Most members counted per group.
const MEMBERS_MAX: usize = 1_000;
/// Most members counted in all.
const MEMBERS_IN_ALL: usize = 100_000;
/// How often the silent are looked for where there are too many.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Part of the minute that is counted together, ms.
const SLOT_MS: u64 = 5_000;
const SLOTS: usize = 12;

/// Leases that were settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Acked.
    pub(crate) acks: u32,
    /// Nacked or rejected.
    pub(crate) nacks: u32,
}

impl Counts {
    fn add(&mut self, more: Counts) {
        self.acks = self.acks.saturating_add(more.acks);
        self.nacks = self.nacks.saturating_add(more.nacks);
    }
}

/// The last minute, slot by slot.
#[derive(Debug, Default)]
struct Window {
    /// Number of the slot since the start, and what was counted in it.
    slots: [(u64, Counts); SLOTS],
}

impl Window {
    fn add(&mut self, slot: u64, more: Counts) {
        let place = usize::try_from(slot % SLOTS as u64).unwrap_or(0);
        if let Some((number, counts)) = self.slots.get_mut(place) {
            if *number != slot {
                (*number, *counts) = (slot, Counts::default());
            }
            counts.add(more);
        }
    }

    fn sum(&self, slot: u64) -> Counts {
        let mut sum = Counts::default();
        for (number, counts) in &self.slots {
            if slot.saturating_sub(*number) < SLOTS as u64 {
                sum.add(*counts);
            }
        }
        sum
    }
}

#[derive(Debug, Default)]
struct Inner {
    groups: HashMap<Arc<str>, HashMap<Arc<str>, Window>>,
    /// Members of all groups.
    count: usize,
    swept: Option<Monotonic>,
}

impl Inner {
    /// Forgets who settled nothing in the last minute. At most once a second.
    fn sweep(&mut self, now: Monotonic) {
        if self.swept.is_some_and(|at| now.since(at) < SWEEP_EVERY) {
            return;
        }
        self.swept = Some(now);
        let slot = slot_of(now);
        self.groups.retain(|_, members| {
            members.retain(|_, window| window.sum(slot) != Counts::default());
            !members.is_empty()
        });
        self.count = self.groups.values().map(HashMap::len).sum();
    }
}

/// Settlements by group and by the member that held the lease.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    inner: Mutex<Inner>,
}

fn slot_of(now: Monotonic) -> u64 {
    now.as_millis() / SLOT_MS
}

impl Rates {
    /// Leases of these members were settled. Where too many members are counted, others make way if they are silent.
    pub(crate) fn settled(
        &self,
        group: &str,
        members: impl IntoIterator<Item = (Arc<str>, Counts)>,
        now: Monotonic,
    ) {
        let mut inner = self.inner.lock();
        let slot = slot_of(now);
        for (member, counts) in members {
            let known = inner.groups.get_mut(group);
            if let Some(window) = known.and_then(|members| members.get_mut(&member)) {
                window.add(slot, counts);
                continue;
            }
            let is_full = |inner: &Inner| {
                let here = inner.groups.get(group).map_or(0, HashMap::len);
                here >= MEMBERS_MAX || inner.count >= MEMBERS_IN_ALL
            };
            if is_full(&inner) {
                inner.sweep(now);
            }
            if !is_full(&inner) {
                inner.count += 1;
                let members = inner.groups.entry(group.into()).or_default();
                members.entry(member).or_default().add(slot, counts);
            }
        }
    }

    /// What became of a member's leases in the last minute.
    pub(crate) fn of(&self, group: &str, member: &str, now: Monotonic) -> Counts {
        let inner = self.inner.lock();
        let window = inner.groups.get(group).and_then(|g| g.get(member));
        window.map_or_else(Counts::default, |window| window.sum(slot_of(now)))
    }

    /// Forgets a group.
    pub(crate) fn forget(&self, group: &str) {
        let mut inner = self.inner.lock();
        if let Some(members) = inner.groups.remove(group) {
            inner.count -= members.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Monotonic {
        Monotonic::from_millis(secs * 1_000)
    }

    fn add(rates: &Rates, member: &str, acks: u32, nacks: u32, secs: u64) {
        rates.settled("g", [(member.into(), Counts { acks, nacks })], at(secs));
    }

    #[test]
    fn a_minute_is_counted_and_no_more() {
        let rates = Rates::default();
        let of = |secs| {
            let counts = rates.of("g", "a", at(secs));
            (counts.acks, counts.nacks)
        };
        assert_eq!(of(0), (0, 0));
        add(&rates, "a", 2, 1, 3);
        add(&rates, "a", 3, 0, 31);
        add(&rates, "b", 9, 9, 31);
        assert_eq!((of(31), of(59)), ((5, 1), (5, 1)));
        assert_eq!((of(60), of(89), of(90)), ((3, 0), (3, 0), (0, 0)));
        // The slot of before is counted anew.
        add(&rates, "a", 1, 0, 63);
        assert_eq!(of(63), (4, 0));
        rates.forget("g");
        assert_eq!((of(63), rates.inner.lock().count), ((0, 0), 0));
    }

    #[test]
    fn a_thousand_members_are_counted_and_the_silent_make_way() {
        let rates = Rates::default();
        for n in 0..MEMBERS_MAX {
            add(&rates, &format!("m{n}"), 1, 0, 1);
        }
        add(&rates, "late", 1, 0, 30);
        add(&rates, "m0", 1, 0, 30);
        assert_eq!(rates.of("g", "late", at(30)).acks, 0);
        assert_eq!(rates.of("g", "m0", at(30)).acks, 2);
        add(&rates, "late", 1, 0, 65);
        assert_eq!(rates.of("g", "late", at(65)).acks, 1);
        assert_eq!(rates.inner.lock().count, 2);
    }
}
