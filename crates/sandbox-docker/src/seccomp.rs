//! The system call filter of containers, as a profile for the daemon.
//!
//! It makes the same decisions as the filter of the native runtime, for the same reasons; `docs/security.md` has them, and
//! a test of the architecture compares the lists. Docker's profile is replaced by it, so the calls that only Docker's
//! refuses (those for the memory policy of NUMA nodes) are refused here, too.
//!
//! The profile lists what is allowed. A list of refusals would have holes: a daemon ignores names that its library does
//! not know yet. Everything else fails with `EPERM`, and calls newer than the newest one listed with `ENOSYS`.
//!
//! A daemon takes several conditions on one argument for alternatives, and an unconditional rule overrides all others of
//! the same call. So rules are disjoint, and together they say for which arguments a call is allowed.

use serde_json::{Value, json};

/// Calls that are allowed whatever their arguments.
const ALLOWED: &str = "
accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown chroot clock_getres
clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create
epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group
faccessat faccessat2 fadvise64 fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync
fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue
futex_wait futex_waitv futex_wake futimesat get_robust_list getcpu getcwd getdents getdents64 getegid geteuid
getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid
getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat
inotify_add_watch inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_submit ioprio_get kill
landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen listmount
listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lsm_get_self_attr lsm_list_modules
lsm_set_self_attr lstat madvise map_shadow_stack membarrier mincore mkdir mkdirat mknod mknodat mlock mlock2
mlockall mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl
msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat open openat
openat2 pause personality pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free
pkey_mprotect poll ppoll pread64 preadv preadv2 process_mrelease process_vm_readv process_vm_writev pselect6
ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg
remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction
rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
sched_getscheduler sched_rr_get_interval sched_yield select semctl semget semop semtimedop sendfile
sendmmsg sendmsg sendto set_robust_list set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid
setregid setresgid setresuid setreuid setsid setuid setxattr setxattrat shmat shmctl shmdt shutdown
sigaltstack signalfd signalfd4 splice stat statfs statmount statx symlink symlinkat sync_file_range
syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime
timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat utime
utimensat utimes vfork wait4 waitid write writev
";

/// Error numbers, and 0 for a success without effect: the same on all architectures that Docker has.
const SUCCESS: u32 = 0;
const ENOSYS: u32 = 38;
const ENOMEM: u32 = 12;
const EINVAL: u32 = 22;
const EMFILE: u32 = 24;
const ENOPROTOOPT: u32 = 92;
const EPROTONOSUPPORT: u32 = 93;
const EOPNOTSUPP: u32 = 95;
const ENOBUFS: u32 = 105;

/// Flags of `clone` that create namespaces.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// Socket families.
const UNIX: u64 = 1;
const INET: u64 = 2;
const INET6: u64 = 10;
const NETLINK: u64 = 16;
/// Types of sockets, and the bits that are not flags.
const STREAM: u64 = 1;
const DATAGRAM: u64 = 2;
const SOCKET_TYPE: u64 = 0xf;
/// Protocols that programs try and do without: DCCP, SCTP, UDP-Lite, Multipath TCP.
const OPTIONAL_PROTOCOLS: [u64; 4] = [33, 132, 136, 262];
/// Protocols of netlink: that for network interfaces and that for devices, of all there are.
const NETLINK_PROTOCOLS: [u64; 2] = [0, 15];
const NETLINK_ALL: u64 = 32;
/// Flags for the machine's huge pages: of `mmap`, `memfd_create` and `shmget`, with the argument they are in.
const HUGE_PAGES: [(&str, u32, u64); 3] =
    [("mmap", 3, 0x4_0000), ("memfd_create", 1, 4), ("shmget", 2, 0o4000)];
