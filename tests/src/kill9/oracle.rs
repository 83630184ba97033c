//! Judges a history: pure, so that it can be shown histories that no correct broker produces.
//!
//! Events carry moments of one logical clock that all clients share: a request has one when it leaves and one when its
//! answer is in. Between two moments `a < b` the first really came first; nothing else is assumed about order.
//! What got no answer is unknown: it may have happened or not, and is never held against the broker.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A point on the logical clock of the clients.
pub type Moment = u64;

/// Where a message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub queue: i32,
    pub offset: i64,
}

/// A send. Every message is sent once, under a number of its own.
#[derive(Clone, Debug)]
pub struct Sent {
    pub message: u64,
    /// Where the answer said it lies; none: no answer, or one that promises nothing.
    pub answered: Option<Place>,
}

/// A message found in the log when the dust has settled.
#[derive(Clone, Debug)]
pub struct Stored {
    pub message: u64,
    pub place: Place,
    /// Whether the body is, byte for byte, the one that was sent under that number.
    pub intact: bool,
}

/// A message handed out by a pop.
#[derive(Clone, Debug)]
pub struct Delivered {
    pub message: u64,
    /// 1 for the first delivery.
    pub attempt: u32,
    /// When the pop left and when its answer was in.
    pub asked: Moment,
    pub arrived: Moment,
    pub intact: bool,
}

/// An ack of one delivery.
#[derive(Clone, Debug)]
pub struct Acked {
    pub message: u64,
    /// That of the delivery it settles.
    pub attempt: u32,
    pub asked: Moment,
    pub outcome: AckOutcome,
}

/// What became of an ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckOutcome {
    /// Answered: settled. The moment is that of the answer.
    Settled(Moment),
    /// Answered: this delivery decides nothing any more.
    Gone,
    /// No answer.
    Unknown,
}

/// Everything the clients saw.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub sent: Vec<Sent>,
    pub stored: Vec<Stored>,
    pub delivered: Vec<Delivered>,
    pub acked: Vec<Acked>,
    /// Whether the queues were drained to the end after the last restart, so that what was never delivered is lost.
    pub drained: bool,
}

