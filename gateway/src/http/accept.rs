//! The header `Accept`: whether a kind of answer is welcome.

use axum::http::HeaderMap;

/// Whether `Accept` allows the media type `kind/sub` (absent = everything).
pub(super) fn allows(headers: &HeaderMap, kind: &str, sub: &str) -> bool {
    let mut given = false;
    let mut best: Option<(u8, bool)> = None;
    for value in headers.get_all("accept") {
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut pieces = range.split(';');
            let essence = pieces.next().unwrap_or_default().trim();
            if essence.is_empty() {
                continue;
            }
            given = true;
            let welcome = !pieces
                .filter_map(|p| p.trim().split_once('='))
                .any(|(n, v)| {
                    n.trim().eq_ignore_ascii_case("q")
                        && v.trim().parse::<f32>().is_ok_and(|q| q <= 0.0)
                });
            let (k, s) = essence.split_once('/').unwrap_or((essence, "*"));
            let rank = match (k.eq_ignore_ascii_case(kind), s.eq_ignore_ascii_case(sub)) {
                (true, true) => 3,
                (true, false) if s == "*" => 2,
                _ if k == "*" && s == "*" => 1,
                _ => continue,
            };
            if best.is_none_or(|(r, _)| rank > r) {
                best = Some((rank, welcome));
            }
        }
    }
    !given || best.is_some_and(|(_, welcome)| welcome)
}

/// Whether `Accept` names the media type itself, not by a wildcard.
pub(crate) fn names(headers: &HeaderMap, kind: &str) -> bool {
    headers.get_all("accept").iter().any(|value| {
        value.to_str().unwrap_or_default().split(',').any(|r| {
            r.split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .eq_ignore_ascii_case(kind)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_and_zero_weights() {
        let check = |accept: &str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert("accept", accept.parse().unwrap());
            assert_eq!(
                allows(&headers, "application", "json"),
                expected,
                "{accept}"
            );
        };
        check("*/*", true);
        check("text/html, application/*;q=0.5", true);
        check("application/json", true);
        check("text/html", false);
        check("application/json;q=0, */*", false);
        check("", true);
        assert!(allows(&HeaderMap::new(), "application", "json"));
    }
}
