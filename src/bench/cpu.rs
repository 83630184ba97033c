//! CPU time of a process, from `/proc/<pid>/stat`.

use std::time::Duration;

/// Clock ticks a second on every Linux that this runs on (USER_HZ).
const TICKS_PER_SECOND: u64 = 100;

/// User and system time so far, all threads; none when the process is gone.
pub(crate) fn of_process(pid: &str) -> Option<Duration> {
    ticks(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
        .map(|ticks| Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Fields 14 and 15; the name in field 2 may hold spaces and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse_it() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 700 30 0 0 20 0 4 0 5";
        assert_eq!(ticks(stat), Some(730));
        assert!(of_process("self").is_some());
        assert_eq!(ticks("nonsense"), None);
    }
}
