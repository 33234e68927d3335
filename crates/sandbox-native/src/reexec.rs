//! Starting the spawner by executing this program again: one line at the top of a caller's `main`.

use std::{
    path::PathBuf,
    process::{ExitCode, exit},
};

use crate::{Launcher, NativeOptions, spawner_main};

/// The only argument of a process that is to become the spawner.
const SPAWNER: &str = "__spawner";

/// Turns this process into the spawner if [`Launcher::current_program`] started it as one, and exits when
/// the spawner is done; returns at once otherwise.
///
/// Call it first in `main`, before any thread exists: under `#[tokio::main]` it would come too late.
pub fn init() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == SPAWNER) {
        exit(i32::from(spawner_main() != ExitCode::SUCCESS));
    }
}

/// Makes programs that this process starts inherit its standard streams and no other descriptor, whatever this process
/// itself inherited. A process that is to outlive its caller must not hold the caller's pipes open.
///
/// # Errors
/// If the kernel is older than 5.11.
pub fn inherit_only_stdio() -> std::io::Result<()> {
    crate::sys::close_on_exec_from(3)
}

impl Launcher {
    /// This program, executed again with an empty environment. Its `main` must begin with [`init`].
    pub fn current_program() -> Self {
        // The link works even after the program's file was replaced.
        let link = PathBuf::from("/proc/self/exe");
        let program = if link.exists() { link } else { std::env::current_exe().unwrap_or(link) };
        Self { args: vec![SPAWNER.into()], ..Self::new(program) }
    }
}

impl NativeOptions {
    /// State and images below `home`, created if missing; the spawner is [`Launcher::current_program`].
    pub fn new(home: impl Into<PathBuf>) -> Self {
        let home = home.into();
        Self { state: home.clone(), home, launcher: Launcher::current_program() }
    }
}
