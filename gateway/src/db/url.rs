//! The address of a metadata store, `sqlite:PATH` or `postgres://…`; shown without its password.

use super::DbError;
use serde::{Deserialize, Serialize, Serializer};
use sqlx::postgres::PgConnectOptions;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// An address. What is printed or logged has `***` in place of a password.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct DatabaseUrl(String);

/// What an address names.
#[derive(Debug)]
pub(super) enum Kind {
    /// A file.
    Lite(PathBuf),
    /// A server.
    Postgres(Box<PgConnectOptions>),
}

impl DatabaseUrl {
    /// The embedded store in a file.
    #[must_use]
    pub fn sqlite(path: &std::path::Path) -> Self {
        Self(format!("sqlite:{}", path.display()))
    }

    /// Whether it names a Postgres server.
    #[must_use]
    pub fn is_postgres(&self) -> bool {
        self.0.starts_with("postgres://") || self.0.starts_with("postgresql://")
    }

    /// What it names.
    ///
    /// # Errors
    /// [`DbError::Address`].
    pub(super) fn kind(&self) -> Result<Kind, DbError> {
        let fault = |why: String| DbError::Address {
            url: self.to_string(),
            why,
        };
        if self.is_postgres() {
            let options =
                PgConnectOptions::from_str(&self.0).map_err(|error| fault(error.to_string()))?;
            return Ok(Kind::Postgres(Box::new(options)));
        }
        let path = self
            .0
            .strip_prefix("sqlite://")
            .or_else(|| self.0.strip_prefix("sqlite:"))
            .ok_or_else(|| fault("it is of another kind".into()))?;
        if path.is_empty() || path.contains(['?', '\0']) || path == ":memory:" {
            return Err(fault("it names no file".into()));
        }
        Ok(Kind::Lite(path.into()))
    }

    /// What stands before a password with a raw `?` in it; `None` where there is none. Nobody can tell where such a
    /// password ends, so nothing behind it may be shown.
    fn before_unquoted(&self) -> Option<&str> {
        let (_, address) = self.0.split_once("://")?;
        let (user, rest) = address.split_once(':')?;
        let (secret, _) = rest.rsplit_once('@')?;
        if user.contains('?') || !secret.contains('?') {
            return None;
        }
        self.0.strip_suffix(rest)?.strip_suffix(':')
    }

    /// Why it cannot be used, if it cannot.
    pub(crate) fn fault(&self) -> Option<String> {
        match self.kind() {
            Err(DbError::Address { why, .. }) => Some(format!(
                "'{self}' cannot be used: {why}; give sqlite:PATH or postgres://USER@HOST/NAME"
            )),
            _ => None,
        }
    }
}

impl From<&str> for DatabaseUrl {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

/// `scheme://user:***@host/…`, and a `password=` parameter likewise; `scheme://user:***` where the password holds a
/// raw `?`.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(before) = self.before_unquoted() {
            return write!(f, "{before}:***");
        }
        let (address, query) = match self.0.split_once('?') {
            Some((address, query)) => (address, Some(query)),
            None => (self.0.as_str(), None),
        };
        let hidden = address.split_once("://").and_then(|(scheme, rest)| {
            let (login, host) = rest.rsplit_once('@')?;
            let (user, _) = login.split_once(':')?;
            Some(format!("{scheme}://{user}:***@{host}"))
        });
        f.write_str(hidden.as_deref().unwrap_or(address))?;
        for (at, pair) in query.into_iter().flat_map(|q| q.split('&')).enumerate() {
            f.write_str(if at == 0 { "?" } else { "&" })?;
            match pair.split_once('=') {
                Some((name, _)) if name.eq_ignore_ascii_case("password") => {
                    write!(f, "{name}=***")?;
                }
                _ => f.write_str(pair)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{self}'")
    }
}

impl Serialize for DatabaseUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("sqlite:/a/b.db", "sqlite:/a/b.db"),
            ("postgres://u@h:1/d", "postgres://u@h:1/d"),
            ("postgres://u:p%40@h/d", "postgres://u:***@h/d"),
            ("postgresql://u:p@q@h/d?a=b", "postgresql://u:***@h/d?a=b"),
            (
                "postgres://h/d?user=u&password=p",
                "postgres://h/d?user=u&password=***",
            ),
            ("postgres://u:p?q@h/d?a=b", "postgres://u:***"),
            ("postgres://u:1?password=x@y&z@h/d", "postgres://u:***"),
            (
                "postgres://h/d?password=a:b@c",
                "postgres://h/d?password=***",
            ),
            ("postgres://h:1/d?password=p@q", "postgres://h:***"),
        ] {
            let url = DatabaseUrl::from(url);
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("'{shown}'"));
            assert_eq!(serde_json::to_value(&url).unwrap(), shown);
        }
    }

    #[test]
    fn what_names_no_store_says_what_does() {
        for bad in [
            "",
            "mysql://h/d",
            "sqlite:",
            "sqlite://",
            "sqlite::memory:",
            "postgres://h:port/d",
        ] {
            let why = DatabaseUrl::from(bad).fault().unwrap_or_default();
            assert!(why.contains("postgres://USER@HOST/NAME"), "{bad}: {why}");
        }
        for good in [
            "sqlite:x.db",
            "sqlite:///x.db",
            "postgres://u@h/d",
            "postgresql:///d?host=/run",
        ] {
            assert_eq!(DatabaseUrl::from(good).fault(), None, "{good}");
        }
    }
}
