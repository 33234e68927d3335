//! The spawner: one single-threaded process that makes, watches and removes sandboxes.
//!
//! It serves one caller over the socket it finds as standard input. When that socket closes, for whatever
//! reason, it ends every sandbox, removes all traces and exits.

mod create;
mod identity;
mod remove;
mod serve;

use std::{os::fd::AsFd, path::PathBuf, process::ExitCode};

pub(crate) use identity::{Identity, has_mount_rights, subordinate};
use sandbox::SandboxInfo;
use serde::{Deserialize, Serialize};

use crate::{cgroup::CgroupVersion, plan::Plan, wire};

/// What the caller asks of the spawner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The first message: where to keep state.
    Begin {
        /// A directory of this spawner's own, not made yet.
        run_dir: PathBuf,
    },
    /// Make a sandbox.
    Create {
        /// Tells answers apart.
        request: u32,
        /// How.
        plan: Box<Plan>,
    },
    /// Make the writable directories of a sandbox that is to be created later, and hand them out.
    Prepare {
        /// Tells answers apart.
        request: u32,
        /// The sandbox's name.
        id: String,
        /// How many.
        overlays: usize,
    },
    /// End a sandbox, or drop one only prepared.
    Destroy {
        /// Tells answers apart.
        request: u32,
        /// The sandbox's name.
        id: String,
    },
    /// Remove what dead spawners left.
    Prune {
        /// Tells answers apart.
        request: u32,
    },
}

/// What the spawner answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is ready for orders.
    Begun(Facts),
    /// It could not start.
    NotBegun(Trouble),
    /// The sandbox exists; the packet carries the socket to its PID 1.
    Created {
        /// The order's number.
        request: u32,
    },
    /// The directories exist; the packet carries them.
    Prepared {
        /// The order's number.
        request: u32,
    },
    /// The sandbox is gone.
    Destroyed {
        /// The order's number.
        request: u32,
    },
    /// These sandboxes were leftovers and are gone.
    Pruned {
        /// The order's number.
        request: u32,
        /// Since the spawner started.
        removed: Vec<SandboxInfo>,
    },
    /// The order failed and left nothing.
    Failed {
        /// The order's number.
        request: u32,
        /// Why.
        trouble: Trouble,
    },
}

/// A failure, as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Trouble {
    /// What was being done.
    pub(crate) what: String,
    /// The system's error number, if it was one of its.
    pub(crate) errno: Option<i32>,
    /// The error in words.
    pub(crate) why: String,
}

impl From<crate::mounts::Failure> for Trouble {
    fn from(failure: crate::mounts::Failure) -> Self {
        let errno = failure.error.raw_os_error();
        Self { what: failure.what, errno, why: failure.error.to_string() }
    }
}

impl From<Trouble> for sandbox::Error {
    fn from(trouble: Trouble) -> Self {
        let source = match trouble.errno {
            Some(errno) => std::io::Error::from_raw_os_error(errno),
            None => std::io::Error::other(trouble.why),
        };
        Self::Io { what: trouble.what, source }
    }
}

/// What this spawner can enforce.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Who root inside is outside.
    pub(crate) users: Users,
    /// Which control groups limit sandboxes.
    pub(crate) cgroups: CgroupVersion,
    /// Controllers among memory, pids and cpu that are usable.
    pub(crate) controllers: Vec<String>,
    /// Where written files go.
    pub(crate) storage: Storage,
}

/// Who the users inside are outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Users {
    /// 65,536 users without any rights on the host.
    Shifted,
    /// Root inside is root outside, without capabilities: this kernel cannot shift file owners.
    SameAsHost,
    /// The ordinary user is root inside; the others are its subordinate users.
    Subordinate,
    /// The ordinary user is root inside; there are no others.
    Single,
}

/// Where written files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Storage {
    /// To the state directory's file system.
    Disk,
    /// To memory: the state directory's file system cannot hold an overlay's upper layer.
    Memory,
}

/// The whole life of a spawner. To be called first thing in a process started for it.
pub fn spawner_main() -> ExitCode {
    // A forked child must not unwind into code that believes itself to be its parent.
    std::panic::set_hook(Box::new(|_| crate::sys::exit_now(101)));
    let stdin = std::io::stdin();
    let first = wire::receive::<Order>(stdin.as_fd());
    let Ok(Some((Order::Begin { run_dir }, _))) = first else {
        return ExitCode::from(2);
    };
    match serve::Spawner::begin(run_dir) {
        Ok(mut spawner) => {
            spawner.serve();
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let _ = wire::send(stdin.as_fd(), &Answer::NotBegun(failure.into()), &[]);
            ExitCode::FAILURE
        }
    }
}

/// Removes the directory of a spawner that died.
pub(crate) fn remove_leftover(run_dir: &std::path::Path) -> std::io::Result<()> {
    remove::remove_tree(run_dir, &remove::Effort::Whatever).map(drop)
}
