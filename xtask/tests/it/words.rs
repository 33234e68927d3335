//! Banned words: addresses of package archives, which every machine configures for itself, and paths of particular
//! machines.

use crate::{none, texts};

/// The words, in parts so that this file does not contain them.
fn banned() -> Vec<String> {
    let hosts = [
        ("crates", "io"),
        ("pypi", "org"),
        ("files.pythonhosted", "org"),
        ("deb.debian", "org"),
        ("security.debian", "org"),
        ("snapshot.debian", "org"),
        ("archive.ubuntu", "com"),
        ("registry.npmjs", "org"),
        ("static.rust-lang", "org"),
        ("proxy.golang", "org"),
        ("get.nexte", "st"),
    ];
    let paths = [("/work", "main"), ("/work", "shared"), ("/root", ".cargo"), ("/root", ".cache")];
    let hosts = hosts.iter().map(|(name, end)| format!("{name}.{end}"));
    hosts.chain(paths.iter().map(|(dir, below)| format!("{dir}/{below}"))).collect()
}

fn complaints(path: &str, text: &str) -> Vec<String> {
    // Written by cargo, with the addresses of packages.
    let exempt = path == "Cargo.lock";
    let words = banned().into_iter().filter(|word| !exempt && text.contains(word.as_str()));
    words.map(|word| format!("{path} contains `{word}`")).collect()
}

#[test]
fn no_addresses_of_archives_and_no_private_paths() {
    let all: Vec<String> = texts().iter().flat_map(|(path, text)| complaints(path, text)).collect();
    none(&all);
}

#[test]
fn banned_words_are_seen() {
    let word = &banned()[0];
    assert_eq!(complaints("a.md", &format!("see https://{word}/x")).len(), 1);
    assert_eq!(complaints("Cargo.lock", word).len(), 0);
    assert_eq!(complaints("a.md", "nothing of that kind").len(), 0);
}
