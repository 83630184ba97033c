//! Fuzz targets: every decoder of bytes that come from outside or from the disk, one function each.
//!
//! A target takes any bytes, never panics, and asserts what must hold of whatever was read: written again it reads the
//! same. `corpus/<target>/` holds inputs that reach different code; `tests/everyday.rs` runs them all and some
//! thousand damaged ones; `scripts/fuzz` runs the same functions under libFuzzer for as long as it is told.

#![allow(clippy::panic, reason = "what is wrong shall fail loudly")]

mod bodies;
mod files;
mod frames;
mod handles;
mod leases;
mod records;
mod rest;
mod sockets;
mod texts;

/// A target: its name, which is that of its corpus folder, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 9] = [
    ("frames", frames::run),
    ("bodies", bodies::run),
    ("records", records::run),
    ("texts", texts::run),
    ("leases", leases::run),
    ("rest", rest::run),
    ("sockets", sockets::run),
    ("files", files::run),
    ("handles", handles::run),
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<fn(&[u8])> {
    TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, run)| *run)
}