const PR_SCHED_CORE: u32 = 62;
const PR_SET_SECCOMP: u32 = 22;
/// The operation of `seccomp` that installs a filter, and all there are.
const SET_MODE_FILTER: u64 = 1;
const SECCOMP_OPERATIONS: u64 = 4;
/// Options of sockets: `SO_ATTACH_FILTER` and `SO_ATTACH_REUSEPORT_CBPF`; `IPV6_FLOWLABEL_MGR`.
const SOL_SOCKET: u32 = 1;
const ATTACHING: [u32; 2] = [26, 51];
const IPV6: u32 = 41;
const FLOWLABEL_MGR: u32 = 32;
const RLIMIT_CORE: u64 = 4;
const RLIMITS: u64 = 16;
/// Modes of `fallocate`.
const KEEP_SIZE: u64 = 1;
const PUNCH_HOLE: u64 = 2;
const INSERT_RANGE: u64 = 0x20;
/// Input for another terminal, and line disciplines: `TIOCSTI`, `TIOCLINUX` and `TIOCSETD`.
const TERMINAL_INPUT: [u32; 3] = [0x5412, 0x541c, 0x5423];
/// Space beyond the end of a file: `FS_IOC_RESVSP`, `FS_IOC_RESVSP64` and `FS_IOC_ZERO_RANGE`.
const RESERVING: [u32; 3] = [0x4030_5828, 0x4030_582a, 0x4030_5839];

/// Whose counters the kernel uses for the users inside a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    /// Those of users that are nobody else on the machine.
    Mapped,
    /// Those of the machine's users with the same numbers.
    Shared,
}

/// The profile, for the daemon's option `seccomp`.
pub(crate) fn profile(users: Users) -> String {
    let allowed: Vec<&str> = ALLOWED.split_whitespace().collect();
    let mut rules = vec![json!({"names": allowed, "action": "SCMP_ACT_ALLOW"})];
    rules.push(returns(&["clone3", "io_setup", "memfd_secret"], ENOSYS, &[]));
    // It would write the files of the whole machine to its disks.
    rules.push(returns(&["sync"], SUCCESS, &[]));
    let inotify = ["inotify_init", "inotify_init1"];
    rules.push(match users {
        Users::Mapped => allow(&inotify, &[]),
        // The machine's root has a number of them for all its programs. `EMFILE` is what programs expect then.
        Users::Shared => returns(&inotify, EMFILE, &[]),
    });
    rules.push(allow(&["clone"], &[masked(0, NEW_NAMESPACES, 0)]));
    rules.push(allow(&["socketpair"], &[equal(0, UNIX)]));
    for (call, arg, flag) in HUGE_PAGES {
        rules.push(allow(&[call], &[masked(arg, flag, 0)]));
        rules.push(returns(&[call], ENOMEM, &[masked(arg, flag, flag)]));
    }
    sockets(&mut rules);
    limits(&mut rules);
    priorities(&mut rules);
    allocation(&mut rules);
    requests(&mut rules);
    options(&mut rules);
    // Programs for other architectures, such as 32-bit ones, are killed: their calls have other numbers. A daemon that does
    // not know the architecture ignores the newest calls, so it has to be named.
    let architectures = ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"]
        .map(|name| json!({"architecture": name, "subArchitectures": []}));
    json!({"defaultAction": "SCMP_ACT_ERRNO", "archMap": architectures, "syscalls": rules})
        .to_string()
}

/// Sockets of protocols that are always there: for others the machine may load modules.
fn sockets(rules: &mut Vec<Value>) {
    rules.push(allow(&["socket"], &[equal(0, UNIX)]));
    let inet = [(INET, STREAM, &[0, 6][..]), (INET, DATAGRAM, &[0, 17, 1])];
    let inet6 = [(INET6, STREAM, &[0, 6][..]), (INET6, DATAGRAM, &[0, 17, 58])];
    for (family, kind, protocols) in [inet, inet6].concat() {
        let with = |protocol| [equal(0, family), masked(1, SOCKET_TYPE, kind), equal(2, protocol)];
        rules.extend(protocols.iter().map(|protocol| allow(&["socket"], &with(*protocol))));
        rules.extend(OPTIONAL_PROTOCOLS.map(|p| returns(&["socket"], EPROTONOSUPPORT, &with(p))));
    }
    // Those who ask whether there is an audit log need an answer they understand.
    for protocol in 0..NETLINK_ALL {
        let condition = [equal(0, NETLINK), equal(2, protocol)];
        rules.push(match NETLINK_PROTOCOLS.contains(&protocol) {
            true => allow(&["socket"], &condition),
            false => returns(&["socket"], EPROTONOSUPPORT, &condition),
        });
    }
}

