//! The spawner: a single-threaded process that creates, watches and removes sandboxes.
//!
//! It serves one caller over the socket at its standard input. When that socket closes, for whatever reason, it kills
//! every sandbox, removes their files and exits.

mod counted;
mod create;
mod identity;
mod project;
mod remove;
mod serve;
mod volume;

use std::{os::fd::AsFd, path::PathBuf, process::ExitCode};

pub(crate) use identity::{Identity, has_mount_rights, subordinate, unshare};
use sandbox::SandboxInfo;
use serde::{Deserialize, Serialize};

use crate::{
    cgroup::CgroupVersion,
    diagnostics,
    mounts::Step,
    plan::Plan,
    sys::{self, SingleThreaded},
    wire::{self, WireError},
};

/// A request of the caller to the spawner. Replies repeat its number, `request`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SpawnerRequest {
    /// The first message.
    Start {
        /// The spawner's own directory for state; must not exist yet.
        run_dir: PathBuf,
        /// The directory for the tree of the built-in image, which all spawners share.
        host_image: PathBuf,
    },
    /// Create a sandbox.
    Create {
        /// Number of the request.
        request: u32,
        /// Description of the sandbox.
        plan: Box<Plan>,
    },
    /// Create the writable directories of a sandbox that is created later, and send them.
    Prepare {
        /// Number of the request.
        request: u32,
        /// The sandbox that will be created.
        plan: Box<Plan>,
    },
    /// Destroy a sandbox, or a prepared one.
    Destroy {
        /// Number of the request.
        request: u32,
        /// The sandbox's name.
        id: String,
    },
    /// Remove the leftovers of dead spawners.
    Prune {
        /// Number of the request.
        request: u32,
    },
}

/// A message of the spawner to the caller.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SpawnerReply {
    /// The spawner is ready for requests.
    Started(HostSupport),
    /// The spawner could not start.
    NotStarted(WireFailure),
    /// The sandbox exists; the packet carries the socket to its PID 1.
    Created {
        /// Number of the request.
        request: u32,
    },
    /// The directories exist; the packet carries them.
    Prepared {
        /// Number of the request.
        request: u32,
    },
    /// The sandbox is gone.
    Destroyed {
        /// Number of the request.
        request: u32,
    },
    /// These sandboxes were leftovers and are gone.
    Pruned {
        /// Number of the request.
        request: u32,
        /// Those removed since the last such reply.
        removed: Vec<SandboxInfo>,
    },
    /// The request failed and left nothing behind.
    Failed {
        /// Number of the request.
        request: u32,
        /// The reason.
        failure: WireFailure,
    },
}

/// A [`Failure`](crate::mounts::Failure) as it travels between processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WireFailure {
    /// What was being done.
    what: String,
    /// The system's error.
    error: WireError,
}

impl From<crate::mounts::Failure> for WireFailure {
    fn from(failure: crate::mounts::Failure) -> Self {
        Self { what: failure.what, error: WireError::from(&failure.error) }
    }
}

impl From<WireFailure> for sandbox::Error {
    fn from(failure: WireFailure) -> Self {
        Self::Io { what: failure.what, source: failure.error.into() }
    }
}

/// What this machine lets the spawner enforce.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostSupport {
    /// Who the users of a sandbox are on the host.
    pub(crate) users: Users,
    /// Version of control groups that limits sandboxes.
    pub(crate) cgroups: CgroupVersion,
    /// Usable controllers among `memory`, `pids` and `cpu`.
    pub(crate) controllers: Vec<String>,
    /// Whether all processes of a sandbox can be stopped in one step.
    pub(crate) can_freeze: bool,
    /// Where the sandboxes' files are stored.
    pub(crate) storage: Storage,
    /// What is missing for a strict disk quota, if anything is.
    pub(crate) no_strict_quota: Option<String>,
    /// What is missing for project quotas, if anything is.
    pub(crate) no_project_quota: Option<String>,
    /// Whether a limit on memory covers the buffers of sockets.
    pub(crate) limits_sockets: bool,
    /// Whether a crash inside starts a program of the host.
    pub(crate) crash_handler: CrashHandler,
}

/// What the host does when a process in a sandbox crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CrashHandler {
    /// Nothing.
    NotStarted,
    /// It starts its program for core dumps: the caller's limit on core dumps is 0 and cannot be raised to 1.
    Started,
}

/// Who the users of a sandbox are on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Users {
    /// 65,536 users without any rights on the host.
    Shifted,
    /// Root of the sandbox is root of the host, without capabilities: this kernel cannot shift file owners.
    SameAsHost,
    /// Root of the sandbox is the calling user; the others are its subordinate users.
    Subordinate,
    /// Root of the sandbox is the calling user; there are no others.
    Single,
}

/// Where the sandboxes' files are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Storage {
    /// In the state directory.
    Disk,
    /// In memory: the state directory's file system cannot hold an overlay's upper layer.
    Memory,
}

/// Runs the spawner until its caller is gone.
///
/// To be called at the very start of a process that was started for it, before any thread exists; with a second thread
/// it fails. Standard input is the socket to the caller, standard error a pipe the caller reads diagnostics from.
pub fn spawner_main() -> ExitCode {
    diagnostics::exit_on_panic();
    diagnostics::drop_unread_reports();
    sys::keep_heap_shareable();
    // SAFETY: the one thread there is now, as the constructor checks, stays in this function until the token is gone.
    // Nothing called from here starts another, in the spawner or in a sandbox's processes before they `exec`: the code
    // is synchronous and uses neither tokio nor `std::thread::spawn`.
    let single = unsafe { SingleThreaded::assert() };
    // While its caller starts as well, and before it says what it wants.
    let prepared = single.step("starting the spawner").and_then(serve::Prepared::new);
    let stdin = std::io::stdin();
    let first = match wire::receive::<SpawnerRequest>(stdin.as_fd()) {
        Ok(Some((first, _))) => first,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            diagnostics::report(&format!("cannot read the caller's first message: {error}"));
            return ExitCode::from(2);
        }
    };
    let SpawnerRequest::Start { run_dir, host_image } = first else {
        diagnostics::report("the caller's first message is not a request to begin");
        return ExitCode::from(2);
    };
    let begun = prepared.and_then(|prepared| serve::Spawner::begin(prepared, run_dir, host_image));
    match begun {
        Ok(mut spawner) => {
            spawner.serve();
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let _ = wire::send(stdin.as_fd(), &SpawnerReply::NotStarted(failure.into()), &[]);
            ExitCode::FAILURE
        }
    }
}

/// Removes the state directory of a dead spawner.
pub(crate) fn remove_leftover(run_dir: &std::path::Path) -> std::io::Result<()> {
    project::release_all(run_dir);
    remove::remove_tree(run_dir, &remove::Effort::Unlimited).map(drop)
}
