//! The architecture as tests: allowed dependencies between crates, rules for files, banned words.
//!
//! Each rule is a function from text to complaints, tested on bad text as well as on the workspace.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the workspace has failed")]

mod arrows;
mod attacks;
mod calls;
mod files;
mod looks;
mod options;
mod promises;
mod walks;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The workspace, as the test runner names it: the directory it was built in may belong to another checkout.
fn root() -> PathBuf {
    let dir = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    Path::new(&dir).parent().unwrap().to_owned()
}

/// Every text file of the workspace, as a path below it and its contents, without build outputs, packages and version
/// history.
fn texts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut dirs = vec![root()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            let kind = entry.file_type().unwrap();
            // In a linked work tree `.git` is a file.
            if name == ".git" || name == "target" || name == "node_modules" {
                continue;
            }
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file()
                && let Ok(text) = fs::read_to_string(entry.path())
            {
                let below = entry.path().strip_prefix(root()).unwrap().to_owned();
                found.push((below.to_str().unwrap().to_owned(), text));
            }
        }
    }
    found.sort();
    assert!(found.iter().any(|(path, _)| path == "Cargo.toml"), "not the workspace");
    found
}

/// Fails with all complaints, one per line.
fn none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}
