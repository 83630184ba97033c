//! How the queues of a topic are cut into the shares of a group's members, as RocketMQ's clients cut them.

use wire::body::MessageQueue;

/// How queues are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Consecutive queues, shares that differ by at most one.
    Average,
    /// One after the other, round and round.
    Circle,
}

impl Strategy {
    /// By the name a client says; `None` for one that only clients can compute.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "AVG" => Some(Self::Average),
            "AVG_BY_CIRCLE" => Some(Self::Circle),
            _ => None,
        }
    }

    /// The share of the member at place `at` among `members`. All shares together are all queues, each once.
    pub(crate) fn share(
        self,
        queues: &[MessageQueue],
        members: usize,
        at: usize,
    ) -> Vec<MessageQueue> {
        if members == 0 || at >= members {
            return Vec::new();
        }
        match self {
            Self::Average => {
                let (base, rest) = (queues.len() / members, queues.len() % members);
                let start = at * base + at.min(rest);
                let len = base + usize::from(at < rest);
                queues.iter().skip(start).take(len).cloned().collect()
            }
            Self::Circle => queues.iter().skip(at).step_by(members).cloned().collect(),
        }
    }
}

/// What a member pops: all queues of every broker (id -1), or, where `share` is positive and smaller than the number of
/// the others, its own share and those of the next `share` members (RocketMQ 5.4.0 `QueryAssignmentProcessor`).
pub(crate) fn for_pop(
    strategy: Strategy,
    queues: &[MessageQueue],
    members: usize,
    at: usize,
    share: i32,
) -> Vec<MessageQueue> {
    let others = members.saturating_sub(1);
    let share = usize::try_from(share).unwrap_or(0);
    if share == 0 || share >= others {
        let mut brokers: Vec<MessageQueue> = queues
            .iter()
            .map(|queue| MessageQueue {
                queue_id: -1,
                ..queue.clone()
            })
            .collect();
        brokers.dedup();
        return brokers;
    }
    if members > queues.len() {
        // Every member has some queue.
        let queue = queues.get(at % queues.len().max(1));
        return queue.cloned().into_iter().collect();
    }
    (0..=share)
        .flat_map(|step| strategy.share(queues, members, (at + step) % members))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(count: i32) -> Vec<MessageQueue> {
        (0..count)
            .map(|id| MessageQueue::new("t", "b", id))
            .collect()
    }

    #[test]
    fn every_queue_is_in_exactly_one_share() {
        for strategy in [Strategy::Average, Strategy::Circle] {
            for (count, members) in [(8, 3), (2, 5), (4, 1), (0, 2), (7, 7)] {
                let mut all: Vec<MessageQueue> = (0..members)
                    .flat_map(|at| strategy.share(&queues(count), members, at))
                    .collect();
                all.sort_unstable();
                assert_eq!(all, queues(count), "{strategy:?} {members}");
            }
        }
        let ids = |strategy: Strategy, at| -> Vec<i32> {
            let share = strategy.share(&queues(5), 2, at);
            share.iter().map(|queue| queue.queue_id).collect()
        };
        assert_eq!(ids(Strategy::Average, 0), [0, 1, 2]);
        assert_eq!(ids(Strategy::Circle, 1), [1, 3]);
    }

    #[test]
    fn poppers_share_all_queues_or_those_of_their_neighbours() {
        let mut both = queues(2);
        both.extend((0..2).map(|id| MessageQueue::new("t", "c", id)));
        let all = [
            MessageQueue::new("t", "b", -1),
            MessageQueue::new("t", "c", -1),
        ];
        assert_eq!(for_pop(Strategy::Average, &both, 3, 0, 0), all);
        assert_eq!(for_pop(Strategy::Average, &both, 3, 2, 2), all);
        let share: Vec<i32> = for_pop(Strategy::Average, &queues(8), 4, 3, 1)
            .iter()
            .map(|queue| queue.queue_id)
            .collect();
        assert_eq!(share, [6, 7, 0, 1]);
        assert_eq!(
            for_pop(Strategy::Average, &queues(2), 5, 3, 1),
            queues(2)[1..]
        );
    }
}
