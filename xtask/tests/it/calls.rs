//! Both runtimes refuse the same system calls: what the native filter has a rule for, the profile of the Docker runtime does
//! not allow without looking at its arguments.

use std::fs;

use crate::{none, root};

const NATIVE: &str = "crates/sandbox-native/src/harden/filter.rs";
const DOCKER: &str = "crates/sandbox-docker/src/seccomp.rs";

/// The calls that the native filter names.
fn named(source: &str) -> Vec<&str> {
    let words = source.split("libc::SYS_").skip(1);
    let end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    words.map(|word| word.split(end).next().unwrap()).collect()
}

/// The calls that the profile allows whatever their arguments.
fn allowed(source: &str) -> Vec<&str> {
    let list = source.split_once("const ALLOWED: &str = \"").unwrap().1;
    list.split_once('"').unwrap().0.split_whitespace().collect()
}

fn complaints(native: &str, docker: &str) -> Vec<String> {
    let allowed = allowed(docker);
    let both = named(native).into_iter().filter(|call| allowed.contains(call));
    both.map(|call| format!("`{call}`: {NATIVE} has a rule for it, {DOCKER} allows it")).collect()
}

#[test]
fn both_runtimes_refuse_the_same_calls() {
    let [native, docker] =
        [NATIVE, DOCKER].map(|path| fs::read_to_string(root().join(path)).unwrap());
    assert!(named(&native).len() > 50 && allowed(&docker).len() > 250, "the lists are not found");
    none(&complaints(&native, &docker));
}

#[test]
fn a_call_that_only_one_refuses_is_seen() {
    let docker = "const ALLOWED: &str = \"\nread mount\n\";";
    assert_eq!(complaints("libc::SYS_mount, libc::SYS_bpf", docker).len(), 1);
    assert_eq!(complaints("libc::SYS_bpf", docker).len(), 0);
}
