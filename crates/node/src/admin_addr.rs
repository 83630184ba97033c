//! Where a process's admin listener goes: by default beside its main port, on loopback.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Setting `admin_listen`: `auto`, `off` or an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdminListen {
    /// Loopback, at the main port plus an offset; a free port when the main one is 0.
    #[default]
    Auto,
    /// None.
    Off,
    /// There.
    At(SocketAddr),
}

impl AdminListen {
    /// The address to bind, given the main listener's and the process's offset from it.
    #[must_use]
    pub fn resolve(self, main: SocketAddr, offset: u16) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(addr) => Some(addr),
            Self::Auto => {
                let port = if main.port() == 0 {
                    0
                } else {
                    main.port().checked_add(offset).unwrap_or(0)
                };
                Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            }
        }
    }
}

impl FromStr for AdminListen {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            addr => addr
                .parse()
                .map(Self::At)
                .map_err(|_| format!("{addr:?} is not auto, off or an address")),
        }
    }
}

impl fmt::Display for AdminListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::At(addr) => addr.fmt(f),
        }
    }
}

impl Serialize for AdminListen {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AdminListen {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_loopback_beside_the_main_port() {
        let main: SocketAddr = "0.0.0.0:9876".parse().unwrap();
        assert_eq!(
            AdminListen::Auto.resolve(main, 1),
            Some("127.0.0.1:9877".parse().unwrap())
        );
        assert_eq!(AdminListen::Off.resolve(main, 1), None);
        let free: SocketAddr = "0.0.0.0:0".parse().unwrap();
        assert_eq!(AdminListen::Auto.resolve(free, 1).unwrap().port(), 0);
        for text in ["auto", "off", "10.0.0.1:80"] {
            assert_eq!(text.parse::<AdminListen>().unwrap().to_string(), text);
        }
        assert!("loopback".parse::<AdminListen>().is_err());
    }
}