impl History {
    /// Everything that was seen of one message, to judge a fault by.
    pub fn about(&self, message: u64) -> String {
        let mut story: Vec<(Moment, String)> = Vec::new();
        story.extend(
            self.sent
                .iter()
                .filter(|it| it.message == message)
                .map(|it| (0, format!("{it:?}"))),
        );
        story.extend(
            self.stored
                .iter()
                .filter(|it| it.message == message)
                .map(|it| (0, format!("{it:?}"))),
        );
        story.extend(
            self.delivered
                .iter()
                .filter(|it| it.message == message)
                .map(|it| (it.arrived, format!("{it:?}"))),
        );
        story.extend(
            self.acked
                .iter()
                .filter(|it| it.message == message)
                .map(|it| (it.asked, format!("{it:?}"))),
        );
        story.sort();
        story
            .into_iter()
            .map(|(_, event)| format!("  {event}\n"))
            .collect()
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The send was answered, the message is nowhere.
    Lost { message: u64, place: Place },
    /// The send was answered with a place, the message lies elsewhere.
    Moved {
        message: u64,
        answered: Place,
        found: Place,
    },
    /// The message lies in more than one place.
    Doubled { message: u64, places: Vec<Place> },
    /// Stored or delivered with another body than it was sent with.
    Changed { message: u64 },
    /// Stored or delivered, never sent.
    Invented { message: u64 },
    /// Two messages, or none where the queue has an entry: the offsets of a queue are not 0, 1, 2, ...
    Offsets {
        queue: i32,
        expected: i64,
        found: i64,
    },
    /// Handed out by a pop that was asked for after an ack of it had been answered.
    Resurrected { message: u64, attempt: u32 },
    /// An ack of an earlier delivery was answered as settled although a later one had been handed out before it was asked.
    FalseAck {
        message: u64,
        attempt: u32,
        later: u32,
    },
    /// Answered as sent and, in a drained queue, neither handed out again nor acked.
    NeverDelivered { message: u64 },
}

impl Fault {
    /// The message it is about; none where it is about a queue.
    pub fn message(&self) -> Option<u64> {
        match self {
            Fault::Lost { message, .. }
            | Fault::Moved { message, .. }
            | Fault::Doubled { message, .. }
            | Fault::Changed { message }
            | Fault::Invented { message }
            | Fault::Resurrected { message, .. }
            | Fault::FalseAck { message, .. }
            | Fault::NeverDelivered { message } => Some(*message),
            Fault::Offsets { .. } => None,
        }
    }
}

/// All broken promises of a history, in order.
pub fn check(history: &History) -> Vec<Fault> {
    let mut faults = BTreeSet::new();
    check_log(history, &mut faults);
    check_offsets(history, &mut faults);
    check_acks(history, &mut faults);
    if history.drained {
        check_drained(history, &mut faults);
    }
    faults.into_iter().collect()
}

fn check_log(history: &History, faults: &mut BTreeSet<Fault>) {
    let known: BTreeSet<u64> = history.sent.iter().map(|sent| sent.message).collect();
    let mut places: HashMap<u64, Vec<Place>> = HashMap::new();
    for stored in &history.stored {
        places.entry(stored.message).or_default().push(stored.place);
        if !known.contains(&stored.message) {
            faults.insert(Fault::Invented {
                message: stored.message,
            });
        } else if !stored.intact {
            faults.insert(Fault::Changed {
                message: stored.message,
            });
        }
    }
    for delivered in &history.delivered {
        if !known.contains(&delivered.message) {
            faults.insert(Fault::Invented {
                message: delivered.message,
            });
        } else if !delivered.intact {
            faults.insert(Fault::Changed {
                message: delivered.message,
            });
        }
    }
    for sent in &history.sent {
        let message = sent.message;
        let found = places.get(&message).map(Vec::as_slice).unwrap_or_default();
        if found.len() > 1 {
            let mut places = found.to_vec();
            places.sort();
            faults.insert(Fault::Doubled { message, places });
        }
        match (sent.answered, found) {
            (Some(place), []) => faults.insert(Fault::Lost { message, place }),
            (Some(answered), [found]) if *found != answered => faults.insert(Fault::Moved {
                message,
                answered,
                found: *found,
            }),
            _ => false,
        };
    }
}

fn check_offsets(history: &History, faults: &mut BTreeSet<Fault>) {
    let mut queues: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    for stored in &history.stored {
        queues
            .entry(stored.place.queue)
            .or_default()
            .push(stored.place.offset);
    }
    for (queue, mut offsets) in queues {
        offsets.sort_unstable();
        if let Some((expected, found)) = (0..)
            .zip(offsets)
            .find(|(expected, found)| expected != found)
        {
            faults.insert(Fault::Offsets {
                queue,
                expected,
                found,
            });
        }
    }
}

fn check_acks(history: &History, faults: &mut BTreeSet<Fault>) {
    let mut settled: HashMap<u64, (Moment, u32)> = HashMap::new();
    for ack in &history.acked {
        if let AckOutcome::Settled(at) = ack.outcome {
            let first = settled.entry(ack.message).or_insert((at, ack.attempt));
            if at < first.0 {
                *first = (at, ack.attempt);
            }
        }
    }
    let mut deliveries: HashMap<u64, Vec<&Delivered>> = HashMap::new();
    for delivered in &history.delivered {
        deliveries
            .entry(delivered.message)
            .or_default()
            .push(delivered);
        if settled
            .get(&delivered.message)
            .is_some_and(|(at, _)| *at < delivered.asked)
        {
            faults.insert(Fault::Resurrected {
                message: delivered.message,
                attempt: delivered.attempt,
            });
        }
    }
    for ack in &history.acked {
        if !matches!(ack.outcome, AckOutcome::Settled(_)) {
            continue;
        }
        // a later attempt exists only because this lease was over; but an ack of it that came first settles the message
        let first = settled.get(&ack.message).map_or(0, |(_, attempt)| *attempt);
        let later = deliveries.get(&ack.message).into_iter().flatten();
        let later = later.filter(|other| {
            other.attempt > ack.attempt && other.arrived < ack.asked && first <= ack.attempt
        });
        if let Some(later) = later.map(|other| other.attempt).max() {
            faults.insert(Fault::FalseAck {
                message: ack.message,
                attempt: ack.attempt,
                later,
            });
        }
    }
}

fn check_drained(history: &History, faults: &mut BTreeSet<Fault>) {
    let delivered: BTreeSet<u64> = history
        .delivered
        .iter()
        .map(|delivered| delivered.message)
        .collect();
    let last_ack: HashMap<u64, bool> = history.acked.iter().fold(HashMap::new(), |mut all, ack| {
        *all.entry(ack.message).or_insert(false) |= ack.outcome != AckOutcome::Gone;
        all
    });
    for sent in history.sent.iter().filter(|sent| sent.answered.is_some()) {
        let settled = last_ack.get(&sent.message).copied().unwrap_or(false);
        if !delivered.contains(&sent.message) || !settled {
            faults.insert(Fault::NeverDelivered {
                message: sent.message,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(message: u64, queue: i32, offset: i64) -> Sent {
        Sent {
            message,
            answered: Some(Place { queue, offset }),
        }
    }

    fn stored(message: u64, queue: i32, offset: i64) -> Stored {
        Stored {
            message,
            place: Place { queue, offset },
            intact: true,
        }
    }

    fn delivered(message: u64, attempt: u32, asked: Moment) -> Delivered {
        Delivered {
            message,
            attempt,
            asked,
            arrived: asked + 1,
            intact: true,
        }
    }

    fn acked(message: u64, attempt: u32, asked: Moment, outcome: AckOutcome) -> Acked {
        Acked {
            message,
            attempt,
            asked,
            outcome,
        }
    }

    /// Two messages sent, delivered and acked, one more of unknown outcome.
    fn good() -> History {
        History {
            sent: vec![
                sent(1, 0, 0),
                sent(2, 0, 1),
                Sent {
                    message: 3,
                    answered: None,
                },
            ],
            stored: vec![stored(1, 0, 0), stored(2, 0, 1)],
            delivered: vec![
                delivered(1, 1, 10),
                delivered(2, 1, 10),
                delivered(2, 2, 20),
            ],
            acked: vec![
                acked(1, 1, 12, AckOutcome::Settled(13)),
                acked(2, 2, 22, AckOutcome::Settled(23)),
            ],
            drained: true,
        }
    }

    #[test]
    fn a_correct_history_has_no_fault() {
        assert_eq!(check(&good()), []);
    }

    #[test]
    fn an_unknown_send_may_be_there_or_not_but_once() {
        let mut history = good();
        history.stored.push(stored(3, 1, 0));
        assert_eq!(check(&history), []);
        history.stored.push(stored(3, 1, 1));
        let places = vec![
            Place {
                queue: 1,
                offset: 0,
            },
            Place {
                queue: 1,
                offset: 1,
            },
        ];
        assert_eq!(check(&history), [Fault::Doubled { message: 3, places }]);
    }

    #[test]
    fn an_answered_send_that_is_missing_is_lost() {
        let mut history = good();
        history.stored.pop();
        assert_eq!(
            check(&history),
            [Fault::Lost {
                message: 2,
                place: Place {
                    queue: 0,
                    offset: 1
                }
            }]
        );
    }

    #[test]
    fn an_answered_send_at_another_place_is_moved() {
        let mut history = good();
        history.sent[1] = sent(2, 0, 7);
        let (answered, found) = (
            Place {
                queue: 0,
                offset: 7,
            },
            Place {
                queue: 0,
                offset: 1,
            },
        );
        assert_eq!(
            check(&history),
            [Fault::Moved {
                message: 2,
                answered,
                found
            }]
        );
    }

    #[test]
    fn changed_and_invented_bodies_are_found() {
        let mut history = good();
        history.stored[0].intact = false;
        history.delivered.push(delivered(99, 1, 30));
        assert_eq!(
            check(&history),
            [
                Fault::Changed { message: 1 },
                Fault::Invented { message: 99 }
            ]
        );
    }

    #[test]
    fn a_hole_in_a_queue_is_found() {
        let mut history = good();
        history.stored.push(stored(3, 0, 3));
        assert_eq!(
            check(&history),
            [Fault::Offsets {
                queue: 0,
                expected: 2,
                found: 3
            }]
        );
    }

    #[test]
    fn a_delivery_asked_for_after_the_answered_ack_is_a_resurrection() {
        let mut history = good();
        history.delivered.push(delivered(1, 2, 14));
        assert_eq!(
            check(&history),
            [Fault::Resurrected {
                message: 1,
                attempt: 2
            }]
        );
    }

    #[test]
    fn a_delivery_under_way_when_the_ack_was_answered_is_none() {
        let mut history = good();
        history.delivered.push(delivered(1, 1, 12));
        assert_eq!(check(&history), []);
    }

    #[test]
    fn an_unanswered_ack_promises_nothing() {
        let mut history = good();
        history.acked[0].outcome = AckOutcome::Unknown;
        history.delivered.push(delivered(1, 2, 50));
        assert_eq!(check(&history), []);
    }

    #[test]
    fn an_ack_of_a_lease_that_was_over_is_false() {
        let mut history = good();
        history.acked[1] = acked(2, 1, 22, AckOutcome::Settled(23));
        assert_eq!(
            check(&history),
            [Fault::FalseAck {
                message: 2,
                attempt: 1,
                later: 2
            }]
        );
        history.acked[1].outcome = AckOutcome::Gone;
        history.acked.push(acked(2, 2, 24, AckOutcome::Settled(25)));
        assert_eq!(check(&history), []);
    }

    #[test]
    fn a_message_that_never_comes_back_is_missed_when_drained() {
        let mut history = good();
        history.acked.pop();
        assert_eq!(check(&history), [Fault::NeverDelivered { message: 2 }]);
        history.drained = false;
        assert_eq!(check(&history), []);
    }
}
