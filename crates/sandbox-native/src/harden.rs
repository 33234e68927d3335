//! Restrictions that every command applies to itself before it starts: capabilities, privileges, system calls,
//! resources.
//!
//! The filter is built once, in the spawner; every command of every sandbox installs the same one.

mod filter;

use std::{io, os::fd::BorrowedFd};

use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CapabilitySet, CapabilitySets},
};
use sandbox::Limits;

pub(crate) use self::filter::filter;

use crate::{plan::NetworkPlan, sys};

/// Capabilities of root in the sandbox: enough to install packages and manage files, without access to further kernel
/// interfaces.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT);

/// The restrictions of every command of a sandbox.
#[derive(Clone)]
pub(crate) struct Hardening {
    filter: Vec<libc::sock_filter>,
    limits: ResourceLimits,
    network: NetworkPlan,
}

/// Per-process limits: some replace missing control groups, others always apply.
#[derive(Clone, Copy, Default)]
pub(crate) struct ResourceLimits {
    file_size: Option<u64>,
    memory: Option<u64>,
    processes: Option<u64>,
    /// Open files of a command.
    descriptors: u64,
}

/// Most open files of one command. Descriptors in flight between processes are counted for all processes of a user, and
/// refused to those whose own limit is lower: this one must stay below that of PID 1 and of the host's programs.
const MAX_DESCRIPTORS: u64 = 1024;
/// The fewest descriptors of a command, however many processes there may be.
const MIN_DESCRIPTORS: u64 = 256;

impl ResourceLimits {
    /// Returns the limits; those that a control group enforces are left out. `file_max` is the number of files that all
    /// processes of the machine can have open: all commands of one sandbox can have a quarter of them.
    pub(crate) fn new(
        limits: &Limits,
        group_memory: CgroupLimit,
        group_pids: CgroupLimit,
        file_max: u64,
    ) -> Self {
        let processes = limits.pids.map_or(1, u64::from).max(1);
        Self {
            descriptors: (file_max / 4 / processes).clamp(MIN_DESCRIPTORS, MAX_DESCRIPTORS),
            file_size: limits.disk.map(|d| d.bytes()),
            memory: limits
                .memory
                .map(|m| m.bytes())
                .filter(|_| group_memory == CgroupLimit::Missing),
            processes: limits.pids.map(u64::from).filter(|_| group_pids == CgroupLimit::Missing),
        }
    }
}

/// Whether a control group enforces a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CgroupLimit {
    /// It does.
    Enforced,
    /// It does not.
    Missing,
}

/// Who is confined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confined {
    /// A command of the sandbox.
    Command,
    /// A file worker. It keeps PID 1's limit on descriptors: it has to send one to the caller even if commands of other
    /// sandboxes have as many in flight as they may.
    FileWorker,
}

impl Hardening {
    /// Combines a filter, limits and the network policy.
    pub(crate) fn new(
        filter: Vec<libc::sock_filter>,
        limits: ResourceLimits,
        network: NetworkPlan,
    ) -> Self {
        Self { filter, limits, network }
    }

    /// Applies the restrictions to this process and its descendants, irrevocably.
    pub(crate) fn apply(&self, who: Confined) -> io::Result<()> {
        let limit = |resource, value: Option<u64>| {
            value.map_or(Ok(()), |v| {
                setrlimit(resource, Rlimit { current: Some(v), maximum: Some(v) })
            })
        };
        if who == Confined::Command {
            let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
            limit(Resource::Nofile, Some(most.min(self.limits.descriptors)))?;
        }
        limit(Resource::Fsize, self.limits.file_size)?;
        limit(Resource::Data, self.limits.memory)?;
        limit(Resource::Nproc, self.limits.processes)?;
        // Some users may run before all others, for sound or measurements. Their sandboxes may not.
        limit(Resource::Rtprio, Some(0))?;
        limit(Resource::Nice, Some(0))?;
        if self.network == NetworkPlan::Host {
            sys::scope_abstract_sockets()?;
        }
        drop_capabilities()?;
        rustix::thread::set_no_new_privs(true)?;
        sys::install_seccomp(&self.filter)
    }
}

/// Makes the kernel kill this process before PID 1 when memory runs out. `proc` is writable even where commands see
/// `/proc` read-only.
///
/// A process owns its file only while it is dumpable. Commands cannot use that moment to trace it, because it still has
/// more capabilities than they.
pub(crate) fn prefer_for_killing(proc: BorrowedFd<'_>) {
    use rustix::{
        fs::{Mode, OFlags, openat},
        process::{DumpableBehavior, set_dumpable_behavior},
    };
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = openat(proc, "self/oom_score_adj", flags, Mode::empty()) {
        let _ = rustix::io::write(file, b"500");
    }
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

fn drop_capabilities() -> io::Result<()> {
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // The kernel is older than the capability.
            Err(rustix::io::Errno::INVAL) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let sets =
        CapabilitySets { effective: KEPT, permitted: KEPT, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_cannot_have_all_files_of_the_machine_open() {
        let descriptors = |pids, file_max| {
            let limits = Limits { pids, ..Limits::default() };
            let held = CgroupLimit::Enforced;
            ResourceLimits::new(&limits, held, held, file_max).descriptors
        };
        assert_eq!(descriptors(Some(512), u64::MAX), 1024);
        assert_eq!(descriptors(Some(512), 1_000_000), 488);
        assert_eq!(descriptors(Some(4096), 1_000_000), MIN_DESCRIPTORS);
        assert_eq!(descriptors(None, 100_000), 1024);
    }
}
