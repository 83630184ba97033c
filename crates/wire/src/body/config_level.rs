//! Bodies with which brokers level their configuration: LIST_CONFIG 900011, FETCH_CONFIG 900012, OFFER_CONFIG 900013.

use super::object;

object! {
    /// What a table holds of one name.
    ConfigMark {
        /// It was deleted in this version.
        deleted: bool,
        /// Hash of the content, hexadecimal; empty for a deletion.
        hash: String,
        /// Topic or group.
        name: String,
        /// Version.
        version: u64,
    }
}

object! {
    /// Answer of LIST_CONFIG: one page in order of names.
    ConfigList {
        /// The marks.
        marks: Vec<ConfigMark>,
        /// There are further ones, after the last name.
        more: bool,
        /// Names this state of the table; the same text means that nothing has changed.
        state: String,
    }
}

object! {
    /// Request of FETCH_CONFIG.
    ConfigNames {
        /// At most 200.
        names: Vec<String>,
    }
}

object! {
    /// One configuration, or a deletion.
    ConfigEntry {
        /// The object of codes 21 and 201; null = deleted.
        config: serde_json::Value,
        /// Of a deletion: when it was, epoch ms; 0 = this moment.
        deleted_at_ms: u64,
        /// Topic or group.
        name: String,
        /// Version.
        version: u64,
    }
}

object! {
    /// Answer of FETCH_CONFIG, request of OFFER_CONFIG: at most 200 entries.
    ConfigEntries {
        /// The entries.
        entries: Vec<ConfigEntry>,
    }
}

object! {
    /// What became of one offered entry.
    ConfigTaken {
        /// Topic or group.
        name: String,
        /// The broker now has it; false = its own is newer.
        taken: bool,
        /// The broker's version now.
        version: u64,
    }
}

object! {
    /// Answer of OFFER_CONFIG.
    ConfigOffered {
        /// In the order of the offer.
        results: Vec<ConfigTaken>,
    }
}
