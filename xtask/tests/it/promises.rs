//! The tests that the pages on security name exist, so that each promise has one.

use std::collections::BTreeMap;

use crate::{none, texts};

/// The pages that name tests.
const PAGES: [&str; 2] = ["docs/security.md", "docs/attacks.md"];
/// A single word with this many underscores is the name of a test or of a module of tests.
const UNDERSCORES: usize = 3;

/// The names of tests in a page: `test` or `module::test`. Names of types and their functions have capitals.
fn names(page: &str) -> impl Iterator<Item = &str> {
    let prose = page.split("```").step_by(2);
    let spans = prose.flat_map(|text| text.split('`').skip(1).step_by(2));
    spans.filter(|span| {
        let is_word = |word: &str| {
            let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            !word.is_empty() && word.chars().all(small)
        };
        let is_path = span.contains("::") || span.matches('_').count() >= UNDERSCORES;
        is_path && span.split("::").all(is_word)
    })
}

/// The files that define each function, by its name.
fn functions(files: &[(String, String)]) -> BTreeMap<&str, Vec<&str>> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in files {
        for definition in text.split("fn ").skip(1) {
            if let Some((name, _)) = definition.split_once(['(', '<']) {
                found.entry(name).or_default().push(path);
            }
        }
    }
    found
}

/// Whether a file is one of these modules: named so, in directories named so. A crate may be named by its last word, and
/// unit tests are in a module `tests` of any file.
fn is_in(modules: &[&str], path: &str) -> bool {
    let mut parts = path.trim_end_matches(".rs").split('/');
    modules.iter().filter(|module| **module != "tests").all(|module| {
        parts.any(|part| {
            let part = part.replace('-', "_");
            part == *module || part.ends_with(&format!("_{module}"))
        })
    })
}

/// The names for which none of these files has a function or module.
fn missing<'a>(page: &'a str, files: &[(String, String)]) -> Vec<&'a str> {
    let functions = functions(files);
    let exists = |name: &str| {
        let words: Vec<_> = name.split("::").collect();
        let (last, modules) = words.split_last().unwrap();
        let defined = functions.get(last).into_iter().flatten();
        defined.into_iter().any(|path| is_in(modules, path))
            || files.iter().any(|(path, _)| is_in(&words, path))
    };
    names(page).filter(|name| !exists(name)).collect()
}

#[test]
fn named_tests_exist() {
    let texts = texts();
    let (pages, sources): (Vec<_>, Vec<_>) =
        texts.into_iter().partition(|(path, _)| PAGES.contains(&path.as_str()));
    let sources: Vec<_> = sources.into_iter().filter(|(path, _)| path.ends_with(".rs")).collect();
    assert_eq!(pages.len(), PAGES.len());
    for (path, page) in &pages {
        assert!(names(page).count() > 50, "{path} names few tests");
        let missing = missing(page, &sources);
        none(&missing.iter().map(|name| format!("{path}: no test {name}")).collect::<Vec<_>>());
    }
}

#[test]
fn missing_tests_are_seen() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let files = [
        file("crates/x-docker/tests/it/calls.rs", "#[test]\nfn risky() {}\nfn of<R>() {}"),
        file("crates/y/src/audit.rs", "\nmod tests {\n    fn files_rotate_and_stay() {}\n}"),
    ];
    let page = "`docker::calls::risky`, `calls::of`, `calls`, `audit::tests::files_rotate_and_stay`, `A::b`, \
                `files_rotate_and_stay`, `no_new_privs`, `docker::calls`\n```\n`calls::not_read`\n```\n";
    assert!(missing(page, &files).is_empty(), "{:?}", missing(page, &files));
    let page =
        "`calls::gone`, `gone::risky`, `audit::risky`, `a_test_that_is_gone`, `audit::tests::gone`";
    assert_eq!(missing(page, &files).len(), 5);
}
