//! ULIDs: 48 bits of time, 80 random bits, 26 characters.

use std::cell::Cell;
use ulid::Ulid;

thread_local! {
    /// State of this thread's generator, seeded by the system; 0 = not yet.
    static STATE: Cell<u128> = const { Cell::new(0) };
}

/// A new ULID. Ids are unique, not secret: the random part comes from a seeded 128-bit generator (PCG).
#[must_use]
pub fn new_ulid(now_ms: u64) -> String {
    let random = STATE.with(|state| {
        let mut s = state.get();
        if s == 0 {
            let mut seed = [0_u8; 16];
            // Without a system generator the time is the seed: still unique within this process.
            if getrandom::fill(&mut seed).is_err() {
                seed[..8].copy_from_slice(&now_ms.to_le_bytes());
            }
            s = u128::from_le_bytes(seed) | 1;
        }
        s = s
            .wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645)
            .wrapping_add(0x5851_F42D_4C95_7F2D_1405_7B7E_F767_814F);
        state.set(s);
        s ^ (s >> 64)
    });
    Ulid::from_parts(now_ms, random).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_differ_and_sort_by_time() {
        let ids: HashSet<String> = (0..10_000).map(|_| new_ulid(1)).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.len() == 26));
        assert!(new_ulid(1) < new_ulid(2));
    }
}
