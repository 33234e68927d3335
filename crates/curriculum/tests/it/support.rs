//! Shared data, and skipping tests.

use std::path::PathBuf;

/// A file of the shared data; `None` with a skip message where the folder is missing.
pub(crate) fn shared_data(name: &str) -> Option<PathBuf> {
    let partial = || crate_dir().join("../../../shared");
    let shared = variable("LIS_SHARED").map_or_else(partial, PathBuf::from);
    let path = shared.join("data/context").join(name);
    if !path.is_file() {
        skip("shared", &format!("no shared/data/context/{name} beside the workspace"));
        return None;
    }
    Some(path)
}

/// Prints that a test is skipped, or fails it where `LIS_REQUIRE` names the capability.
pub(crate) fn skip(capability: &str, reason: &str) {
    let required = variable("LIS_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == capability);
    assert!(!required, "{capability} is required but missing: {reason}");
    eprintln!("skip: {capability}: {reason}");
}

/// The directory of this crate, as the test runner names it: the one it was built in may belong to another checkout.
fn crate_dir() -> PathBuf {
    variable("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).into()
}

/// An environment variable of the test run.
#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what must work")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
