//! Which names could be those of public hosts.

/// Suffixes of names that no public resolver knows, or that are this machine's and its network's own.
const LOCAL: [&str; 13] = [
    "localhost",
    "local",
    "localdomain",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "arpa",
    "onion",
    "invalid",
    "test",
];

/// Whether a name could be that of a public host. Its addresses have to be checked still.
///
/// One label alone could be completed with the domains that this machine searches, and an address in decimal, octal or
/// hexadecimal digits is not a name.
pub fn is_public_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(plain);
    let Some((_, last)) = name.rsplit_once('.') else { return false };
    name.len() <= 253
        && name.split('.').all(label)
        // No top-level domain begins with a digit; addresses do.
        && last.starts_with(|c: char| c.is_ascii_alphabetic())
        && !LOCAL.iter().any(|local| last.eq_ignore_ascii_case(local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_addresses_and_local_names() {
        for name in ["example.com", "a.b-c.example.com.", "_x.example.org", "xn--a.xn--p1ai"] {
            assert!(is_public_name(name), "{name}");
        }
        let long = format!("{}.com", "a".repeat(64));
        for name in [
            "",
            ".",
            "localhost",
            "intra",
            "a.localhost",
            "printer.local",
            "db.INTERNAL.",
            "metadata.google.internal",
            "1.2.3.4",
            "0177.0.0.1",
            "0x7f.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "a..com",
            ".com",
            "a b.com",
            "a\0.com",
            "ä.com",
            "1.0.0.127.in-addr.arpa",
            "router.lan",
            "x.onion",
            "a%2e.com",
            &long,
        ] {
            assert!(!is_public_name(name), "{name}");
        }
        assert!(!is_public_name(&format!("{}com", "a.".repeat(130))));
    }
}
