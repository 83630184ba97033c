//! Who may ask while authentication is off: a loopback `Host`, no proxy in front, and from browsers the gateway's own
//! origin or one that was named.

use crate::error::{ApiError, Code};
use axum::http::{HeaderMap, Uri};
use std::net::IpAddr;

/// Origins besides the gateway's own: `scheme://host[:port]`, or `scheme://*.domain[:port]` for every name below a domain.
#[derive(Clone, Debug, Default)]
pub struct OriginRules {
    allowed: Vec<String>,
}

/// Whether the origin of a request gets CORS headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// None was sent, or the gateway's own: no CORS headers needed.
    Own,
    /// On the list.
    Listed(String),
}

impl OriginRules {
    /// Of a comma-separated list.
    ///
    /// # Errors
    /// The entry that is no origin.
    pub fn parse(list: &str) -> Result<Self, String> {
        let mut allowed = Vec::new();
        for entry in list
            .split([',', ' '])
            .map(str::trim)
            .filter(|e| !e.is_empty())
        {
            let entry = entry.trim_end_matches('/').to_ascii_lowercase();
            let host = split_origin(&entry).map(|(_, authority)| split_host(authority).0);
            let stars = |host: &str| host.strip_prefix("*.").unwrap_or(host).contains('*');
            if host.is_none_or(|host| stars(host) || host == "*.") {
                return Err(format!(
                    "'{entry}' is no origin such as http://localhost:5173 or https://*.example.com"
                ));
            }
            allowed.push(without_default_port(&entry));
        }
        Ok(Self { allowed })
    }

    /// Checks host and proxy headers, then the origin. `port` is the gateway's own.
    ///
    /// # Errors
    /// `forbidden`, `origin_not_allowed`.
    pub fn check(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
        port: Option<u16>,
    ) -> Result<Origin, ApiError> {
        let named: Vec<&str> = headers
            .get_all("host")
            .iter()
            .map(|h| h.to_str().unwrap_or_default())
            .chain(uri.authority().map(|a| a.as_str()))
            .collect();
        // What an absolute address names counts, but a header that disagrees must be as harmless.
        let harmless = named
            .iter()
            .all(|h| is_host(h) && is_loopback(split_host(h).0));
        let Some(&host) = named.last().filter(|_| harmless) else {
            let detail = "authentication is off, so only requests whose Host is a loopback name or address are answered; \
                          ask for http://127.0.0.1 or http://localhost";
            return Err(ApiError::new(Code::Forbidden, detail));
        };
        for name in [
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
        ] {
            if headers.contains_key(name) {
                return Err(proxied(name));
            }
        }
        if let Some(name) = headers
            .keys()
            .find(|n| n.as_str().starts_with("x-forwarded-"))
        {
            return Err(proxied(name.as_str()));
        }
        let Some(origin) = headers.get("origin") else {
            return Ok(Origin::Own);
        };
        let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        self.judge(&origin, host, port)
    }

    fn judge(&self, origin: &str, host: &str, port: Option<u16>) -> Result<Origin, ApiError> {
        let plain = without_default_port(origin);
        if self.allowed.iter().any(|listed| matches(listed, &plain)) {
            return Ok(Origin::Listed(origin.to_owned()));
        }
        if let Some((scheme, authority)) = split_origin(origin) {
            let default = if scheme == "https" { 443 } else { 80 };
            let (name, theirs) = split_host(authority);
            let asked = split_host(host).1.unwrap_or(default);
            let theirs = theirs.unwrap_or(default);
            if is_loopback(name) && (theirs == asked || Some(theirs) == port) {
                return Ok(Origin::Own);
            }
        }
        let shown: String = origin.chars().take(200).collect();
        let detail = format!(
            "origin '{shown}' is neither the gateway's own nor on the list of --allow-origin"
        );
        Err(ApiError::new(Code::OriginNotAllowed, detail))
    }
}

/// Whether a listed origin is this one, or covers it by its `*.`.
fn matches(listed: &str, origin: &str) -> bool {
    let Some((scheme, domain)) = listed.split_once("://*") else {
        return listed == origin;
    };
    // `domain` begins with its dot; what stands for the star is one or more labels.
    split_origin(origin).is_some_and(|(theirs, authority)| {
        theirs == scheme
            && authority
                .strip_suffix(domain)
                .is_some_and(|label| !label.is_empty() && !label.contains(':'))
    })
}

/// Browsers leave out the port that a scheme implies.
fn without_default_port(origin: &str) -> String {
    let implied = if origin.starts_with("https://") {
        ":443"
    } else {
        ":80"
    };
    origin.strip_suffix(implied).unwrap_or(origin).to_owned()
}

fn proxied(name: &str) -> ApiError {
    let detail = format!(
        "the header {name} says that a proxy stands in front; authentication is off, so that would open the gateway to \
         whoever reaches the proxy"
    );
    ApiError::new(Code::Forbidden, detail)
}

