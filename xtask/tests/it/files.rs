//! Files are short and start with their purpose, and the guide lists every crate.

use crate::{none, texts};

/// The longest file allowed.
const MOST_LINES: usize = 800;

/// Files that may be longer, with the reason.
const LONG_FOR_A_REASON: [(&str, &str); 0] = [];

fn complaint(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    if lines > MOST_LINES && !LONG_FOR_A_REASON.iter().any(|(long, _)| *long == path) {
        return Some(format!("{path} has {lines} lines; split it, or list it with a reason"));
    }
    if !text.starts_with("//! ") {
        return Some(format!("{path} does not start with `//!` lines that state its purpose"));
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
fn the_guide_lists_every_crate() {
    let texts = texts();
    let (_, guide) = texts.iter().find(|(path, _)| path == "crates/guide/src/lib.rs").unwrap();
    let missing: Vec<String> = texts
        .iter()
        .filter(|(path, _)| path.ends_with("/Cargo.toml") && path.starts_with("crates/"))
        .filter_map(|(path, text)| {
            let name = text.lines().find_map(|line| line.strip_prefix("name = "))?;
            let page = format!("(../{}/index.html)", name.trim_matches('"').replace('-', "_"));
            let listed = guide.contains(&page) || path == "crates/guide/Cargo.toml";
            (!listed).then(|| format!("crates/guide/src/lib.rs does not link to {page}"))
        })
        .collect();
    none(&missing);
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
