//! Extended header records of tar (`length key=value`), the few that matter here.
//!
//! Extended attributes are ignored: a layer must not set capabilities or overlayfs attributes.

/// The values that the records of one entry override.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Records {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) uid: Option<u64>,
    pub(crate) gid: Option<u64>,
    /// Seconds and nanoseconds.
    pub(crate) mtime: Option<(i64, u32)>,
}

/// Parses records; the error says what is wrong.
pub(crate) fn parse(mut bytes: &[u8]) -> Result<Records, &'static str> {
    let mut records = Records::default();
    while !bytes.is_empty() && bytes[0] != 0 {
        let space = bytes
            .iter()
            .take(20)
            .position(|&b| b == b' ')
            .ok_or("an extended header has no length")?;
        let length =
            digits(&bytes[..space]).ok_or("the length of an extended header is not a number")?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > bytes.len() || length < space + 2 || bytes[length - 1] != b'\n' {
            return Err("an extended header has the wrong length");
        }
        let record = &bytes[space + 1..length - 1];
        bytes = &bytes[length..];
        let equals =
            record.iter().position(|&b| b == b'=').ok_or("an extended header has no value")?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        let number = |why| digits(value).map(Some).ok_or(why);
        match key {
            b"path" => records.path = Some(value.to_vec()),
            b"linkpath" => records.link = Some(value.to_vec()),
            b"size" => records.size = number("an extended size is not a number")?,
            b"uid" => records.uid = number("an extended owner is not a number")?,
            b"gid" => records.gid = number("an extended group is not a number")?,
            b"mtime" => {
                records.mtime = Some(time(value).ok_or("an extended time is not a number")?)
            }
            key if key.starts_with(b"GNU.sparse.") => {
                return Err(
                    "sparse files in this format are not supported; repack with tar --format=gnu",
                );
            }
            _ => {}
        }
    }
    Ok(records)
}

fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Decimal seconds, possibly negative, possibly with a fraction.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let dot = text.iter().position(|&b| b == b'.');
    let (whole, fraction) = match dot {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b""[..]),
    };
    let whole = i64::try_from(digits(whole)?).ok()?;
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nanos =
        (0..9).fold(0u32, |sum, i| sum * 10 + fraction.get(i).map_or(0, |&d| u32::from(d - b'0')));
    Some(match (negative, nanos) {
        (false, _) => (whole, nanos),
        (true, 0) => (-whole, 0),
        (true, _) => (-whole - 1, 1_000_000_000 - nanos),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_are_read_by_length_so_values_may_hold_anything() {
        let text =
            b"12 path=a\nb\n20 mtime=1700000.5000\n27 SCHILY.xattr.user.x=\n\xff=\n9 size=7\n";
        assert_eq!(parse(b"12 path=a\nb\n").unwrap().path.as_deref(), Some(&b"a\nb"[..]));
        assert!(parse(text).is_err(), "a wrong length is noticed");
        let fine = b"12 path=a\nb\n23 mtime=1700000.50000\n10 size=7\n";
        let records = parse(fine).unwrap();
        assert_eq!((records.size, records.mtime), (Some(7), Some((1_700_000, 500_000_000))));
        assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
    }

    #[test]
    fn malformed_records_are_errors() {
        for bad in [
            &b"x"[..],
            b"5 a=b",
            b"0 a=b\n",
            b"3 \n",
            b"99 path=a\n",
            b"10 size=x\n",
            b"22 GNU.sparse.major=1\n",
        ] {
            assert!(parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_records_never_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&data);
        }

        #[test]
        fn likely_records_never_panic(text in "([0-9]{1,3} (path|size|mtime|uid)=[-0-9.]{0,25}\n){0,5}") {
            let _ = parse(text.as_bytes());
        }
    }
}
