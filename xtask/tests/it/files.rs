//! Files stay short and say what they are for.

use crate::{none, texts};

/// Longer than this is refused.
const MOST_LINES: usize = 800;

/// Files that may be longer, each with the reason.
const LONG_FOR_A_REASON: [(&str, &str); 0] = [];

fn complaint(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    if lines > MOST_LINES && !LONG_FOR_A_REASON.iter().any(|(long, _)| *long == path) {
        return Some(format!("{path} has {lines} lines; split it, or list it with a reason"));
    }
    if !text.starts_with("//! ") {
        return Some(format!("{path} does not open with `//!` lines that say what it is for"));
    }
    None
}

#[test]
fn source_files_are_short_and_introduce_themselves() {
    let complaints: Vec<String> = texts()
        .iter()
        .filter(|(path, _)| path.ends_with(".rs"))
        .filter_map(|(path, text)| complaint(path, text))
        .collect();
    none(&complaints);
}

#[test]
fn exceptions_are_still_needed() {
    let texts = texts();
    for (path, reason) in LONG_FOR_A_REASON {
        let found = texts.iter().find(|(name, _)| name == path);
        assert!(found.is_some_and(|(_, text)| text.lines().count() > MOST_LINES), "{path}");
        assert!(!reason.is_empty(), "{path}");
    }
}

#[test]
fn bad_files_are_seen() {
    let header = "//! What for.\n";
    assert_eq!(complaint("a.rs", &format!("{header}{}", "\n".repeat(MOST_LINES - 1))), None);
    assert!(complaint("a.rs", &format!("{header}{}", "\n".repeat(MOST_LINES))).is_some());
    assert!(complaint("a.rs", "use std::fs;\n//! Late.\n").is_some());
    assert!(complaint("a.rs", "").is_some());
}
