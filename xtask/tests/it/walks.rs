//! The walks of `docs/architecture.md` name files and functions that exist, number them, and list each file once.

use std::collections::BTreeSet;

use crate::{none, texts};

/// What is wrong with the walks of a page. `source` returns the text of a file below `crates/`.
fn complaints<'a>(page: &str, source: impl Fn(&str) -> Option<&'a str>) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut walk = "";
    let (mut next, mut seen) = (1, BTreeSet::new());
    let walks = page.split("\n## ").find(|section| section.starts_with("Three walks"));
    for line in walks.unwrap_or_default().lines() {
        if let Some(title) = line.strip_prefix("### ") {
            (walk, next, seen) = (title, 1, BTreeSet::new());
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [numbers, file, functions, ..] = cells[..] else { continue };
        let mut range = numbers.splitn(2, '–').map(str::parse::<u32>);
        let Some(Ok(first)) = range.next() else { continue };
        if first != next {
            complaints.push(format!("{walk}: step {first} should be {next}"));
        }
        next = range.next().and_then(Result::ok).unwrap_or(first) + 1;
        let Some(file) = file.strip_prefix('`').and_then(|file| file.strip_suffix('`')) else {
            continue;
        };
        if !seen.insert(file) {
            complaints.push(format!("{walk}: {file} is listed twice"));
        }
        let Some(text) = source(file) else {
            complaints.push(format!("{walk}: there is no crates/{file}"));
            continue;
        };
        for function in functions.split(", ").map(|name| name.trim_matches('`')) {
            let name = function.rsplit("::").next().unwrap_or(function);
            let defined = [format!("fn {name}("), format!("fn {name}<")];
            if !defined.iter().any(|definition| text.contains(definition)) {
                complaints.push(format!("{walk}: crates/{file} defines no `{function}`"));
            }
        }
    }
    complaints
}

#[test]
fn walks_are_true() {
    let texts = texts();
    let (_, page) = texts.iter().find(|(path, _)| path == "docs/architecture.md").unwrap();
    let source = |file: &str| {
        let path = format!("crates/{file}");
        texts.iter().find(|(name, _)| *name == path).map(|(_, text)| text.as_str())
    };
    assert!(page.matches("\n### `").count() >= 3, "the three walks are gone");
    none(&complaints(page, source));
}

#[test]
fn wrong_walks_are_seen() {
    let source = |file: &str| (file == "a.rs").then_some("fn run<T>(x: T) {}");
    let page = |rows: &str| format!("\n## Three walks\n### `run`\n| | file |\n{rows}\n## Next\n");
    let row = |number: &str, file: &str, function: &str| {
        format!("| {number} | `{file}` | `{function}` | text |\n")
    };
    let check = |rows: &str| complaints(&page(rows), source).len();
    assert_eq!(check(&row("1", "a.rs", "X::run")), 0);
    assert_eq!(check(&row("2", "a.rs", "run")), 1, "the number");
    assert_eq!(check(&row("1", "b.rs", "run")), 1, "the file");
    assert_eq!(check(&row("1", "a.rs", "stop")), 1, "the function");
    assert_eq!(check(&(row("1", "a.rs", "run") + &row("2", "a.rs", "run"))), 1, "twice");
    assert_eq!(check(&("| 1–3 | as above | | |\n".to_owned() + &row("4", "a.rs", "run"))), 0);
}
