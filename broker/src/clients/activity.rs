//! Who uses a group through leases, so that the two kinds of consumers never share one.

use std::collections::HashMap;
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;

/// Most groups remembered.
const GROUPS_MAX: usize = 100_000;
/// Most members remembered per group.
const MEMBERS_MAX: usize = 64;

/// Lease members by group: label and last call.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    groups: Mutex<HashMap<String, HashMap<String, Monotonic>>>,
}

impl Activity {
    /// A member called. Those silent for `silence` make way where there are too many.
    pub(crate) fn seen(&self, group: &str, member: &str, now: Monotonic, silence: Duration) {
        let mut groups = self.groups.lock();
        if let Some(members) = groups.get_mut(group) {
            if let Some(last) = members.get_mut(member) {
                *last = now;
            } else {
                if members.len() >= MEMBERS_MAX {
                    members.retain(|_, last| now.since(*last) < silence);
                }
                if members.len() < MEMBERS_MAX {
                    members.insert(member.to_owned(), now);
                }
            }
            return;
        }
        if groups.len() >= GROUPS_MAX {
            groups.retain(|_, members| members.values().any(|last| now.since(*last) < silence));
        }
        if groups.len() < GROUPS_MAX {
            groups.insert(group.to_owned(), HashMap::from([(member.to_owned(), now)]));
        }
    }

    /// A member is gone.
    pub(crate) fn leave(&self, group: &str, member: &str) {
        if let Some(members) = self.groups.lock().get_mut(group) {
            members.remove(member);
        }
    }

    /// Whether a member called less than `silence` before `now`.
    pub(crate) fn has_alive(&self, group: &str, now: Monotonic, silence: Duration) -> bool {
        let groups = self.groups.lock();
        let members = groups.get(group);
        members.is_some_and(|members| members.values().any(|last| now.since(*last) < silence))
    }

    /// Labels of the members that called less than `silence` before `now`, sorted.
    pub(crate) fn alive(&self, group: &str, now: Monotonic, silence: Duration) -> Vec<String> {
        let groups = self.groups.lock();
        let Some(members) = groups.get(group) else {
            return Vec::new();
        };
        let mut alive: Vec<String> = members
            .iter()
            .filter(|(_, last)| now.since(**last) < silence)
            .map(|(name, _)| name.clone())
            .collect();
        alive.sort_unstable();
        alive
    }

    /// Forgets a group.
    pub(crate) fn forget(&self, group: &str) {
        self.groups.lock().remove(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_alive_for_a_while_after_its_last_call() {
        let activity = Activity::default();
        let minute = Duration::from_secs(60);
        let at = |secs: u64| Monotonic::from_millis(secs * 1_000);
        activity.seen("g", "a", at(0), minute);
        activity.seen("g", "b", at(50), minute);
        assert_eq!(activity.alive("g", at(59), minute), ["a", "b"]);
        assert_eq!(activity.alive("g", at(60), minute), ["b"]);
        assert!(activity.has_alive("g", at(109), minute));
        assert!(
            !activity.has_alive("g", at(110), minute) && !activity.has_alive("h", at(0), minute)
        );
        activity.leave("g", "b");
        assert!(activity.alive("g", at(60), minute).is_empty());
        activity.seen("g", "b", at(60), minute);
        activity.forget("g");
        assert!(activity.alive("g", at(60), minute).is_empty());
    }
}
