//! Libraries know no command line: their texts name no option of our programs. The command line adds such remedies.

use std::collections::BTreeSet;

use crate::{none, root, texts};

/// The crates that have a command line, or are no part of the product.
const WITH_OPTIONS: [&str; 5] = ["cli", "sandbox-conformance", "startup", "testkit", "train"];

/// Options of other programs that are spelled like ours: where they may be named, and why.
const FOREIGN: [(&str, &str); 5] = [
    // Options of the commands that models run.
    ("crates/report/src/analysis/", ""),
    // The test commands of repositories, and patch.
    ("crates/problems/src/swe/", ""),
    // GNU tar.
    ("crates/image/src/", "--format"),
    // pip and mmdebstrap.
    ("crates/catalogue/src/", ""),
    ("crates/image/src/", "--include"),
];

/// Every option in the documentation of our programs.
fn options(docs: &str) -> BTreeSet<String> {
    let code = docs.split('`').skip(1).step_by(2);
    code.flat_map(flags).collect()
}

/// The words of a text that start with two hyphens.
fn flags(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    let flags = words.filter(|word| {
        word.strip_prefix("--")
            .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    });
    flags.map(str::to_owned).collect()
}

/// The string literals of a source file, without those of its tests.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let here = &rest[at..];
        if here.starts_with("//") {
            rest = here.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(after) = here.strip_prefix("'\"'") {
            rest = after;
        } else if let Some(text) = here.strip_prefix('"') {
            let raw = rest[..at].trim_end_matches('#').ends_with('r');
            let mut escaped = false;
            let end = text.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped && !raw;
                ends
            });
            let end = end.unwrap_or(text.len());
            found.push(text[..end].to_owned());
            rest = text.get(end + 1..).unwrap_or_default();
        } else {
            rest = &here[1..];
        }
    }
    found
}

/// The options a file of a library names.
fn complaints(path: &str, text: &str, ours: &BTreeSet<String>) -> Vec<String> {
    let mut parts = path.split('/');
    let library = parts.next() == Some("crates")
        && parts.next().is_some_and(|name| !WITH_OPTIONS.contains(&name))
        && parts.next() == Some("src")
        && path.ends_with(".rs")
        && !path.ends_with("tests.rs");
    if !library {
        return Vec::new();
    }
    let foreign = |flag: &String| {
        FOREIGN
            .iter()
            .any(|(place, name)| path.starts_with(place) && (name.is_empty() || name == flag))
    };
    let named = literals(text).into_iter().flat_map(|literal| flags(&literal));
    named
        .filter(|flag| ours.contains(flag) && !foreign(flag))
        .map(|flag| {
            format!("{path} names the option {flag}; return a typed error and add the remedy in crates/cli/src/remedy.rs")
        })
        .collect()
}

#[test]
fn libraries_name_no_options() {
    let ours = options(&std::fs::read_to_string(root().join("docs/cli.md")).unwrap());
    assert!(ours.contains("--model") && ours.contains("--output"), "docs/cli.md lists no options");
    let found: Vec<String> =
        texts().iter().flat_map(|(path, text)| complaints(path, text, &ours)).collect();
    none(&found);
}

#[test]
fn a_named_option_is_found() {
    let ours = options("| `--data [TASK=]FILE` | | rows |");
    let seen = |path: &str, text: &str| complaints(path, text, &ours).len();
    assert_eq!(seen("crates/problems/src/hub.rs", "f(\"give the rows with --data FILE\")"), 1);
    assert_eq!(
        seen("crates/problems/src/hub.rs", "// with --data\nf('\"', r\"\\\", \"--database\")"),
        0
    );
    assert_eq!(seen("crates/problems/src/hub.rs", "f()\n#[cfg(test)]\nf(\"--data\")"), 0);
    assert_eq!(seen("crates/cli/src/main.rs", "f(\"--data\")"), 0);
    assert_eq!(seen("crates/report/src/analysis/command.rs", "f(\"--data\")"), 0);
}
