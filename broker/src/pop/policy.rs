//! The rules of one group that decide about a lease: how long, how often, and what after the last time.

/// Longest invisible time, and longest a lease may live in all, ms (12 h).
pub const LEASE_MAX_MS: u64 = 43_200_000;

/// Wait before the next delivery after a nack without its own delay.
#[derive(Debug, Clone, PartialEq)]
pub enum Backoff {
    /// One delay (ms) per attempt, the last repeats.
    List(Vec<u64>),
    /// `initial_ms · multiplier^(attempt-1)`, at most `max_ms`, moved by up to ± `jitter` of itself.
    Exponential {
        /// First delay, ms.
        initial_ms: u64,
        /// Longest delay, ms.
        max_ms: u64,
        /// Growth per attempt, at least 1.
        multiplier: f64,
        /// Fraction 0–0.5.
        jitter: f64,
    },
}

/// What of a group's configuration the lease engine needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Invisible time of a pop that names none, ms.
    pub invisible_ms: u64,
    /// Leases a group may hold at a time on this broker.
    pub max_in_flight: u32,
    /// Deliveries in all before a message is a dead letter.
    pub max_attempts: u32,
    /// Wait after a nack.
    pub backoff: Backoff,
    /// Whether exhausted messages are kept as dead letters, else dropped.
    pub dead_letters: bool,
    /// Nothing is delivered.
    pub paused: bool,
}

impl Policy {
    /// Delay (ms) before the delivery that follows failed `attempt` (1 = the first); `seed` picks the jitter.
    pub fn nack_delay_ms(&self, attempt: u32, seed: u64) -> u64 {
        let step = attempt.max(1) - 1;
        let delay = match &self.backoff {
            Backoff::List(delays) => {
                let last = delays.len().saturating_sub(1);
                delays
                    .get((step as usize).min(last))
                    .copied()
                    .unwrap_or(self.invisible_ms)
            }
            Backoff::Exponential {
                initial_ms,
                max_ms,
                multiplier,
                jitter,
            } => {
                let grown = *initial_ms as f64 * multiplier.max(1.0).powi(step.min(1_000) as i32);
                let moved =
                    grown.min(*max_ms as f64) * (1.0 + jitter.clamp(0.0, 0.5) * signed_unit(seed));
                moved.min(*max_ms as f64).max(0.0) as u64
            }
        };
        delay.min(LEASE_MAX_MS)
    }

    /// Whether a message that failed on delivery `attempt` has had its last one.
    pub fn is_last(&self, attempt: u32) -> bool {
        attempt >= self.max_attempts.max(1)
    }
}

/// A number in -1..1 that depends on nothing but `seed` (splitmix64).
fn signed_unit(seed: u64) -> f64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    (mixed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(backoff: Backoff) -> Policy {
        Policy {
            invisible_ms: 30_000,
            max_in_flight: 10,
            max_attempts: 3,
            backoff,
            dead_letters: true,
            paused: false,
        }
    }

    #[test]
    fn a_list_repeats_its_last_delay_and_an_empty_one_waits_the_invisible_time() {
        let list = policy(Backoff::List(vec![1_000, 5_000]));
        let delays: Vec<u64> = (1..=4)
            .map(|attempt| list.nack_delay_ms(attempt, 0))
            .collect();
        assert_eq!(delays, [1_000, 5_000, 5_000, 5_000]);
        assert_eq!(
            policy(Backoff::List(Vec::new())).nack_delay_ms(1, 0),
            30_000
        );
    }

    #[test]
    fn exponential_grows_to_its_maximum_and_jitter_stays_inside_its_fraction() {
        let plain = policy(Backoff::Exponential {
            initial_ms: 100,
            max_ms: 1_000,
            multiplier: 2.0,
            jitter: 0.0,
        });
        let delays: Vec<u64> = (1..=6)
            .map(|attempt| plain.nack_delay_ms(attempt, 1))
            .collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_000, 1_000]);
        let moved = policy(Backoff::Exponential {
            initial_ms: 1_000,
            max_ms: 10_000,
            multiplier: 2.0,
            jitter: 0.5,
        });
        for seed in 0..1_000 {
            assert!((500..=1_500).contains(&moved.nack_delay_ms(1, seed)));
        }
        assert_eq!(plain.nack_delay_ms(u32::MAX, 0), 1_000);
    }

    #[test]
    fn the_last_attempt_is_the_configured_one() {
        let list = policy(Backoff::List(vec![1]));
        assert!(!list.is_last(2) && list.is_last(3) && list.is_last(4));
    }
}
