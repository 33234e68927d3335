//! Restrictions that every command applies to itself before it starts: capabilities, privileges, system calls,
//! resources.
//!
//! The filter is built once, in the spawner; every command of every sandbox installs the same one.

use std::{collections::BTreeMap, io, os::fd::BorrowedFd};

use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CapabilitySet, CapabilitySets},
};
use sandbox::Limits;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

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
}

impl ResourceLimits {
    /// Returns the limits; those that a control group enforces are left out.
    pub(crate) fn new(limits: &Limits, group_memory: CgroupLimit, group_pids: CgroupLimit) -> Self {
        Self {
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
    pub(crate) fn apply(&self) -> io::Result<()> {
        let limit = |resource, value: Option<u64>| {
            value.map_or(Ok(()), |v| {
                setrlimit(resource, Rlimit { current: Some(v), maximum: Some(v) })
            })
        };
        limit(Resource::Core, Some(0))?;
        // Far below PID 1's own limit: descriptors in flight between commands count against that.
        let most = getrlimit(Resource::Nofile).maximum.map_or(4096, |most| most.min(4096));
        setrlimit(Resource::Nofile, Rlimit { current: Some(most.min(1024)), maximum: Some(most) })?;
        limit(Resource::Fsize, self.limits.file_size)?;
        limit(Resource::Data, self.limits.memory)?;
        limit(Resource::Nproc, self.limits.processes)?;
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

/// System calls that reach risky parts of the kernel, or that only an escape would need.
fn refused() -> Vec<libc::c_long> {
    let mut calls = vec![
        libc::SYS_acct,
        libc::SYS_add_key,
        libc::SYS_adjtimex,
        libc::SYS_bpf,
        libc::SYS_clock_adjtime,
        libc::SYS_clock_settime,
        libc::SYS_delete_module,
        libc::SYS_fanotify_init,
        libc::SYS_finit_module,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fsopen,
        libc::SYS_fspick,
        libc::SYS_init_module,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_io_uring_setup,
        libc::SYS_kcmp,
        libc::SYS_kexec_file_load,
        libc::SYS_kexec_load,
        libc::SYS_keyctl,
        libc::SYS_lookup_dcookie,
        libc::SYS_mount,
        libc::SYS_mount_setattr,
        libc::SYS_move_mount,
        libc::SYS_nfsservctl,
        libc::SYS_open_by_handle_at,
        libc::SYS_open_tree,
        libc::SYS_perf_event_open,
        libc::SYS_pivot_root,
        libc::SYS_process_madvise,
        libc::SYS_quotactl,
        libc::SYS_quotactl_fd,
        libc::SYS_reboot,
        libc::SYS_request_key,
        libc::SYS_setdomainname,
        libc::SYS_sethostname,
        libc::SYS_setns,
        libc::SYS_settimeofday,
        libc::SYS_swapoff,
        libc::SYS_swapon,
        libc::SYS_syslog,
        libc::SYS_umount2,
        libc::SYS_unshare,
        libc::SYS_userfaultfd,
        libc::SYS_vhangup,
        libc::SYS_vmsplice,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        libc::SYS_ioperm,
        libc::SYS_iopl,
        libc::SYS_modify_ldt,
        libc::SYS_sysfs,
        libc::SYS_uselib,
        libc::SYS_ustat,
        libc::SYS__sysctl,
    ]);
    calls
}

/// The highest system call number the list was checked against. Newer calls fail with `ENOSYS`.
const NEWEST_KNOWN: u32 = 466;

/// Allowed socket families. All others (vsock to the hypervisor, raw packets, kernel crypto ...) are refused.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Builds the filter.
pub(crate) fn filter() -> io::Result<Vec<libc::sock_filter>> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        refused().into_iter().map(|call| (call, Vec::new())).collect();
    let all = |conditions| SeccompRule::new(conditions).map_err(io::Error::other);
    let new_namespaces = (libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP) as u64;
    let mut clone_rules = Vec::new();
    for bit in (0..64).map(|i| 1u64 << i).filter(|bit| new_namespaces & bit != 0) {
        clone_rules.push(all(vec![condition(0, SeccompCmpOp::MaskedEq(bit), bit)?])?);
    }
    rules.insert(libc::SYS_clone, clone_rules);
    let other_family = FAMILIES
        .iter()
        .map(|family| condition(0, SeccompCmpOp::Ne, *family as u64))
        .collect::<io::Result<Vec<_>>>()?;
    rules.insert(libc::SYS_socket, vec![all(other_family)?]);
    let not_unix = condition(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)?;
    rules.insert(libc::SYS_socketpair, vec![all(vec![not_unix])?]);
    // Setting limits of another process, in particular PID 1.
    let another = condition(0, SeccompCmpOp::Ne, 0)?;
    let setting = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    let setting = setting.map_err(io::Error::other)?;
    rules.insert(libc::SYS_prlimit64, vec![all(vec![another, setting])?]);
    // Injecting input into another terminal.
    let mut ioctls = Vec::new();
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        ioctls.push(all(vec![condition(1, SeccompCmpOp::Eq, request)?])?);
    }
    rules.insert(libc::SYS_ioctl, ioctls);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let body: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)
        .and_then(TryInto::try_into)
        .map_err(io::Error::other)?;
    let body =
        body.into_iter().map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k });
    Ok(unknown_calls().into_iter().chain(body).collect())
}

fn condition(arg: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(arg, SeccompCmpArgLen::Dword, operator, value).map_err(io::Error::other)
}

/// Returns `ENOSYS` for numbers beyond the known ones (including the x32 table), and for `clone3`, whose flags a filter
/// cannot see: C libraries then fall back to `clone`.
fn unknown_calls() -> [libc::sock_filter; 4] {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    [
        step(LOAD_NUMBER, 0, 0, 0),
        step(IF_GREATER, 1, 0, NEWEST_KNOWN),
        step(IF_EQUAL, 0, 1, libc::SYS_clone3 as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]
}
