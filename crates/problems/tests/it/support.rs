//! Paths of test data, and how a test reports that it is skipped.

use std::path::PathBuf;

/// A file of the shared real rows; `None`, with a notice, where the folder is missing.
pub(crate) fn shared_rows(name: &str) -> Option<PathBuf> {
    let beside = || crate_dir().join("../../../shared");
    let shared = variable("LIS_SHARED").map_or_else(beside, PathBuf::from);
    let path = shared.join("data/tasks").join(name);
    if !path.is_file() {
        skip("shared", &format!("no shared/data/tasks/{name} beside the workspace"));
        return None;
    }
    Some(path)
}

/// A task of the examples.
pub(crate) fn example(name: &str) -> PathBuf {
    crate_dir().join("../../examples/tasks").join(name)
}

/// The directory of this crate, as the test runner names it: the one it was built in may belong to another checkout.
pub(crate) fn crate_dir() -> PathBuf {
    variable("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).into()
}

/// Announces that a test does not run, or fails it where `LIS_REQUIRE` asks for the capability.
pub(crate) fn skip(capability: &str, reason: &str) {
    let required = variable("LIS_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == capability);
    assert!(!required, "{capability} is required but missing: {reason}");
    eprintln!("skip: {capability}: {reason}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "the environment says which capabilities are required"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
