//! DataVersion: says whether a table changed.

use serde::{Deserialize, Serialize};

/// Version of a table. Equal means same content; larger does not mean newer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVersion {
    /// Counts changes; kept under 2^31 for readers that cut it there.
    pub counter: i64,
    /// Of the broker's role.
    pub state_version: i64,
    /// Time of the last change, epoch ms.
    pub timestamp: i64,
}

impl DataVersion {
    /// The next version. A time that does not advance still gives a different version.
    pub fn next(&mut self, now_ms: i64, state_version: i64) {
        self.timestamp = now_ms.max(self.timestamp);
        self.counter = if self.counter >= i64::from(i32::MAX) {
            0
        } else {
            self.counter + 1
        };
        self.state_version = state_version;
    }
}
