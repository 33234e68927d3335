//! File names for what rows call themselves. Rows are hostile: ids may hold slashes, dots and megabytes.

use sha2::{Digest, Sha256};

/// Longer names are cut, and told apart by a number.
const LONGEST: usize = 100;

/// The same for joined names. File systems allow 255 bytes.
const LONGEST_JOINED: usize = 200;

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
            return format!("{name}~{}", digest(text));
        }
    }
    if name.is_empty() { "%".to_owned() } else { name }
}

/// A file name of one part that only this list of texts has, with room for an extension. No name contains a comma.
pub(crate) fn joined(texts: &[&str]) -> String {
    let mut name = texts.iter().map(|text| of(text)).collect::<Vec<_>>().join(",");
    if name.len() > LONGEST_JOINED {
        let digest = digest(&name);
        name.truncate(LONGEST);
        name = format!("{name}~{digest}");
    }
    name
}

/// Rows could be made to collide in anything weaker.
fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
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
        assert_eq!(of(&long).len(), 133);
        assert_ne!(of(&long), of(&format!("{long}y")));
    }

    #[test]
    fn joined_names_are_short_and_differ() {
        assert_eq!(joined(&["math", "llm", "a/b", "0"]), "math,llm,a%2Fb,0");
        let long = "x".repeat(300);
        let tail = format!("{}y", &long[1..]);
        let lists: [[&str; 4]; 7] = [
            ["a,b", "llm", "c", "0"],
            ["a", "llm", "b,c", "0"],
            ["a.llm.b", "llm", "c", "0"],
            ["a", "llm", "b.llm.c", "0"],
            [&long, "llm", &long, "0"],
            [&long, "llm", &long, "1"],
            [&long, "llm", &tail, "0"],
        ];
        let names: std::collections::HashSet<String> = lists.iter().map(|it| joined(it)).collect();
        assert_eq!(names.len(), lists.len());
        assert!(names.iter().all(|name| name.len() <= LONGEST_JOINED && !name.contains('/')));
    }
}
