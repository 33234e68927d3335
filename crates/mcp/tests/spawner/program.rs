//! The program that makes the sandboxes of this crate's tests.
//!
//! An example by name only: examples are built with the tests and may use what only tests depend on.

fn main() -> std::process::ExitCode {
    #[cfg(target_os = "linux")]
    return sandbox_native::spawner_main();
    #[cfg(not(target_os = "linux"))]
    std::process::ExitCode::FAILURE
}
