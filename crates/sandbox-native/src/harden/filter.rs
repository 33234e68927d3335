//! The system call filter of commands and file workers.
//!
//! Two lists: calls that fail with `EPERM`, compiled by `seccompiler`, and before them those for which programs expect
//! another result. What is refused, and why each result was chosen, is in `docs/security.md`.

use std::{collections::BTreeMap, io};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

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

/// Requests that reserve blocks beyond the end of a file, where no limit on its size applies: `FS_IOC_RESVSP`,
/// `FS_IOC_RESVSP64` and `FS_IOC_ZERO_RANGE`.
const RESERVING: [u32; 3] = [0x4030_5828, 0x4030_582a, 0x4030_5839];

/// Requests about bridges and VLANs, from `SIOCGIFBR` and `SIOCGIFVLAN` on: where these are modules, the kernel starts
/// the machine's `modprobe` for them, whoever asks.
const LOADING: [u32; 8] = [0x8940, 0x8941, 0x8982, 0x8983, 0x89a0, 0x89a1, 0x89a2, 0x89a3];

/// Builds the filter.
pub(crate) fn filter() -> io::Result<Vec<libc::sock_filter>> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        refused().into_iter().map(|call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_clone, new_namespaces()?);
    let other_family = FAMILIES
        .iter()
        .map(|family| condition(0, SeccompCmpOp::Ne, *family as u64))
        .collect::<io::Result<Vec<_>>>()?;
    rules.insert(libc::SYS_socket, vec![all(other_family)?]);
    let not_unix = condition(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)?;
    rules.insert(libc::SYS_socketpair, vec![all(vec![not_unix])?]);
    // Setting limits of another process, in particular PID 1, and the one on core dumps.
    let another = condition(0, SeccompCmpOp::Ne, 0)?;
    let core = condition(1, SeccompCmpOp::Eq, u64::from(libc::RLIMIT_CORE))?;
    let setting = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    let setting = setting.map_err(io::Error::other)?;
    let limits = vec![all(vec![another, setting.clone()])?, all(vec![core, setting])?];
    rules.insert(libc::SYS_prlimit64, limits);
    rules.extend(priorities()?);
    // Injecting input into another terminal, and line disciplines, for which the kernel loads modules.
    let mut ioctls = Vec::new();
    for request in [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD] {
        ioctls.push(all(vec![condition(1, SeccompCmpOp::Eq, request)?])?);
    }
    rules.insert(libc::SYS_ioctl, ioctls);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let body: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)
        .and_then(TryInto::try_into)
        .map_err(io::Error::other)?;
    let body =
        body.into_iter().map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k });
    let rules = first_rules();
    let first = unknown_calls().into_iter().chain(rules.iter().flat_map(Rule::compile));
    Ok(first.chain(body).collect())
}

/// Creating a process in new namespaces.
fn new_namespaces() -> io::Result<Vec<SeccompRule>> {
    let flags = (libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP) as u64;
    let bits = (0..64).map(|i| 1u64 << i).filter(|bit| flags & bit != 0);
    bits.map(|bit| all(vec![condition(0, SeccompCmpOp::MaskedEq(bit), bit)?])).collect()
}

/// C libraries disagree on its type.
const PRIO_PROCESS: u32 = 0;
const IOPRIO_WHO_PROCESS: u32 = 1;
const IOPRIO_WHO_USER: u64 = 3;

/// Changing the priority of other groups of processes, and of users: the first argument says what the second names. File
/// workers belong to the same user as commands, so the kernel would let commands make them wait without end. A group may
/// change its own, named by 0. `first_rules` has the rule for single processes.
fn priorities() -> io::Result<Vec<(i64, Vec<SeccompRule>)>> {
    let mut rules = Vec::new();
    let by_user =
        [(libc::SYS_setpriority, libc::PRIO_USER as u64), (libc::SYS_ioprio_set, IOPRIO_WHO_USER)];
    for (call, user) in by_user {
        let another = all(vec![condition(1, SeccompCmpOp::Ne, 0)?])?;
        rules.push((call, vec![another, all(vec![condition(0, SeccompCmpOp::Eq, user)?])?]));
    }
    Ok(rules)
}

