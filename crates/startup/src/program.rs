//! A program from its first line to its exit code.

#[cfg(target_os = "linux")]
use std::sync::LazyLock;
use std::{ffi::OsStr, process::ExitCode};

use anyhow::Context;

use crate::{Exit, LogArgs, LogFormat, Signals, children, log, note};

/// The hidden argument that makes a program the spawner of sandboxes.
#[cfg(target_os = "linux")]
const SPAWNER: &str = "__spawner";

/// How many threads run tasks. Those that wait for files and for standard input are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The main thread alone: it saves a command that only waits for one sandbox the way between threads.
    One,
    /// As many as the machine has processors.
    AsManyAsProcessors,
}

/// The running program.
#[derive(Clone, Copy, Debug)]
pub struct Program(());

impl Program {
    /// Registers the program's name, which precedes every line of `note`.
    pub fn new(name: &'static str) -> Self {
        note::set_program(name);
        Self(())
    }

    /// Serves sandboxes and returns the exit code, if this process was started as the spawner. Must be the first call
    /// of `main`: the spawner has to be, and stay, single-threaded.
    pub fn become_spawner(self) -> Option<ExitCode> {
        #[cfg(target_os = "linux")]
        if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(SPAWNER)) {
            return Some(sandbox_native::spawner_main());
        }
        None
    }

    /// Starts the spawner now, for a command that is known to create a sandbox: it starts while this program reads its
    /// arguments and settings.
    pub fn start_spawner_early(self) {
        #[cfg(target_os = "linux")]
        launcher().start_early();
    }

    /// Keeps the memory of a program small that runs for long with many threads. To be called before threads start.
    pub fn run_long(self) {
        #[cfg(target_os = "linux")]
        sandbox_native::share_heaps();
    }

    /// Turns logging on, where `-v` or `filter` (the value of [`LOG_VARIABLE`](crate::LOG_VARIABLE)) asks for it.
    /// Returns whether anything is logged.
    pub fn init_logging(self, args: &LogArgs, filter: Option<&OsStr>, format: LogFormat) -> bool {
        log::init(args, filter, format)
    }

    /// Runs `main` on a tokio runtime, then waits up to two seconds for child processes to end.
    ///
    /// # Errors
    /// Those of `main`, and if threads cannot be started or signals not received.
    pub fn block_on(
        self,
        threads: Threads,
        main: impl AsyncFnOnce(Signals) -> anyhow::Result<Exit>,
    ) -> anyhow::Result<Exit> {
        let runtime = self.runtime(threads)?;
        let ended = runtime.block_on(async {
            let signals = Signals::listen().context("cannot listen to signals")?;
            main(signals).await
        });
        Self::shut_down(runtime);
        ended
    }

    /// Builds a tokio runtime, for programs that block on it themselves.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn runtime(self, threads: Threads) -> anyhow::Result<tokio::runtime::Runtime> {
        let mut builder = match threads {
            Threads::One => tokio::runtime::Builder::new_current_thread(),
            Threads::AsManyAsProcessors => tokio::runtime::Builder::new_multi_thread(),
        };
        let runtime = builder.enable_all().build();
        // No disk is full: the kernel has this error for a limit on `epoll` too.
        if runtime.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::StorageFull) {
            anyhow::bail!(
                "cannot start threads: processes of this user watch as many files as the sysctl \
                 fs.epoll.max_user_watches allows; end some"
            );
        }
        runtime.context("cannot start threads")
    }

    /// Ends the runtime without waiting for blocked threads, then waits up to two seconds for child processes.
    pub fn shut_down(runtime: tokio::runtime::Runtime) {
        // A thread may wait for input that never comes.
        runtime.shutdown_background();
        #[cfg(target_os = "linux")]
        launcher().early.discard();
        children::wait_for_children();
    }
}

/// Starts this program again, as the spawner.
#[cfg(target_os = "linux")]
pub fn launcher() -> sandbox_native::Launcher {
    static LAUNCHER: LazyLock<sandbox_native::Launcher> = LazyLock::new(|| {
        // The link works even when the program's file was replaced meanwhile.
        let link = std::path::PathBuf::from("/proc/self/exe");
        let program = if link.exists() { link } else { std::env::current_exe().unwrap_or(link) };
        // The spawner is this program and needs its libraries.
        let name = "LD_LIBRARY_PATH";
        #[expect(clippy::disallowed_methods, reason = "the spawner inherits nothing else")]
        let env = std::env::var_os(name).map(|path| (name.into(), path));
        let launcher = sandbox_native::Launcher::new(program);
        let (args, env) = (vec![SPAWNER.into()], env.into_iter().collect());
        sandbox_native::Launcher { args, env, ..launcher }
    });
    LAUNCHER.clone()
}
