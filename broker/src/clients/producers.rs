//! Producers by group, and by client id for replies to requests.

use std::collections::HashMap;
use std::sync::Arc;

use clock::Monotonic;
use parking_lot::Mutex;

use super::{MEMBER_SILENCE, MEMBERS_MAX, Member};
use crate::group::GROUPS_MAX;

#[derive(Debug, Default)]
struct Inner {
    /// Group → connection → member.
    groups: HashMap<String, HashMap<u64, Member>>,
    /// Client id → the member that last used it.
    by_client: HashMap<Arc<str>, Member>,
    /// Connection → its client id: one a connection, so that connections bound the clients.
    of_connection: HashMap<u64, Arc<str>>,
}

impl Inner {
    fn note_client(&mut self, member: &Member) {
        let conn_id = member.conn.id();
        let id = member.client_id.clone();
        if let Some(before) = self.of_connection.insert(conn_id, id.clone())
            && before != id
        {
            self.forget_client(conn_id, &before);
        }
        self.by_client.insert(id, member.clone());
    }

    /// Unless the client has reconnected.
    fn forget_client(&mut self, conn_id: u64, client_id: &str) {
        let same = |member: &Member| member.conn.id() == conn_id;
        if self.by_client.get(client_id).is_some_and(same) {
            self.by_client.remove(client_id);
        }
    }
}

/// Producers by group and connection.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    inner: Mutex<Inner>,
}

impl Producers {
    /// Notes a heartbeat. False when a bound is reached.
    pub(crate) fn heartbeat(&self, group: &str, member: &Member) -> bool {
        let mut inner = self.inner.lock();
        if !inner.groups.contains_key(group) && inner.groups.len() >= GROUPS_MAX {
            return false;
        }
        let members = inner.groups.entry(group.to_owned()).or_default();
        if members.len() >= MEMBERS_MAX && !members.contains_key(&member.conn.id()) {
            return false;
        }
        members.insert(member.conn.id(), member.clone());
        inner.note_client(member);
        true
    }

    /// A client left a group, or all groups: its connection has ended.
    pub(crate) fn remove(&self, conn_id: u64, group: Option<&str>) {
        let mut inner = self.inner.lock();
        match group {
            Some(group) => {
                if let Some(members) = inner.groups.get_mut(group) {
                    members.remove(&conn_id);
                    if members.is_empty() {
                        inner.groups.remove(group);
                    }
                }
            }
            None => {
                inner.groups.retain(|_, members| {
                    members.remove(&conn_id);
                    !members.is_empty()
                });
                if let Some(client) = inner.of_connection.remove(&conn_id) {
                    inner.forget_client(conn_id, &client);
                }
            }
        }
    }

    /// Forgets members that have been silent too long.
    pub(crate) fn expire(&self, now: Monotonic) {
        let mut inner = self.inner.lock();
        inner.groups.retain(|_, members| {
            members.retain(|_, member| member.is_live(now, MEMBER_SILENCE));
            !members.is_empty()
        });
        inner
            .by_client
            .retain(|_, member| member.is_live(now, MEMBER_SILENCE));
        let Inner {
            by_client,
            of_connection,
            ..
        } = &mut *inner;
        of_connection.retain(|conn_id, client| {
            by_client
                .get(client)
                .is_some_and(|member| member.conn.id() == *conn_id)
        });
    }

    /// The producer with that client id, whatever its groups.
    pub(crate) fn by_client(&self, client_id: &str) -> Option<Member> {
        let inner = self.inner.lock();
        let member = inner.by_client.get(client_id)?;
        (!member.conn.is_closed()).then(|| member.clone())
    }

    /// The members of a group.
    pub(crate) fn members(&self, group: &str) -> Vec<Member> {
        self.inner
            .lock()
            .groups
            .get(group)
            .map(|members| members.values().cloned().collect())
            .unwrap_or_default()
    }

    /// All groups with their members.
    pub(crate) fn all(&self) -> Vec<(String, Vec<Member>)> {
        self.inner
            .lock()
            .groups
            .iter()
            .map(|(group, members)| (group.clone(), members.values().cloned().collect()))
            .collect()
    }
}
