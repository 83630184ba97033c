//! Members of groups: how this gateway names one to brokers, and who is in a group on all of them.

use super::consumer::{UNREACHABLE, leave_out, left_out};
use super::{Upstream, admin, mapping};
use crate::error::ApiError;
use std::collections::BTreeMap;
use std::net::IpAddr;
use tokio::time::Instant;
use wire::body::members::{GroupMember, GroupMembers, Transport};
use wire::ext::ExtFields;
use wire::{Command, RequestCode, ResponseCode};

/// A client of this gateway that takes part in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its leases count for this label; shown in members.
    pub label: String,
    /// How it is connected.
    pub transport: Transport,
    /// Its address as this gateway sees it.
    pub ip: Option<IpAddr>,
}

/// A page of members and where the next begins.
#[derive(Debug, Default)]
pub struct MembersPage {
    /// By client, each once, over all brokers.
    pub members: Vec<GroupMember>,
    /// There are more.
    pub more: bool,
    /// Brokers that could not be asked, with the reason.
    pub partial: Vec<(String, &'static str)>,
}

impl Upstream {
    /// Writes who asks into a pop or a notification.
    pub(super) fn name(&self, member: &Member, ext: &mut ExtFields) {
        ext.put("member", &member.label);
        ext.put("transport", member.transport.as_str());
        ext.put("gateway", &self.0.options.gateway);
        ext.put_opt("memberIp", member.ip.map(|ip| ip.to_string()));
    }

    /// At most `limit` of the live members of a group, by client after `after`.
    ///
    /// # Errors
    /// `group_not_found`, `no_route`, `broker_unavailable` where no broker answers.
    pub async fn members(
        &self,
        group: &str,
        after: &str,
        limit: usize,
        deadline: Instant,
    ) -> Result<MembersPage, ApiError> {
        let command = Command::request(RequestCode::GroupMembers)
            .with_ext("group", group)
            .with_ext("after", after)
            .with_ext("limit", u64::try_from(limit + 1).unwrap_or(u64::MAX));
        let known = self.masters(deadline).await?;
        let answers = self.all_masters(&command, deadline).await?;
        let several = answers.len() > 1;
        let (mut page, mut found, mut last) = (MembersPage::default(), BTreeMap::new(), None);
        for name in self.masters_of_late(&known) {
            if !answers.iter().any(|(broker, _)| *broker == name) {
                leave_out(&mut page.partial, &name, UNREACHABLE);
            }
        }
        for (broker, answer) in &answers {
            match read(answer, group) {
                Ok(members) => members.into_iter().for_each(|m| merge(&mut found, m)),
                Err(error) => {
                    let Some(reason) = left_out(&error, several) else {
                        return Err(error);
                    };
                    leave_out(&mut page.partial, broker, reason);
                    last = Some(error);
                }
            }
        }
        let failed = |(name, _): &(String, _)| page.partial.iter().any(|(out, _)| out == name);
        match last {
            Some(error) if answers.iter().all(failed) => return Err(error),
            _ => {}
        }
        page.more = found.len() > limit;
        page.members = found.into_values().take(limit).collect();
        Ok(page)
    }
}

fn read(answer: &Result<Command, ApiError>, group: &str) -> Result<Vec<GroupMember>, ApiError> {
    let response = answer.as_ref().map_err(ApiError::clone)?;
    match response.response_code() {
        ResponseCode::Success => Ok(admin::body::<GroupMembers>(response)?.members),
        _ => Err(mapping::answer(response, mapping::About::Group(group))),
    }
}

/// Adds what one broker knows of a member to what others do: its last call tells where it is.
fn merge(found: &mut BTreeMap<String, GroupMember>, member: GroupMember) {
    let Some(known) = found.get_mut(&member.client) else {
        found.insert(member.client.clone(), member);
        return;
    };
    let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
    let (in_flight, acks, nacks) = (
        sum(known.in_flight, member.in_flight),
        sum(known.acks, member.acks),
        sum(known.nacks, member.nacks),
    );
    if member.last_receive_at_ms > known.last_receive_at_ms {
        *known = member;
    }
    (known.in_flight, known.acks, known.nacks) = (in_flight, acks, nacks);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_the_last_call_says_where_a_member_is() {
        let member = |gateway: &str, at, held: Option<u64>| GroupMember {
            client: "w".into(),
            gateway: Some(gateway.into()),
            last_receive_at_ms: at,
            in_flight: held,
            acks: Some(2),
            ..GroupMember::default()
        };
        let mut found = BTreeMap::new();
        merge(&mut found, member("gw-1", Some(5), Some(1)));
        merge(&mut found, member("gw-2", Some(9), Some(3)));
        merge(&mut found, member("gw-3", None, None));
        assert_eq!(found.len(), 1);
        let mut expected = member("gw-2", Some(9), Some(4));
        expected.acks = Some(6);
        assert_eq!(found["w"], expected);
    }
}
