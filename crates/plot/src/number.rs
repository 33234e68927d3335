//! Numbers as they are shown in tables, on axes and beside points.

/// A share in percent with one decimal, without the sign `%`.
pub fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0).replace("-0.0", "0.0").replace('-', "−")
}

/// A difference of shares in percentage points with one decimal and its sign.
pub fn points(difference: f64) -> String {
    let text = format!("{:+.1}", difference * 100.0);
    if text == "-0.0" || text == "+0.0" { "0.0".to_owned() } else { text.replace('-', "−") }
}

/// A whole number with thousands separators; negative numbers show as 0.
pub fn count(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count in at most four characters, such as `1.2k` or `45M`.
pub fn compact(number: f64) -> String {
    let (scaled, unit) = match number {
        n if n >= 999.5e9 => (n / 1e12, "T"),
        n if n >= 999.5e6 => (n / 1e9, "G"),
        n if n >= 999.5e3 => (n / 1e6, "M"),
        n if n >= 999.5 => (n / 1e3, "k"),
        n => (n, ""),
    };
    let decimals = usize::from(scaled < 9.95 && (scaled < 1.0 || !unit.is_empty()));
    format!("{}{unit}", trimmed(scaled, decimals))
}

/// A number of any size and sign in about three significant digits.
pub fn short(number: f64) -> String {
    let size = number.abs();
    let text = match size {
        0.0 => "0".to_owned(),
        size if !(0.001..1e9).contains(&size) => format!("{number:.2e}"),
        size if size >= 1e6 => format!("{}M", trimmed(number / 1e6, 2)),
        size if size >= 10_000.0 => format!("{}k", trimmed(number / 1e3, 1)),
        size if size >= 100.0 => trimmed(number, 1),
        size if size >= 1.0 => trimmed(number, 2),
        _ => trimmed(number, 4),
    };
    text.replacen('-', "−", usize::from(number < 0.0))
}

/// At most this many decimals, without trailing zeros.
fn trimmed(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_counts() {
        assert_eq!([percent(0.6124), percent(-0.0001)], ["61.2", "0.0"]);
        assert_eq!([points(0.1287), points(-0.05), points(-0.0001)], ["+12.9", "−5.0", "0.0"]);
        assert_eq!([count(12.4), count(1234.0), count(1_234_567.0)], ["12", "1,234", "1,234,567"]);
        let shown = [0.0, 0.5, 12.0, 999.6, 1234.0, 45_000.0, 2e6, 3.5e13].map(compact);
        assert_eq!(shown, ["0", "0.5", "12", "1k", "1.2k", "45k", "2M", "35T"]);
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.25, "0.25"),
            (0.123_456, "0.1235"),
            (-3.5, "−3.5"),
            (153.26, "153.3"),
            (1000.0, "1000"),
            (81_234.0, "81.2k"),
            (2_500_000.0, "2.5M"),
            (1e-6, "1.00e-6"),
            (-1e-6, "−1.00e-6"),
            (3e12, "3.00e12"),
        ] {
            assert_eq!(short(number), text);
        }
    }
}
