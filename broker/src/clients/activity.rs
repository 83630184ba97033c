//! Who uses a group through leases, so that the two kinds of consumers never share one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;
use wire::body::members::Transport;

/// Most groups remembered.
const GROUPS_MAX: usize = 100_000;
/// Most members remembered per group.
const MEMBERS_MAX: usize = 1_000;
/// Members that any group may have remembered, however many there are in all.
const MEMBERS_ALWAYS: usize = 64;
/// Beyond so many members in all, a group remembers [`MEMBERS_ALWAYS`] only.
const MEMBERS_IN_ALL: usize = 100_000;
/// How often the silent are looked for where there are too many.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Where a member's last call came from, as far as the call says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// How it is connected.
    pub(crate) transport: Option<Transport>,
    /// The gateway.
    pub(crate) gateway: Option<Box<str>>,
    /// Its address.
    pub(crate) ip: Option<IpAddr>,
}

/// What is known of a lease member.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Its last call.
    last: Monotonic,
    /// When it last asked for messages, epoch ms.
    pub(crate) received_ms: Option<i64>,
    /// `None` for a call that does not say whose it is.
    pub(crate) origin: Option<Origin>,
}

impl Seen {
    fn is_alive(&self, now: Monotonic, silence: Duration) -> bool {
        now.since(self.last) < silence
    }
}

/// Lease members by label.
#[derive(Debug, Default)]
struct Group {
    members: HashMap<String, Seen>,
    swept: Option<Monotonic>,
}

#[derive(Debug, Default)]
struct Inner {
    groups: HashMap<String, Group>,
    /// Members of all groups.
    count: usize,
    swept: Option<Monotonic>,
}

/// Lease members by group.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    inner: Mutex<Inner>,
}

/// Whether the last sweep was so long ago that another one may find something; notes that it is made.
fn is_due(swept: &mut Option<Monotonic>, now: Monotonic) -> bool {
    let due = swept.is_none_or(|at| now.since(at) >= SWEEP_EVERY);
    if due {
        *swept = Some(now);
    }
    due
}

impl Inner {
    fn find(&mut self, group: &str, member: &str) -> Option<&mut Seen> {
        self.groups.get_mut(group)?.members.get_mut(member)
    }

    /// Remembers a new member if there is room. Those silent for `silence` make way where there are too many.
    fn enter(&mut self, group: &str, member: &str, now: Monotonic, silence: Duration) {
        let no_group =
            |inner: &Inner| inner.groups.len() >= GROUPS_MAX && !inner.groups.contains_key(group);
        if no_group(self) || self.count >= MEMBERS_IN_ALL {
            self.sweep(now, silence);
        }
        if no_group(self) {
            return;
        }
        let most = if self.count < MEMBERS_IN_ALL {
            MEMBERS_MAX
        } else {
            MEMBERS_ALWAYS
        };
        let entry = self.groups.entry(group.to_owned()).or_default();
        if entry.members.len() >= most && is_due(&mut entry.swept, now) {
            let before = entry.members.len();
            entry.members.retain(|_, seen| seen.is_alive(now, silence));
            self.count -= before - entry.members.len();
        }
        if entry.members.len() < most {
            self.count += 1;
            let seen = Seen {
                last: now,
                received_ms: None,
                origin: None,
            };
            entry.members.insert(member.to_owned(), seen);
        }
    }

    fn sweep(&mut self, now: Monotonic, silence: Duration) {
        if !is_due(&mut self.swept, now) {
            return;
        }
        self.groups.retain(|_, group| {
            group.members.retain(|_, seen| seen.is_alive(now, silence));
            !group.members.is_empty()
        });
        self.count = self.groups.values().map(|group| group.members.len()).sum();
    }
}

impl Activity {
    /// A member called: from `origin` where that is known, for messages where there is a `received_ms`.
    pub(crate) fn seen(
        &self,
        group: &str,
        member: &str,
        origin: Option<Origin>,
        received_ms: Option<i64>,
        (now, silence): (Monotonic, Duration),
    ) {
        let mut inner = self.inner.lock();
        if inner.find(group, member).is_none() {
            inner.enter(group, member, now, silence);
        }
        if let Some(seen) = inner.find(group, member) {
            seen.last = now;
            seen.received_ms = received_ms.or(seen.received_ms);
            seen.origin = origin.or_else(|| seen.origin.take());
        }
    }