fn all(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(io::Error::other)
}

fn condition(arg: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(arg, SeccompCmpArgLen::Dword, operator, value).map_err(io::Error::other)
}

/// A call that returns `result` at once, if all tests hold.
struct Rule {
    call: libc::c_long,
    tests: Vec<Test>,
    /// An error number, or 0 for a success without effect.
    result: libc::c_int,
}

/// A test of an argument, by its position.
enum Test {
    /// The lower 32 bits, masked, have this value.
    Masked { arg: u32, mask: u32, value: u32 },
    /// The lower 32 bits are not 0.
    NotZero { arg: u32 },
    /// All 64 bits are 0.
    Null { arg: u32 },
    /// Not all 64 bits are 0.
    NotNull { arg: u32 },
    /// The lower 32 bits, masked, have none of these values.
    NoneOf { arg: u32, mask: u32, values: &'static [u32] },
}

/// The calls for which programs expect another result than `EPERM`.
fn first_rules() -> Vec<Rule> {
    let rule = |call, tests, result| Rule { call, tests, result };
    let equal = |arg, value| Test::Masked { arg, mask: u32::MAX, value };
    let core = libc::RLIMIT_CORE;
    let only_setting = vec![equal(1, core), Test::NotNull { arg: 2 }, Test::Null { arg: 3 }];
    let (keep, punch) = (libc::FALLOC_FL_KEEP_SIZE as u32, libc::FALLOC_FL_PUNCH_HOLE as u32);
    let beyond_the_end = Test::Masked { arg: 1, mask: keep | punch, value: keep };
    let insert = libc::FALLOC_FL_INSERT_RANGE as u32;
    let inserted = Test::Masked { arg: 1, mask: insert, value: insert };
    let mut rules = vec![
        // A filter cannot see its flags. C libraries fall back to `clone`.
        rule(libc::SYS_clone3, vec![], libc::ENOSYS),
        // The machine has one number of events for all users. As on a kernel without it, databases use threads.
        rule(libc::SYS_io_setup, vec![], libc::ENOSYS),
        // Space beyond the end of a file, to which no limit on its size applies. As on a file system without it.
        rule(libc::SYS_fallocate, vec![beyond_the_end], libc::EOPNOTSUPP),
        // A range inserted into a file, for which its new size is not limited either.
        rule(libc::SYS_fallocate, vec![inserted], libc::EOPNOTSUPP),
        // Where the machine passes core dumps to a program, only a limit of 1 keeps that from being started. Programs that
        // hold secrets set 0 and end if they may not; they have what they want.
        rule(libc::SYS_setrlimit, vec![equal(0, core)], 0),
        rule(libc::SYS_prlimit64, only_setting, 0),
        // Memory that no program can look into. While there is any, the machine cannot hibernate.
        rule(libc::SYS_memfd_secret, vec![], libc::ENOSYS),
        // Threads that leave the other half of their core idle. As on a processor without such halves.
        rule(libc::SYS_prctl, vec![equal(0, PR_SCHED_CORE)], libc::EINVAL),
        // It would write the files of the whole machine to its disks. Files of sandboxes are never written for safety.
        rule(libc::SYS_sync, vec![], 0),
        // All flow labels of IPv6 that the machine has. As on one without any left.
        rule(
            libc::SYS_setsockopt,
            vec![equal(1, IPV6), equal(2, IPV6_FLOWLABEL_MGR)],
            libc::ENOBUFS,
        ),
    ];
    rules.extend(packet_filters());
    rules.extend(huge_pages());
    rules.extend(socket_protocols());
    // Processors and priority of another thread or process, by its number; see `priorities` for the reason. Without effect
    // rather than an error: a filter cannot tell a program's own number, by which C libraries name its threads and programs
    // themselves, and a thread without the priority it asked for runs all the same.
    for call in [
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
    ] {
        rules.push(rule(call, vec![Test::NotZero { arg: 0 }], 0));
    }
    let by_number =
        [(libc::SYS_setpriority, PRIO_PROCESS), (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS)];
    for (call, process) in by_number {
        rules.push(rule(call, vec![equal(0, process), Test::NotZero { arg: 1 }], 0));
    }
    for request in RESERVING {
        rules.push(rule(libc::SYS_ioctl, vec![equal(1, request)], libc::EOPNOTSUPP));
    }
    for request in LOADING {
        rules.push(rule(libc::SYS_ioctl, vec![equal(1, request)], libc::ENOPKG));
    }
    // Signatures of segments, for which the kernel loads the module of a hash function. As on a kernel without them.
    for option in [TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY] {
        let tests = vec![equal(1, TCP), equal(2, option)];
        rules.push(rule(libc::SYS_setsockopt, tests, libc::ENOPROTOOPT));
    }
    rules
}

const TCP_MD5SIG: u32 = 14;
const TCP_MD5SIG_EXT: u32 = 32;
const TCP_AO_ADD_KEY: u32 = 38;

/// C libraries disagree on its type, or lack it.
const PR_SCHED_CORE: u32 = 62;

const IPV6: u32 = libc::IPPROTO_IPV6 as u32;
const IPV6_FLOWLABEL_MGR: u32 = 32;
/// The operation of `seccomp` that installs a filter, and that of `prctl` which does so, too.
const SET_MODE_FILTER: u32 = 1;
const PR_SET_SECCOMP: u32 = libc::PR_SET_SECCOMP as u32;

/// Filter programs of sockets and of system calls. The kernel compiles each, in memory that no group is charged for and of
/// which the machine has some hundred megabytes for all users: without any left no ordinary user can install a filter. As on
/// a kernel without them.
fn packet_filters() -> Vec<Rule> {
    let equal = |arg, value| Test::Masked { arg, mask: u32::MAX, value };
    let socket = libc::SOL_SOCKET as u32;
    let attaching = [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF];
    let mut rules = Vec::from(attaching.map(|option| Rule {
        call: libc::SYS_setsockopt,
        tests: vec![equal(1, socket), equal(2, option as u32)],
        result: libc::ENOPROTOOPT,
    }));
    for (call, operation) in
        [(libc::SYS_seccomp, SET_MODE_FILTER), (libc::SYS_prctl, PR_SET_SECCOMP)]
    {
        rules.push(Rule { call, tests: vec![equal(0, operation)], result: libc::EINVAL });
    }
    rules
}

/// Huge pages that the machine has reserved, for a database or a virtual machine: no limit on memory holds for them. As on
/// a machine without any left; programs then use ordinary pages.
fn huge_pages() -> impl Iterator<Item = Rule> {
    let flags = [
        (libc::SYS_mmap, 3, libc::MAP_HUGETLB as u32),
        (libc::SYS_memfd_create, 1, libc::MFD_HUGETLB),
        (libc::SYS_shmget, 2, libc::SHM_HUGETLB as u32),
    ];
    flags.into_iter().map(|(call, arg, flag)| Rule {
        call,
        tests: vec![Test::Masked { arg, mask: flag, value: flag }],
        result: libc::ENOMEM,
    })
}

/// The bits of a socket's type that are not flags.
const SOCKET_TYPE: u32 = 0xf;
const STREAM: u32 = libc::SOCK_STREAM as u32;
const DATAGRAM: u32 = libc::SOCK_DGRAM as u32;
const RAW: u32 = libc::SOCK_RAW as u32;
const TCP: u32 = libc::IPPROTO_TCP as u32;
const UDP: u32 = libc::IPPROTO_UDP as u32;

/// Sockets of protocols that the kernel may have as modules: for each such call it starts the machine's `modprobe`, as root
/// and outside of every limit, and then offers the sandbox what was loaded. As on a kernel without them. Of the protocols
/// of netlink those stay that list network interfaces and report devices: others load modules when asked for a name.
fn socket_protocols() -> Vec<Rule> {
    let family =
        |family: libc::c_int| Test::Masked { arg: 0, mask: u32::MAX, value: family as u32 };
    let other_type =
        || Test::NoneOf { arg: 1, mask: SOCKET_TYPE, values: &[STREAM, DATAGRAM, RAW] };
    let is_type = |value| Test::Masked { arg: 1, mask: SOCKET_TYPE, value };
    let other_protocol = |values| Test::NoneOf { arg: 2, mask: u32::MAX, values };
    let rule = |tests, result| Rule { call: libc::SYS_socket, tests, result };
    let datagrams: [(libc::c_int, &'static [u32]); 2] = [
        (libc::AF_INET, &[0, UDP, libc::IPPROTO_ICMP as u32]),
        (libc::AF_INET6, &[0, UDP, libc::IPPROTO_ICMPV6 as u32]),
    ];
    let unsupported = libc::EPROTONOSUPPORT;
    let mut rules = Vec::new();
    for (inet, protocols) in datagrams {
        rules.push(rule(vec![family(inet), other_type()], libc::ESOCKTNOSUPPORT));
        let streams = vec![family(inet), is_type(STREAM), other_protocol(&[0, TCP])];
        rules.push(rule(streams, unsupported));
        let datagrams = vec![family(inet), is_type(DATAGRAM), other_protocol(protocols)];
        rules.push(rule(datagrams, unsupported));
    }
    const NETLINK: &[u32] = &[libc::NETLINK_ROUTE as u32, libc::NETLINK_KOBJECT_UEVENT as u32];
    rules.push(rule(vec![family(libc::AF_NETLINK), other_protocol(NETLINK)], unsupported));
    rules
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const MASK: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Where the number of the call is in the data that a filter sees.
const NUMBER: u32 = 0;

/// Where the halves of an argument are: the lower one, then the upper one.
fn halves(arg: u32) -> [u32; 2] {
    let first = 16 + 8 * arg;
    if cfg!(target_endian = "little") { [first, first + 4] } else { [first + 4, first] }
}

fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// One instruction of a rule, before the distance to its end is known.
enum Draft {
    Plain(libc::sock_filter),
    /// Leaves the rule unless the loaded value equals this.
    Require(u32),
    /// Leaves the rule if the loaded value equals this.
    Exclude(u32),
    /// Skips as many instructions unless the loaded value equals this.
    SkipUnless(u32, u8),
}

impl Rule {
    fn compile(&self) -> Vec<libc::sock_filter> {
        let load = |at| Draft::Plain(step(LOAD, 0, 0, at));
        let mut drafts = vec![load(NUMBER), Draft::Require(self.call as u32)];
        for test in &self.tests {
            match *test {
                Test::Masked { arg, mask, value } => drafts.extend([
                    load(halves(arg)[0]),
                    Draft::Plain(step(MASK, 0, 0, mask)),
                    Draft::Require(value),
                ]),
                Test::NoneOf { arg, mask, values } => {
                    drafts.extend([load(halves(arg)[0]), Draft::Plain(step(MASK, 0, 0, mask))]);
                    drafts.extend(values.iter().map(|value| Draft::Exclude(*value)));
                }
                Test::NotZero { arg } => {
                    drafts.extend([load(halves(arg)[0]), Draft::Exclude(0)]);
                }
                Test::Null { arg } => {
                    for half in halves(arg) {
                        drafts.extend([load(half), Draft::Require(0)]);
                    }
                }
                Test::NotNull { arg } => {
                    let [low, high] = halves(arg);
                    drafts.extend([load(low), Draft::SkipUnless(0, 2)]);
                    drafts.extend([load(high), Draft::Exclude(0)]);
                }
            }
        }
        let result = libc::SECCOMP_RET_ERRNO | self.result as u32;
        drafts.push(Draft::Plain(step(RETURN, 0, 0, result)));
        let length = drafts.len();
        let lines = drafts.into_iter().enumerate().map(|(at, draft)| {
            // Rules are far shorter than the longest jump.
            let leave = (length - 1 - at) as u8;
            match draft {
                Draft::Plain(line) => line,
                Draft::Require(value) => step(IF_EQUAL, 0, leave, value),
                Draft::Exclude(value) => step(IF_EQUAL, leave, 0, value),
                Draft::SkipUnless(value, skipped) => step(IF_EQUAL, 0, skipped, value),
            }
        });
        lines.collect()
    }
}

/// Returns `ENOSYS` for numbers beyond the known ones, including the x32 table.
fn unknown_calls() -> [libc::sock_filter; 3] {
    [
        step(LOAD, 0, 0, NUMBER),
        step(IF_GREATER, 0, 1, NEWEST_KNOWN),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]
}
