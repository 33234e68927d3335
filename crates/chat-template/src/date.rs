//! Dates for chat templates that include the current day: `strftime` in UTC and English, with the directives that
//! templates use.

use std::{
    fmt::Write,
    time::{Duration, SystemTime},
};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Formats the current time.
pub(crate) fn now(pattern: &str) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format(pattern, since.unwrap_or_default())
}

/// Formats a time since 1970. Unknown directives stay as they are.
fn format(pattern: &str, since: Duration) -> String {
    let seconds = since.as_secs();
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let month_name = MONTHS.get(month.saturating_sub(1) as usize).copied().unwrap_or_default();
    let day_name = DAYS.get((days % 7) as usize).copied().unwrap_or_default();
    let mut text = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        // Writing to a string cannot fail.
        let _ = match letters.next() {
            Some('Y') => write!(text, "{year}"),
            Some('y') => write!(text, "{:02}", year % 100),
            Some('m') => write!(text, "{month:02}"),
            Some('d') => write!(text, "{day:02}"),
            Some('B') => write!(text, "{month_name}"),
            Some('b') => write!(text, "{month_name:.3}"),
            Some('A') => write!(text, "{day_name}"),
            Some('a') => write!(text, "{day_name:.3}"),
            Some('H') => write!(text, "{:02}", time / 3600),
            Some('M') => write!(text, "{:02}", time / 60 % 60),
            Some('S') => write!(text, "{:02}", time % 60),
            Some('%') => write!(text, "%"),
            Some(other) => write!(text, "%{other}"),
            None => write!(text, "%"),
        };
    }
    text
}

/// Year, month and day (from 1) of a number of days since 1970.
fn date(days: u64) -> (u64, u64, u64) {
    let (mut year, mut left) = (1970 + days / 146_097 * 400, days % 146_097);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_like_strftime() {
        let check = |seconds, pattern, expected: &str| {
            assert_eq!(format(pattern, Duration::from_secs(seconds)), expected);
        };
        check(0, "%Y-%m-%d %H:%M:%S %A", "1970-01-01 00:00:00 Thursday");
        check(951_827_696, "%d %b %Y, %a", "29 Feb 2000, Tue");
        check(1_735_689_599, "%B %d %y %H:%M:%S", "December 31 24 23:59:59");
        check(4_107_542_400, "%Y-%m-%d", "2100-03-01");
        check(0, "%q %% %", "%q % %");
    }
}
