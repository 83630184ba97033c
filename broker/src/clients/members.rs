//! The live members of a group, of either kind, as operators see them.

use std::collections::{BTreeMap, HashMap};

use wire::body::members::{GroupMember, MemberKind, Transport};

use super::Member;
use super::activity::Seen;
use crate::broker::Broker;

impl Broker {
    /// At most `max` live members of a group, by client after `after`. A call that does not say whose it is makes none.
    pub(crate) fn group_members(&self, group: &str, after: &str, max: usize) -> Vec<GroupMember> {
        let (kinds, now) = (&self.kinds, self.clock.monotonic());
        let leases = kinds.leases.alive(group, now, kinds.lease_silence);
        let leases = leases.into_iter().filter(|(name, _)| name.as_str() > after);
        let mut members: BTreeMap<String, GroupMember> = leases
            .filter_map(|(name, seen)| Some((name.clone(), of_gateway(name, seen)?)))
            .take(max)
            .collect();
        let page = (after, max);
        let natives = self
            .consumers
            .page(group, now, kinds.native_silence(), page);
        let pulls = self.is_native(group, None);
        for native in &natives {
            let member = of_client(native, !pulls(native));
            members.insert(member.client.clone(), member);
        }
        let members = members.into_values().take(max);
        members
            .map(|member| match member.kind {
                MemberKind::Lease => self.with_leases(group, member),
                MemberKind::Native => member,
            })
            .collect()
    }

    /// The gateway of the last call of each live lease member that came through one.
    pub(crate) fn gateways_of_members(&self, group: &str) -> HashMap<String, String> {
        let (kinds, now) = (&self.kinds, self.clock.monotonic());
        let alive = kinds.leases.alive(group, now, kinds.lease_silence);
        let gateway = |seen: Seen| Some(seen.origin?.gateway?.into_string());
        alive
            .into_iter()
            .filter_map(|(name, seen)| Some((name, gateway(seen)?)))
            .collect()
    }

    fn with_leases(&self, group: &str, member: GroupMember) -> GroupMember {
        let now = self.clock.monotonic();
        let counts = self.kinds.rates.of(group, &member.client, now);
        GroupMember {
            in_flight: Some(self.held_by(group, &member.client)),
            acks: Some(u64::from(counts.acks)),
            nacks: Some(u64::from(counts.nacks)),
            ..member
        }
    }
}

fn of_gateway(client: String, seen: Seen) -> Option<GroupMember> {
    let origin = seen.origin?;
    Some(GroupMember {
        client,
        kind: MemberKind::Lease,
        transport: origin.transport,
        gateway: origin.gateway.map(String::from),
        ip: origin.ip.map(|ip| ip.to_string()),
        last_receive_at_ms: seen.received_ms,
        ..GroupMember::default()
    })
}

fn of_client(member: &Member, is_lease: bool) -> GroupMember {
    GroupMember {
        client: member.client_id.to_string(),
        kind: if is_lease {
            MemberKind::Lease
        } else {
            MemberKind::Native
        },
        transport: Some(Transport::Native),
        ip: Some(member.conn.peer().ip().to_string()),
        language: Some(member.language.name().to_owned()),
        last_receive_at_ms: member.received_ms,
        ..GroupMember::default()
    }
}
