//! The readers of the name server, opened to the fuzz targets: each takes anything, must not panic, and reads its own
//! writing.

use crate::kv_config::{parse, text};

/// The file `kvConfig.json`.
pub fn kv_config(json: &[u8]) {
    if let Ok(table) = parse(json) {
        assert_eq!(parse(&text(table.clone())).ok(), Some(table));
    }
}
