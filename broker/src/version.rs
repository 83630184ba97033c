//! The version that a table carries to name servers and administrators.

use serde::{Deserialize, Serialize};

/// Version of a table: raised by every change, compared for equality by name servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DataVersion {
    /// Number of changes; kept below 2^31 for peers that parse it as an int.
    pub(crate) counter: i64,
    /// Epoch of the broker group's leader.
    pub(crate) state_version: i64,
    /// Wall time of the last change, in ms.
    pub(crate) timestamp: i64,
}

impl DataVersion {
    /// The version of a fresh table.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            counter: 0,
            state_version: 0,
            timestamp: i64::try_from(now_ms).unwrap_or(i64::MAX),
        }
    }

    /// The next version; never equal to any before it.
    pub(crate) fn bump(&mut self, now_ms: u64) {
        self.counter = if self.counter >= i64::from(i32::MAX) - 1 {
            1
        } else {
            self.counter + 1
        };
        self.timestamp = i64::try_from(now_ms)
            .unwrap_or(i64::MAX)
            .max(self.timestamp);
    }
}