    /// A member is gone.
    pub(crate) fn leave(&self, group: &str, member: &str) {
        let mut inner = self.inner.lock();
        if let Some(group) = inner.groups.get_mut(group)
            && group.members.remove(member).is_some()
        {
            inner.count -= 1;
        }
    }

    /// Whether a member called less than `silence` before `now`.
    pub(crate) fn has_alive(&self, group: &str, now: Monotonic, silence: Duration) -> bool {
        let inner = self.inner.lock();
        let group = inner.groups.get(group);
        group.is_some_and(|group| {
            let mut members = group.members.values();
            members.any(|seen| seen.is_alive(now, silence))
        })
    }

    /// Those that called less than `silence` before `now`, by label.
    pub(crate) fn alive(
        &self,
        group: &str,
        now: Monotonic,
        silence: Duration,
    ) -> Vec<(String, Seen)> {
        let inner = self.inner.lock();
        let Some(group) = inner.groups.get(group) else {
            return Vec::new();
        };
        let members = group.members.iter();
        let mut alive: Vec<(String, Seen)> = members
            .filter(|(_, seen)| seen.is_alive(now, silence))
            .map(|(name, seen)| (name.clone(), seen.clone()))
            .collect();
        alive.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        alive
    }

    /// Forgets a group.
    pub(crate) fn forget(&self, group: &str) {
        let mut inner = self.inner.lock();
        if let Some(group) = inner.groups.remove(group) {
            inner.count -= group.members.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(secs: u64) -> Monotonic {
        Monotonic::from_millis(secs * 1_000)
    }

    fn names(activity: &Activity, group: &str, now: Monotonic) -> Vec<String> {
        let alive = activity.alive(group, now, MINUTE);
        alive.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_member_is_alive_for_a_while_after_its_last_call() {
        let activity = Activity::default();
        let seen = |name: &str, secs| activity.seen("g", name, None, None, (at(secs), MINUTE));
        seen("a", 0);
        seen("b", 50);
        assert_eq!(names(&activity, "g", at(59)), ["a", "b"]);
        assert_eq!(names(&activity, "g", at(60)), ["b"]);
        assert!(activity.has_alive("g", at(109), MINUTE));
        assert!(
            !activity.has_alive("g", at(110), MINUTE) && !activity.has_alive("h", at(0), MINUTE)
        );
        activity.leave("g", "b");
        assert!(names(&activity, "g", at(60)).is_empty());
        seen("b", 60);
        activity.forget("g");
        assert!(names(&activity, "g", at(60)).is_empty());
        assert_eq!(activity.inner.lock().count, 0);
    }

    #[test]
    fn what_a_call_does_not_say_is_kept_from_the_one_before() {
        let activity = Activity::default();
        let origin = Origin {
            transport: Some(Transport::Rest),
            gateway: Some("gw".into()),
            ip: None,
        };
        let time = |secs| (at(secs), MINUTE);
        activity.seen("g", "a", Some(origin.clone()), Some(7), time(0));
        activity.seen("g", "a", None, None, time(1));
        let (_, seen) = activity.alive("g", at(2), MINUTE).remove(0);
        assert_eq!((seen.origin, seen.received_ms), (Some(origin), Some(7)));
    }

    #[test]
    fn a_group_remembers_a_thousand_members_and_the_silent_make_way() {
        let activity = Activity::default();
        let seen = |name: &str, secs| activity.seen("g", name, None, None, (at(secs), MINUTE));
        for n in 0..MEMBERS_MAX {
            seen(&format!("m{n}"), 0);
        }
        seen("late", 30);
        assert_eq!(names(&activity, "g", at(30)).len(), MEMBERS_MAX);
        seen("m0", 30);
        seen("late", 61);
        assert_eq!(names(&activity, "g", at(61)), ["late", "m0"]);
        assert_eq!(activity.inner.lock().count, 2);
    }

    #[test]
    fn many_members_in_all_leave_room_for_a_few_in_each_group() {
        let activity = Activity::default();
        let seen = |group: usize, member: usize| {
            let names = (format!("g{group}"), format!("m{member}"));
            activity.seen(&names.0, &names.1, None, None, (at(0), MINUTE));
        };
        let groups = MEMBERS_IN_ALL / MEMBERS_MAX;
        for group in 0..groups {
            (0..MEMBERS_MAX).for_each(|member| seen(group, member));
        }
        (0..MEMBERS_MAX).for_each(|member| seen(groups, member));
        let last = names(&activity, &format!("g{groups}"), at(0));
        assert_eq!(last.len(), MEMBERS_ALWAYS);
    }
}
