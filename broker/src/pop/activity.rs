//! Who uses a group through leases, so that the two kinds of consumers never share one.

use std::collections::HashMap;
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;

/// How long a call keeps its member alive.
const ALIVE: Duration = Duration::from_secs(60);
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
    /// A member called.
    pub(crate) fn seen(&self, group: &str, member: &str, now: Monotonic) {
        let mut groups = self.groups.lock();
        if let Some(members) = groups.get_mut(group) {
            if let Some(last) = members.get_mut(member) {
                *last = now;
            } else {
                if members.len() >= MEMBERS_MAX {
                    members.retain(|_, last| now.since(*last) < ALIVE);
                }
                if members.len() < MEMBERS_MAX {
                    members.insert(member.to_owned(), now);
                }
            }
            return;
        }
        if groups.len() >= GROUPS_MAX {
            groups.retain(|_, members| members.values().any(|last| now.since(*last) < ALIVE));
        }
        if groups.len() < GROUPS_MAX {
            groups.insert(group.to_owned(), HashMap::from([(member.to_owned(), now)]));
        }
    }

    /// Labels of the members alive at `now`, sorted.
    pub(crate) fn alive(&self, group: &str, now: Monotonic) -> Vec<String> {
        let groups = self.groups.lock();
        let Some(members) = groups.get(group) else {
            return Vec::new();
        };
        let mut alive: Vec<String> = members
            .iter()
            .filter(|(_, last)| now.since(**last) < ALIVE)
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
    fn a_member_is_alive_for_a_minute_after_its_last_call() {
        let activity = Activity::default();
        let at = |secs: u64| Monotonic::from_millis(secs * 1_000);
        activity.seen("g", "a", at(0));
        activity.seen("g", "b", at(50));
        assert_eq!(activity.alive("g", at(59)), ["a", "b"]);
        assert_eq!(activity.alive("g", at(60)), ["b"]);
        activity.forget("g");
        assert!(activity.alive("g", at(60)).is_empty());
    }
}
