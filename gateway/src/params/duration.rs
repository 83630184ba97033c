//! Durations: `1500ms`, `30s`, `5m`, `12h`, `3d`.

/// Milliseconds of `^[0-9]{1,9}(ms|s|m|h|d)$`; `None` for anything else.
#[must_use]
pub fn parse_duration(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at_checked(split)?;
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    let scale = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits.parse::<u64>().ok().map(|n| n * scale)
}

/// The largest exact unit.
#[must_use]
pub fn format_duration(ms: u64) -> String {
    for (scale, unit) in [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ] {
        if ms > 0 && ms.is_multiple_of(scale) {
            return format!("{}{unit}", ms / scale);
        }
    }
    if ms == 0 {
        "0s".to_owned()
    } else {
        format!("{ms}ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_write() {
        for (text, ms, back) in [
            ("1500ms", 1500, "1500ms"),
            ("0s", 0, "0s"),
            ("0ms", 0, "0s"),
            ("90s", 90_000, "90s"),
            ("120s", 120_000, "2m"),
            ("24h", 86_400_000, "1d"),
            ("999999999d", 999_999_999 * 86_400_000, "999999999d"),
        ] {
            assert_eq!(parse_duration(text), Some(ms), "{text}");
            assert_eq!(format_duration(ms), back);
        }
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "1S",
            "1sec",
            "1234567890s",
            "+1s",
            " 1s",
            "1s ",
            "١s",
            "1é",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
