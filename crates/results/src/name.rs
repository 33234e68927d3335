//! File names for what rows call themselves. Rows are hostile: ids may hold slashes, dots and megabytes.

/// Longer names are cut, and told apart by a number.
const LONGEST: usize = 100;

/// A file name of one part that only this text has.
pub(crate) fn of(text: &str) -> String {
    let mut name = String::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            b'.' if at > 0 => name.push('.'),
            other => name.push_str(&format!("%{other:02X}")),
        }
        if name.len() > LONGEST {
            name.truncate(LONGEST);
            return format!("{name}~{:016x}", fnv(text));
        }
    }
    if name.is_empty() { "%".to_owned() } else { name }
}

/// FNV-1a: the same on every machine and in every version.
fn fnv(text: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_ids_stay_in_their_directory() {
        assert_eq!(of("aime25-0"), "aime25-0");
        assert_eq!(of("v1.2"), "v1.2");
        assert_eq!(of(".."), "%2E.");
        assert_eq!(of("../a"), "%2E.%2Fa");
        assert_eq!(of(""), "%");
        assert_eq!(of("é"), "%C3%A9");
        let long = "x".repeat(1 << 20);
        assert!(of(&long).len() < 128);
        assert_ne!(of(&long), of(&format!("{long}y")));
    }
}
