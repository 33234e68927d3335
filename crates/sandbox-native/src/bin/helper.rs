//! The spawner as a program of its own, for callers that cannot re-execute themselves: tests, and
//! processes of other languages that load this library.

fn main() -> std::process::ExitCode {
    #[cfg(target_os = "linux")]
    return lis_sandbox_native::spawner_main();
    #[cfg(not(target_os = "linux"))]
    std::process::ExitCode::FAILURE
}
