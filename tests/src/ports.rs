//! Loopback ports that nobody else gets while the process that had one is down, so that it can start there again.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

const LOWEST: u32 = 10_000;
/// A broker listens two ports lower as well, and other roles one port higher.
const APART: u32 = 4;
/// Linux's default.
const FIRST_EPHEMERAL: u32 = 32_768;

/// `127.0.0.1` with a port that no earlier call of this process returned and where nothing listens now.
///
/// # Panics
/// When all of them are taken.
pub fn free() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let range = (first_ephemeral() - LOWEST) / APART;
    // Test processes of several checkouts may run side by side: each begins elsewhere.
    let start = std::process::id().wrapping_mul(613) % range;
    for _ in 0..range {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % range;
        let port = LOWEST + (start + next) % range * APART;
        let addr = format!("127.0.0.1:{port}");
        if TcpListener::bind(&addr).is_ok() {
            return addr;
        }
    }
    panic!("no free port from {LOWEST} on");
}

/// The first port that the system gives to clients and to listeners on port 0.
fn first_ephemeral() -> u32 {
    let told =
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = told
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok());
    first
        .filter(|first| *first > 2 * LOWEST)
        .unwrap_or(FIRST_EPHEMERAL)
}