/// A process may set its own limits, but for the one on core dumps: that call has no effect.
fn limits(rules: &mut Vec<Value>) {
    for resource in (0..RLIMITS).filter(|resource| *resource != RLIMIT_CORE) {
        let own = [equal(0, 0), equal(1, resource), not_equal(2, 0)];
        rules.push(allow(&["prlimit64"], &own));
        rules.push(allow(&["setrlimit"], &[equal(0, resource)]));
    }
    // Only reading.
    rules.push(allow(&["prlimit64"], &[equal(2, 0)]));
    let only_setting = [equal(1, RLIMIT_CORE), not_equal(2, 0), equal(3, 0)];
    rules.push(returns(&["prlimit64"], SUCCESS, &only_setting));
    rules.push(returns(&["setrlimit"], SUCCESS, &[equal(0, RLIMIT_CORE)]));
}

/// A thread may change its own processors and priority, named by 0. For others the calls have no effect.
fn priorities(rules: &mut Vec<Value>) {
    let scheduling = ["sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"];
    rules.push(allow(&scheduling, &[equal(0, 0)]));
    rules.push(returns(&scheduling, SUCCESS, &[not_equal(0, 0)]));
    for (call, process, group) in [("setpriority", 0, 1), ("ioprio_set", 1, 2)] {
        for which in [process, group] {
            rules.push(allow(&[call], &[equal(0, which), equal(1, 0)]));
        }
        rules.push(returns(&[call], SUCCESS, &[equal(0, process), not_equal(1, 0)]));
    }
}

/// Space beyond the end of a file, and ranges inserted into one, escape the limit on the size of files.
fn allocation(rules: &mut Vec<Value>) {
    let bits = KEEP_SIZE | PUNCH_HOLE | INSERT_RANGE;
    for mode in (0..=bits).filter(|mode| mode & !bits == 0) {
        let condition = [masked(1, bits, mode)];
        let beyond = mode & (KEEP_SIZE | PUNCH_HOLE) == KEEP_SIZE;
        rules.push(match beyond || mode & INSERT_RANGE != 0 {
            true => returns(&["fallocate"], EOPNOTSUPP, &condition),
            false => allow(&["fallocate"], &condition),
        });
    }
}

/// All requests to devices but those listed. The kernel looks at the lower half of the argument only.
fn requests(rules: &mut Vec<Value>) {
    for request in RESERVING {
        let condition = [masked(1, u64::from(u32::MAX), u64::from(request))];
        rules.push(returns(&["ioctl"], EOPNOTSUPP, &condition));
    }
    let refused = [&TERMINAL_INPUT[..], &RESERVING[..]].concat();
    for (mask, value) in all_but(&refused) {
        rules.push(allow(&["ioctl"], &[masked(1, mask.into(), value.into())]));
    }
    // Threads that leave the other half of their core idle, and filters of system calls.
    let refused = [PR_SCHED_CORE, PR_SET_SECCOMP];
    for option in refused {
        rules.push(returns(&["prctl"], EINVAL, &[masked(0, u64::from(u32::MAX), option.into())]));
    }
    for operation in 0..SECCOMP_OPERATIONS {
        rules.push(match operation {
            SET_MODE_FILTER => returns(&["seccomp"], EINVAL, &[equal(0, operation)]),
            _ => allow(&["seccomp"], &[equal(0, operation)]),
        });
    }
    for (mask, value) in all_but(&refused) {
        rules.push(allow(&["prctl"], &[masked(0, mask.into(), value.into())]));
    }
}

