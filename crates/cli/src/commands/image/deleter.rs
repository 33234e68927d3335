//! Deletes what was removed from the image store, in a process of its own: a large image takes longer than anyone wants
//! to wait.
//!
//! The process ends when nothing is left to delete. If it is killed, the next `image` command starts another.

use std::{
    env,
    ffi::OsStr,
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use image::{Silent, Store};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The hidden argument that makes the program start one that deletes, and end; the next one is the directory of the
/// store. The program that deletes is then no child of the command, which would wait for it.
const START: &str = "__start-deleter";
/// The hidden argument that makes the program delete.
const DELETE: &str = "__empty-trash";
/// How long a command waits, because most deletions take less.
const PATIENCE: Duration = Duration::from_millis(1500);
const POLL: Duration = Duration::from_millis(10);

/// How far a deletion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// Everything is deleted.
    Done,
    /// A process is still deleting.
    Continues,
}

/// Deletes, or starts a process that does, if this process was started for it.
pub(crate) fn become_deleter() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    let first = arguments.next()?;
    let starts = first == OsStr::new(START);
    if !starts && first != OsStr::new(DELETE) {
        return None;
    }
    let store = arguments.next().and_then(|dir| Store::open(Path::new(&dir)).ok());
    let done = match store {
        Some(store) if starts => {
            // It outlives the command, and must not get the signals of its terminal.
            let _ = rustix::process::setsid();
            // Nor may it hold the caller's pipes open. Where the kernel is too old for that, it deletes all the same.
            #[cfg(target_os = "linux")]
            let _ = sandbox_native::inherit_only_stdio();
            spawn(DELETE, &store).is_some()
        }
        Some(store) => {
            let _ = rustix::process::nice(10);
            // A deep tree, deleted by several threads, needs more descriptors than the usual default.
            let limit = getrlimit(Resource::Nofile);
            let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
            store.empty_trash(&Silent).is_ok()
        }
        None => false,
    };
    Some(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts a process that deletes what is in the trash.
pub(crate) fn start(store: &Store) {
    if let Some(mut process) = spawn(START, store) {
        // It ends at once.
        let _ = process.wait();
    }
}

fn spawn(argument: &str, store: &Store) -> Option<Child> {
    let program = Path::new("/proc/self/exe");
    let program = if program.exists() { program.to_owned() } else { env::current_exe().ok()? };
    #[expect(clippy::disallowed_methods, reason = "it is this program itself")]
    let mut command = Command::new(program);
    command.arg(argument).arg(store.root()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

/// Deletes what is in the trash, and waits a moment for the end.
pub(crate) async fn empty_trash(store: Store) -> anyhow::Result<Deletion> {
    let empty = || store.trash_is_empty();
    if empty()? {
        return Ok(Deletion::Done);
    }
    start(&store);
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if empty()? {
            return Ok(Deletion::Done);
        }
        tokio::time::sleep(POLL).await;
    }
    if !store.has_abandoned_trash()? {
        return Ok(Deletion::Continues);
    }
    // No process could be started, or it failed: here its error is seen.
    let emptied = tokio::task::spawn_blocking(move || store.empty_trash(&Silent));
    emptied.await.context("a worker thread failed")??;
    Ok(Deletion::Done)
}
