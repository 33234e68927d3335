//! Test cases.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// The lines of a shared file; prints a skip and returns `None` where the folder is missing.
pub(crate) fn shared_cases(name: &str) -> Option<Vec<Value>> {
    let path = shared().join("cases").join(name);
    let Ok(text) = fs::read_to_string(&path) else {
        let reason =
            format!("no {} beside the workspace", Path::new("shared/cases").join(name).display());
        let required = variable("LIS_REQUIRE").unwrap_or_default();
        let required = required.split(',').any(|name| name.trim() == "shared");
        assert!(!required, "LIS_REQUIRE names shared, but there is {reason}");
        println!("skip: {reason}");
        return None;
    };
    Some(values(&text))
}

/// The lines of one of our own files.
pub(crate) fn own_cases(name: &str) -> Vec<Value> {
    let path = crate_dir().join("tests/data").join(name);
    values(&fs::read_to_string(path).unwrap())
}

fn values(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The directory of this crate, as the test runner names it: the one it was built in may belong to another checkout.
fn crate_dir() -> PathBuf {
    variable("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).into()
}

fn shared() -> PathBuf {
    let beside = || crate_dir().join("../../../shared");
    variable("LIS_SHARED").map_or_else(beside, PathBuf::from)
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what must work")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
