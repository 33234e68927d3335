//! Probabilities, times, sizes, prices and dates as they are shown.

use plot::count;

/// A p-value.
pub(crate) fn p_value(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

/// A p-value within a sentence.
pub(crate) fn p_text(p: f64) -> String {
    let value = p_value(p);
    if value.starts_with('<') { format!("p {value}") } else { format!("p = {value}") }
}

/// Seconds.
pub(crate) fn seconds(number: f64) -> String {
    match number {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Bytes.
pub(crate) fn bytes(number: f64) -> String {
    let mib = number / f64::from(1 << 20);
    if mib < 10.0 { format!("{mib:.1} MiB") } else { format!("{} MiB", count(mib)) }
}

/// Dollars.
pub(crate) fn dollars(number: f64) -> String {
    if number > 0.0 && number < 0.01 { format!("${number:.4}") } else { format!("${number:.2}") }
}

/// A date, as 2026-01-16, from milliseconds since 1970; empty for 0.
pub(crate) fn day(millis: u64) -> String {
    if millis == 0 {
        return String::new();
    }
    // Days since 0000-03-01: the leap day is the last of its year, and years are alike before it.
    let days = millis / 86_400_000 + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = (year + era * 400 + next).min(9999);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([p_value(0.00012), p_value(0.0123), p_value(1.0)], ["<0.001", "0.012", "1.000"]);
        assert_eq!(seconds(3.21), "3.2 s");
        assert_eq!(seconds(300.0), "5 min");
        assert_eq!(bytes(1.5 * 1048576.0), "1.5 MiB");
        assert_eq!([dollars(0.0), dollars(0.0012), dollars(3.456)], ["$0.00", "$0.0012", "$3.46"]);
    }

    #[test]
    fn days_follow_the_calendar() {
        let known =
            [(1, "1970-01-01"), (951_782_400_000, "2000-02-29"), (1_768_521_600_000, "2026-01-16")];
        known.iter().for_each(|(millis, text)| assert_eq!(day(*millis), *text));
        assert_eq!(day(0), "");
        assert_eq!(day(u64::MAX).len(), 10);
    }
}
