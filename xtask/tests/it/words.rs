//! Words that stay out of the repository: addresses of package archives, which every machine configures
//! for itself, and traces of the place where somebody happened to write the code.

use crate::{none, texts};

/// The words, in pieces so that this file does not hold them.
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
    // Cargo itself writes where packages come from.
    let exempt = path == "Cargo.lock";
    let words = banned().into_iter().filter(|word| !exempt && text.contains(word.as_str()));
    words.map(|word| format!("{path} holds `{word}`")).collect()
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
