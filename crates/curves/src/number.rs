//! Numbers as people read them on an axis or beside a point.

/// A number in about three figures, as people read it.
pub fn short(number: f64) -> String {
    let size = number.abs();
    let text = match size {
        0.0 => "0".to_owned(),
        size if !(0.001..1e9).contains(&size) => format!("{number:.2e}"),
        size if size >= 1e6 => format!("{}M", plain(number / 1e6, 2)),
        size if size >= 10_000.0 => format!("{}k", plain(number / 1e3, 1)),
        size if size >= 100.0 => plain(number, 1),
        size if size >= 1.0 => plain(number, 2),
        _ => plain(number, 4),
    };
    text.replacen('-', "−", usize::from(number < 0.0))
}

/// So many decimals at most.
fn plain(number: f64, decimals: usize) -> String {
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
