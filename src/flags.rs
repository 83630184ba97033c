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
pub(crate) const GATEWAY_ABOUT: &str = "Run a gateway: REST and WebSocket in front of the brokers";
pub(crate) const BROKER_ABOUT: &str = "Run a broker: keeps the messages";

const FLUSH_HELP: &str = "What a successful send means: sync = on the disk, survives a power cut; async = in the \
    page cache, survives a process kill, a power cut may take the last half second [default: sync]";

/// `gantry up`.
pub(crate) const UP: &[Flag] = &[
    flag(
        "data",
        "DIR",
        "Where messages and settings are kept [default: ./gantry-data]",
    ),
    flag(
        "http",
        "ADDR",
        "Where REST, WebSocket and the page are served [default: 127.0.0.1:8080]",
    ),
    flag(
        "namesrv.listen",
        "ADDR",
        "Where RocketMQ clients ask for routes [default: 127.0.0.1:9876]",
    ),
    flag(
        "broker.listen",
        "ADDR",
        "Where RocketMQ clients send and pull [default: 127.0.0.1:10911]",
    ),
    flag("flush.mode", "MODE", FLUSH_HELP),
    flag(
        "segment.size",
        "SIZE",
        "Size of a log file in a new data directory [default: 64MiB]",
    ),
    flag(
        "database_url",
        "URL",
        "Metadata store, sqlite:PATH or postgres://… [default: SQLite in the data directory]",
    ),
    flag(
        "allow_origin",
        "URL",
        "Origin of a web page that may call besides the gateway's own, e.g. a dev server",
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

/// `gantry broker`.
pub(crate) const BROKER: &[Flag] = &[
    flag(
        "data",
        "DIR",
        "Where messages are kept; a store of Apache RocketMQ works too [default: ./gantry-data/broker]",
    ),
    flag(
        "listen",
        "ADDR",
        "Where clients connect; port 0 picks a free one [default: 0.0.0.0:10911]",
    ),
    flag(
        "advertise",
        "ADDR",
        "What clients are told to connect to [default: the listen address]",
    ),
    flag("namesrv", "ADDR,ADDR", "Name servers to register with"),
    flag("cluster", "NAME", "Cluster [default: DefaultCluster]"),
    flag(
        "name",
        "NAME",
        "Name of this broker, unique in the cluster [default: broker-a]",
    ),
    flag(
        "id",
        "N",
        "0 leads; followers are not built yet [default: 0]",
    ),
    flag("flush.mode", "MODE", FLUSH_HELP),
    flag(
        "segment.size",
        "SIZE",
        "Size of a log file in a new data directory [default: 1GiB]",
    ),
    flag(
        "replication",
        "MODE",
        "async is the only mode so far [default: async]",
    ),
    flag(
        "admin_listen",
        "ADDR",
        "Health and metrics: an address, auto or off [default: 127.0.0.1, listen port + 3]",
    ),
];

/// `gantry gateway`.
pub(crate) const GATEWAY: &[Flag] = &[
    flag(
        "listen",
        "ADDR",
        "Where REST and WebSocket are served; port 0 picks a free one [default: 0.0.0.0:8080]",
    ),
    flag(
        "namesrv",
        "ADDR,ADDR",
        "Name servers to ask for brokers [default: 127.0.0.1:9876]",
    ),
    flag(
        "auth",
        "on|off",
        "off: anybody may do anything; accepted on a loopback address only; on: not built yet [default: on]",
    ),
    flag(
        "auto_create",
        "true|false",
        "A send makes its topic; a receive that names a topic makes its group [default: false]",
    ),
    flag(
        "allow_origin",
        "URL",
        "Origin of a web page that may call besides the gateway's own, e.g. a dev server",
    ),
    flag(
        "data",
        "DIR",
        "Where the embedded SQLite database and the master key are kept",
    ),
    flag(
        "database_url",
        "URL",
        "Metadata store, sqlite:PATH or postgres://… [default: SQLite in the data directory]",
    ),
    flag(
        "master_key_file",
        "PATH",
        "Key that seals stored secrets [default: master-key in the data directory; needed with Postgres]",
    ),
    flag(
        "insecure_plain_secrets",
        "true|false",
        "Store secrets in the clear, without a master key",
    ),
    flag(
        "admin_listen",
        "ADDR",
        "Health and metrics: an address, auto or off [default: 127.0.0.1, listen port + 10]",
    ),
];
