//! Settings in layers: defaults, then a TOML file, then the environment, then flags.
//!
//! A key has one name everywhere: `flush.mode` in TOML, `GANTRY_FLUSH_MODE` in the environment,
//! `--flush-mode` on the command line. Every value knows where it came from, and all faults are
//! found before any is reported.

mod fault;
mod keys;
mod load;
mod pinned;
mod print;

pub use fault::{Fault, Faults, Source};
pub use keys::{env_name, flag_name, keys};
pub use load::{Layers, Loaded, load};
pub use pinned::Pinned;

#[cfg(test)]
mod tests;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The settings of one process. Serde attributes `default` and `deny_unknown_fields` belong on it
/// and on every nested structure.
pub trait Settings: Default + Serialize + DeserializeOwned {
    /// Every value that cannot be used, with its key; empty when all is well.
    fn validate(&self) -> Vec<Fault>;

    /// Fills in what follows from other values, after all layers and before it is validated.
    fn derive(&mut self) {}
}
