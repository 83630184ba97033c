//! Why a request is not carried out, and the code it is answered with.

use wire::{ResponseCode, WireError};

use crate::route_table::Refused;

/// A request that is answered with an error.
#[derive(Debug, thiserror::Error)]
pub enum NamesrvError {
    /// A header field is missing or no number.
    #[error("{0}")]
    Header(WireError),
    /// The body does not match the checksum in the header.
    #[error("crc32 not match")]
    Checksum,
    /// The body cannot be read.
    #[error("the body cannot be read: {0}")]
    Body(String),
    /// The registration was refused.
    #[error("{0}")]
    Refused(Refused),
    /// No broker has the topic.
    #[error("No topic route info in name server for the topic: {0}")]
    NoRoute(String),
    /// No such key or namespace.
    #[error("No config item, {0}")]
    NoKey(String),
    /// A list that the settings forbid.
    #[error("disable")]
    Disabled,
    /// A setting that may not be changed.
    #[error("{0}")]
    NotAllowed(String),
    /// More keys than are kept, or the file cannot be written.
    #[error("{0}")]
    Storage(String),
    /// A request code that name servers do not know.
    #[error("request type {0} not supported")]
    Unknown(i32),
}

impl NamesrvError {
    /// The one mapping to response codes.
    #[must_use]
    pub fn code(&self) -> ResponseCode {
        match self {
            Self::Header(_)
            | Self::Checksum
            | Self::Body(_)
            | Self::Refused(_)
            | Self::Disabled
            | Self::Storage(_) => ResponseCode::SystemError,
            Self::NoRoute(_) => ResponseCode::TopicNotExist,
            Self::NoKey(_) => ResponseCode::QueryNotFound,
            Self::NotAllowed(_) => ResponseCode::NoPermission,
            Self::Unknown(_) => ResponseCode::RequestCodeNotSupported,
        }
    }
}

/// Why a name server could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The address cannot be listened on.
    #[error("cannot listen at {addr}; end what listens there or give another address")]
    Listen {
        /// The address.
        addr: std::net::SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The key-value file cannot be read.
    #[error("cannot read {path}")]
    KvFile {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}
