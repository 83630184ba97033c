//! Producers by group.

use std::collections::HashMap;

use clock::Monotonic;
use parking_lot::Mutex;

use super::{MEMBERS_MAX, Member};
use crate::group::GROUPS_MAX;

/// Producers by group and connection.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    groups: Mutex<HashMap<String, HashMap<u64, Member>>>,
}

impl Producers {
    /// Notes a heartbeat. False when a bound is reached.
    pub(crate) fn heartbeat(&self, group: &str, member: Member) -> bool {
        let mut groups = self.groups.lock();
        if !groups.contains_key(group) && groups.len() >= GROUPS_MAX {
            return false;
        }
        let members = groups.entry(group.to_owned()).or_default();
        if members.len() >= MEMBERS_MAX && !members.contains_key(&member.conn.id()) {
            return false;
        }
        members.insert(member.conn.id(), member);
        true
    }

    /// A client left a group, or all groups.
    pub(crate) fn remove(&self, conn_id: u64, group: Option<&str>) {
        let mut groups = self.groups.lock();
        match group {
            Some(group) => {
                if let Some(members) = groups.get_mut(group) {
                    members.remove(&conn_id);
                    if members.is_empty() {
                        groups.remove(group);
                    }
                }
            }
            None => groups.retain(|_, members| {
                members.remove(&conn_id);
                !members.is_empty()
            }),
        }
    }

    /// Forgets members that have been silent too long.
    pub(crate) fn expire(&self, now: Monotonic) {
        self.groups.lock().retain(|_, members| {
            members.retain(|_, member| member.is_live(now));
            !members.is_empty()
        });
    }

    /// The members of a group.
    pub(crate) fn members(&self, group: &str) -> Vec<Member> {
        self.groups
            .lock()
            .get(group)
            .map(|members| members.values().cloned().collect())
            .unwrap_or_default()
    }

    /// All groups with their members.
    pub(crate) fn all(&self) -> Vec<(String, Vec<Member>)> {
        self.groups
            .lock()
            .iter()
            .map(|(group, members)| (group.clone(), members.values().cloned().collect()))
            .collect()
    }
}
