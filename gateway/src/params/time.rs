//! RFC 3339 times <-> epoch milliseconds.

/// Epoch ms of an RFC 3339 time with any offset, truncated to ms; `None` for anything else. Years 0001–9999.
#[must_use]
pub fn parse_time(text: &str) -> Option<i64> {
    let b = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let part = b.get(from..to)?;
        part.iter()
            .all(u8::is_ascii_digit)
            .then(|| part.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0')))
    };
    let is = |at: usize, any: &[u8]| b.get(at).is_some_and(|c| any.contains(c));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let mut at = 19;
    let mut ms = 0;
    if is(at, b".") {
        let start = at + 1;
        at = start;
        while b.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at == start {
            return None;
        }
        for i in 0..3 {
            let digit = if start + i < at {
                i64::from(b[start + i] - b'0')
            } else {
                0
            };
            ms = ms * 10 + digit;
        }
    }
    let offset_minutes = if is(at, b"Zz") && b.len() == at + 1 {
        0
    } else if is(at, b"+-") && is(at + 3, b":") && b.len() == at + 6 {
        let (h, m) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
        if h > 23 || m > 59 {
            return None;
        }
        if is(at, b"-") {
            -(h * 60 + m)
        } else {
            h * 60 + m
        }
    } else {
        return None;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1 || !(1..=month_days).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400
        + hour * 3_600
        + (minute - offset_minutes) * 60
        + second;
    Some(seconds * 1_000 + ms)
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar, counted in eras of 400 years that start on 1 March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month > 2 { year } else { year - 1 };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Appends `2026-11-29T16:30:21.123Z`, without quotes.
pub fn write_time(out: &mut Vec<u8>, epoch_ms: i64) {
    let clamped = epoch_ms.clamp(-62_135_596_800_000, 253_402_300_799_999);
    let (days, ms) = (
        clamped.div_euclid(86_400_000),
        clamped.rem_euclid(86_400_000),
    );
    let z = days + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let mut digits = |mut n: i64, width: usize, end: u8| {
        let mut text = [b'0'; 4];
        for slot in text.iter_mut().take(width).rev() {
            *slot = b'0' + u8::try_from(n % 10).unwrap_or(0);
            n /= 10;
        }
        out.extend_from_slice(&text[..width]);
        out.push(end);
    };
    digits(year, 4, b'-');
    digits(month, 2, b'-');
    digits(day, 2, b'T');
    digits(ms / 3_600_000, 2, b':');
    digits(ms / 60_000 % 60, 2, b':');
    digits(ms / 1_000 % 60, 2, b'.');
    digits(ms % 1_000, 3, b'Z');
}

/// As [`write_time`], as a text.
#[must_use]
pub fn format_time(epoch_ms: i64) -> String {
    let mut out = Vec::with_capacity(24);
    write_time(&mut out, epoch_ms);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-29T16:30:21.123Z", 1_795_969_821_123),
            ("2026-11-29T17:30:21.1239+01:00", 1_795_969_821_123),
            ("2000-02-29T00:00:00-00:30", 951_784_200_000),
            ("1969-12-31T23:59:59.999Z", -1),
        ] {
            assert_eq!(parse_time(text), Some(ms), "{text}");
        }
        for text in [
            "",
            "2026-11-29",
            "2026-11-29T16:30:21",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-29T24:00:00Z",
            "2026-11-29T16:30:21.Z",
            "2026-11-29T16:30:21+1:00",
            "1795969821123",
            "2026-11-29T16:30:21Zx",
            "２０２６-11-29T16:30:21Z",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_read_back(ms in -62_135_596_800_000_i64..253_402_300_799_999) {
            prop_assert_eq!(parse_time(&format_time(ms)), Some(ms));
        }
    }
}