/// All options of sockets but filter programs, which the kernel compiles in memory of the whole machine, and its flow labels.
fn options(rules: &mut Vec<Value>) {
    let is = |arg, value: u32| masked(arg, u32::MAX.into(), value.into());
    for option in ATTACHING {
        rules.push(returns(&["setsockopt"], ENOPROTOOPT, &[is(1, SOL_SOCKET), is(2, option)]));
    }
    rules.push(returns(&["setsockopt"], ENOBUFS, &[is(1, IPV6), is(2, FLOWLABEL_MGR)]));
    for (level, refused) in [(SOL_SOCKET, &ATTACHING[..]), (IPV6, &[FLOWLABEL_MGR])] {
        for (mask, value) in all_but(refused) {
            let other = masked(2, mask.into(), value.into());
            rules.push(allow(&["setsockopt"], &[is(1, level), other]));
        }
    }
    for (mask, value) in all_but(&[SOL_SOCKET, IPV6]) {
        rules.push(allow(&["setsockopt"], &[masked(1, mask.into(), value.into())]));
    }
}

/// All numbers but these, as disjoint pairs of a mask and a value: the numbers that share the first bits of a refused one
/// and differ in the next, unless another refused number does so, too.
fn all_but(refused: &[u32]) -> Vec<(u32, u32)> {
    let mut pairs = Vec::new();
    for bit in 0..u32::BITS {
        let mask = u32::MAX << bit;
        for number in refused {
            let value = (number ^ (1 << bit)) & mask;
            if refused.iter().all(|other| other & mask != value) && !pairs.contains(&(mask, value))
            {
                pairs.push((mask, value));
            }
        }
    }
    pairs
}

fn allow(names: &[&str], conditions: &[Value]) -> Value {
    json!({"names": names, "action": "SCMP_ACT_ALLOW", "args": conditions})
}

fn returns(names: &[&str], errno: u32, conditions: &[Value]) -> Value {
    json!({"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno, "args": conditions})
}

fn equal(arg: u32, value: u64) -> Value {
    json!({"index": arg, "op": "SCMP_CMP_EQ", "value": value})
}

fn not_equal(arg: u32, value: u64) -> Value {
    json!({"index": arg, "op": "SCMP_CMP_NE", "value": value})
}

/// The argument, masked, has this value.
fn masked(arg: u32, mask: u64, value: u64) -> Value {
    json!({"index": arg, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": value})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_but_some_are_covered_once() {
        let refused = [&TERMINAL_INPUT[..], &RESERVING[..]].concat();
        let pairs = all_but(&refused);
        let covered = |number: u32| pairs.iter().filter(|(m, v)| number & m == *v).count();
        for number in &refused {
            assert_eq!(covered(*number), 0, "{number:x}");
            for bit in 0..u32::BITS {
                let other = number ^ (1 << bit);
                let expected = usize::from(!refused.contains(&other));
                assert_eq!(covered(other), expected, "{other:x}");
            }
        }
        for number in [0, 1, 0x5401, 0x5413, 0x8004_5430, u32::MAX] {
            assert_eq!(covered(number), 1, "{number:x}");
        }
    }

    #[test]
    fn a_call_is_either_allowed_or_conditional() {
        let profile: Value = serde_json::from_str(&profile(Users::Shared)).unwrap();
        let rules = profile["syscalls"].as_array().unwrap();
        let allowed = rules[0]["names"].as_array().unwrap();
        for rule in &rules[1..] {
            for name in rule["names"].as_array().unwrap() {
                assert!(!allowed.contains(name), "{name}");
            }
            let args = rule["args"].as_array().unwrap();
            let mut indices: Vec<_> = args.iter().map(|arg| arg["index"].as_u64()).collect();
            indices.dedup();
            assert_eq!(indices.len(), args.len(), "alternatives: {rule}");
        }
        assert!(allowed.iter().all(|name| name != "mount" && name != "unshare"));
    }
}
