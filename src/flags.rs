//! The flags shown in `--help`; every other key is accepted too, see `--print-config`.

/// A flag with its help. `key` is the setting's key or a short name for it.
pub(crate) struct Flag {
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    pub(crate) help: &'static str,
}

const fn flag(key: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { key, value, help }
}

pub(crate) const UP_ABOUT: &str =
    "Run everything in one process: name server, broker and gateway, on loopback";
pub(crate) const NAMESRV_ABOUT: &str = "Run a name server: knows which broker holds which topic";

/// `gantry up`.
pub(crate) const UP: &[Flag] = &[
    flag(
        "data",
        "DIR",
        "Where messages and settings are kept [default: ./gantry-data]",
    ),
    flag(
        "namesrv.listen",
        "ADDR",
        "Where RocketMQ clients ask for routes [default: 127.0.0.1:9876]",
    ),
];

/// `gantry namesrv`.
pub(crate) const NAMESRV: &[Flag] = &[
    flag(
        "listen",
        "ADDR",
        "Where brokers and clients connect; port 0 picks a free one [default: 0.0.0.0:9876]",
    ),
    flag(
        "data",
        "DIR",
        "Keep the key-value table there [default: in memory only]",
    ),
    flag(
        "admin_listen",
        "ADDR",
        "Health and metrics: an address, auto or off [default: 127.0.0.1, listen port + 1]",
    ),
];
