//! Byte sizes with units: `512M`, `1G`, `1.5GiB`, `4096`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A number of bytes, parsed from and printed in powers of 1024.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 5] =
    [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10), ("", 1)];

impl ByteSize {
    /// Creates a size of this many mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// Creates a size of this many gibibytes.
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// Error for a text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size; write a number with an optional unit, such as 512M or 1.5G")]
pub struct ParseSizeError(String);

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseSizeError(text.to_owned());
        let upper = text.trim().to_ascii_uppercase();
        let short = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
        let digits = short.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &short[digits.len()..];
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?;
        let digits = digits.trim();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(refuse());
        }
        if let Ok(whole) = digits.parse::<u64>() {
            return whole.checked_mul(*factor).map(Self).ok_or_else(refuse);
        }
        let number: f64 = digits.parse().map_err(|_| refuse())?;
        let bytes = number * *factor as f64;
        if bytes >= u64::MAX as f64 { Err(refuse()) } else { Ok(Self(bytes.round() as u64)) }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, factor) in UNITS {
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return write!(f, "{}{name}", self.0 / factor);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512M", 512 << 20),
            ("1G", 1 << 30),
            ("1.5g", 3 << 29),
            ("2GiB", 2 << 30),
            ("10kb", 10 << 10),
            (" 7 M ", 7 << 20),
        ] {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn rejects_what_is_not_a_size() {
        for text in ["", "G", "-1G", "1X", "1..5G", "99999999999T", "1e9", "nan", "inf"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_what_it_can_read_again() {
        for bytes in [0, 1, 1023, 1024, 1 << 20, 3 << 29, 1 << 40] {
            let size = ByteSize(bytes);
            assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