/// `scheme://authority` of an origin without path.
fn split_origin(origin: &str) -> Option<(&str, &str)> {
    let (scheme, authority) = origin.split_once("://")?;
    let fine = matches!(scheme, "http" | "https")
        && !authority.is_empty()
        && !authority.contains(['/', '@', '?', '#', ' ']);
    fine.then_some((scheme, authority))
}

/// Host and port of `host[:port]`; an IPv6 address loses its brackets.
fn split_host(authority: &str) -> (&str, Option<u16>) {
    if let Some(rest) = authority.strip_prefix('[')
        && let Some((address, rest)) = rest.split_once(']')
    {
        return (address, rest.strip_prefix(':').and_then(|p| p.parse().ok()));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host, port.parse().ok()),
        _ => (authority, None),
    }
}

/// Whether this is one host with at most a port behind it, no list and no user.
fn is_host(authority: &str) -> bool {
    let port = authority
        .rsplit_once(':')
        .filter(|(host, _)| host.ends_with(']') || !host.contains(':'))
        .map_or("", |(_, port)| port);
    port.bytes().all(|b| b.is_ascii_digit())
}

fn is_loopback(host: &str) -> bool {
    let name = host.trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&'static str, &str)]) -> Result<Origin, Code> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let rules = OriginRules::parse("http://dev.example:5173/, http://localhost:3000").unwrap();
        rules
            .check(&map, &Uri::from_static("/v1/ns/default/topics"), Some(8080))
            .map_err(|e| e.code())
    }

    #[test]
    fn only_loopback_hosts_without_a_proxy() {
        for host in [
            "127.0.0.1:8080",
            "localhost",
            "LOCALHOST:1",
            "[::1]:8080",
            "127.8.8.8",
            "app.localhost:8080",
        ] {
            assert_eq!(check(&[("host", host)]), Ok(Origin::Own), "{host}");
        }
        for host in [
            "example.com",
            "192.168.0.1:8080",
            "127.0.0.1.evil.com",
            "localhost.evil.com",
            "",
            "[::2]",
            "0.0.0.0:8080",
            "127.0.0.1:8080, evil.example",
            "localhost:evil.example",
            "[::1]:8080,evil.example",
        ] {
            assert_eq!(check(&[("host", host)]), Err(Code::Forbidden), "{host}");
        }
        for both in [["localhost", "evil.example"], ["evil.example", "localhost"]] {
            assert_eq!(
                check(&both.map(|host| ("host", host))),
                Err(Code::Forbidden),
                "{both:?}"
            );
        }
        assert_eq!(check(&[]), Err(Code::Forbidden));
        for name in ["forwarded", "via", "x-forwarded-for", "x-forwarded-prefix"] {
            assert_eq!(
                check(&[("host", "localhost"), (name, "x")]),
                Err(Code::Forbidden),
                "{name}"
            );
        }
    }

    #[test]
    fn origins_are_own_listed_or_refused() {
        let with = |origin: &str| check(&[("host", "127.0.0.1:8080"), ("origin", origin)]);
        assert_eq!(with("http://localhost:8080"), Ok(Origin::Own));
        assert_eq!(with("http://[::1]:8080"), Ok(Origin::Own));
        assert_eq!(
            with("http://localhost:3000"),
            Ok(Origin::Listed("http://localhost:3000".into()))
        );
        assert_eq!(
            with("http://DEV.example:5173"),
            Ok(Origin::Listed("http://dev.example:5173".into()))
        );
        for origin in [
            "null",
            "http://localhost:5173",
            "https://evil.example",
            "http://localhost",
            "http://evil@localhost:8080",
            "",
        ] {
            assert_eq!(with(origin), Err(Code::OriginNotAllowed), "{origin}");
        }
        for wrong in [
            "localhost:5173",
            "*",
            "https://*",
            "https://*.",
            "https://a.*.example",
            "https://*.*.example",
        ] {
            assert!(OriginRules::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_star_covers_the_names_below_a_domain() {
        let rules = OriginRules::parse(
            "https://*.example.com, http://*.dev.example:8000, https://a.example:443",
        )
        .unwrap();
        let listed = |origin: &str| {
            let mut map = HeaderMap::new();
            map.insert("host", "localhost".parse().unwrap());
            map.insert("origin", origin.parse().unwrap());
            rules.check(&map, &Uri::from_static("/"), None).is_ok()
        };
        for origin in [
            "https://app.example.com",
            "https://a.b.example.com",
            "https://app.example.com:443",
            "http://x.dev.example:8000",
            "https://a.example",
        ] {
            assert!(listed(origin), "{origin}");
        }
        for origin in [
            "https://example.com",
            "https://.example.com",
            "http://app.example.com",
            "https://app.example.com:8443",
            "https://appexample.com",
            "https://app.example.com.evil.net",
            "https://evil.net:1.example.com",
            "http://x.dev.example",
            "http://a.example",
        ] {
            assert!(!listed(origin), "{origin}");
        }
    }
}
