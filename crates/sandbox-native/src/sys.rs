//! System calls that have no safe wrapper elsewhere.
//!
//! A function here is safe where the kernel or its arguments rule out undefined behaviour. What copies or changes the
//! whole process needs a [`SingleThreaded`] token, and what closes descriptors of others is `unsafe`.

pub(crate) mod idle;
pub(crate) mod quota;

use std::{
    ffi::{CString, c_char},
    io,
    marker::PhantomData,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use crate::netlink::Family;

/// Which side of a fork this is.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old process, with the new one's number.
    Parent(i32),
}

/// Which side of [`clone3`] this is.
pub(crate) enum Cloned {
    /// The new process, in its new namespaces.
    Child,
    /// The old process.
    Parent {
        /// The new process's number.
        pid: i32,
        /// A stable handle for it.
        pidfd: OwnedFd,
    },
}

/// The C constant does not fit the type `libc` gives it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Proof that this process has one thread and never starts another.
///
/// A process copied by [`fork`] or [`clone3`] has its own copy of the token, which holds there as well: such a
/// process starts with one thread. Not `Send`, so it cannot be used to start one and go there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SingleThreaded(PhantomData<*const ()>);

impl SingleThreaded {
    /// Checks that there is one thread now.
    ///
    /// # Safety
    /// From here on nothing in this process, nor in its copies until they `exec`, may start a thread.
    pub(crate) unsafe fn assert() -> io::Result<Self> {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads == 1 {
            Ok(Self(PhantomData))
        } else {
            Err(io::Error::other(format!("the spawner has {threads} threads instead of one")))
        }
    }
}

/// Copies this process.
pub(crate) fn fork(_: SingleThreaded) -> io::Result<Fork> {
    // SAFETY: fork itself touches no memory of ours. Code in the child is limited to async-signal-safe functions only
    // where other threads could have held locks at the time of the copy; the token proves that there are none.
    match check(libc::c_long::from(unsafe { libc::fork() }))? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid as i32)),
    }
}

/// Flags that ask for new namespaces, and nothing else.
const NEW_NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Copies this process into new namespaces, optionally into a version 2 control group. Flags other than those of
/// namespaces are an error.
pub(crate) fn clone3(
    _: SingleThreaded,
    namespaces: libc::c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> io::Result<Cloned> {
    if namespaces & !NEW_NAMESPACES != 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut pidfd: RawFd = -1;
    // SAFETY: clone_args is a struct of integers, for which all zeroes is a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (namespaces | libc::CLONE_PIDFD) as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(fd) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = fd.as_raw_fd() as u64;
    }
    let pid = while_parent_is_busy(|| {
        // SAFETY: `args` and the `pidfd` it points to are valid and writable throughout the call. The flags contain no
        // CLONE_VM, CLONE_THREAD or CLONE_FILES (checked above) and no stack is set, so the child is a copy with memory and
        // descriptors of its own, as after fork; that it may run any code follows from the token, as there.
        check(unsafe {
            libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>())
        })
    })?;
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    // SAFETY: with CLONE_PIDFD a successful call has stored a new descriptor in `pidfd`, which nothing else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned::Parent { pid: pid as i32, pidfd })
}

/// Repeats an operation on control groups of version 2 for a while: the kernel refuses it as long as a process is in a group
/// above, such as one that a service has just started there and is about to move.
pub(crate) fn while_parent_is_busy<T>(
    mut operation: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    const TRIES: u32 = 200;
    for _ in 0..TRIES {
        match operation() {
            Err(error) if is_busy_parent(&error) => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            done => return done,
        }
    }
    operation()
}

/// Whether this error, or its first cause, is one by which the kernel refuses a group with processes above it.
fn is_busy_parent(error: &io::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|e| e.downcast_ref::<io::Error>());
    let number = error.raw_os_error().or(source.and_then(io::Error::raw_os_error));
    matches!(number, Some(libc::EOPNOTSUPP | libc::EBUSY))
}

/// The kernel's `struct sched_attr`, up to the fields that all versions have.
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for little time at once, and therefore soon, whenever this process wakes up; its children ask for the usual
/// amount. Kernels before 6.12 ignore it.
pub(crate) fn be_scheduled_promptly() {
    /// The shortest that can be requested, in nanoseconds.
    const SLICE: u64 = 100_000;
    let attributes = SchedulingAttributes {
        size: size_of::<SchedulingAttributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        nice: rustix::process::nice(0).unwrap_or(0),
        runtime: SLICE,
        ..SchedulingAttributes::default()
    };
    // SAFETY: `attributes` is a sched_attr of the size stored in it and outlives the call, which only reads it. 0 is this
    // process.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Has the allocator merge freed memory with its neighbours at once, not all of it later: a forked process would then write
/// to every page of the heap, and share none of them.
pub(crate) fn keep_heap_shareable() {
    // SAFETY: mallopt takes integers; this parameter may be set at any time.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MXFAST, 0)
    };
}

/// Lets the threads of this process share as many heaps as it has processors, for programs that run long. Else nearly every
/// thread gets one of its own, and each keeps the most that it ever held. To be called before threads start.
pub fn share_heaps() {
    let most = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).max(2);
    // SAFETY: mallopt takes integers; this parameter may be set at any time.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, most as libc::c_int)
    };
    #[cfg(not(target_env = "gnu"))]
    let _ = most;
}

/// In PID 1: stops every other process of the sandbox, in one step that no fork escapes. Does nothing elsewhere, where
/// it would stop the processes of the host.
pub(crate) fn stop_all() {
    if std::process::id() != 1 {
        return;
    }
    // SAFETY: kill takes integers and touches no memory of this process.
    unsafe { libc::kill(-1, libc::SIGSTOP) };
}

/// Ends this process at once, without running destructors of the parent's state.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit takes an integer, runs no code of this process and does not return.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor from this number on.
///
/// # Safety
/// No value that owns or borrows a descriptor of that range may be used or dropped afterwards. This holds in a forked
/// child that ends by [`execute`] or [`exit_now`] and touches none of its parent's values until then.
pub(crate) unsafe fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: close_range takes integers. That descriptors disappear under their owners is what the caller vouches for.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) })?;
    Ok(())
}

/// Marks every descriptor from this number on to be closed by `exec`. This process keeps them.
pub(crate) fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: close_range takes integers. With this flag it closes nothing: it sets a flag of each descriptor that its
    // owner does not depend on.
    check(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC as libc::c_uint,
        )
    })?;
    Ok(())
}

/// Places descriptors at exactly 3, 4, 5 ... and closes all others above 2.
///
/// # Safety
/// As for [`close_from`] with 3: besides the result, no value that owns or borrows a descriptor above 2 may be used or
/// dropped afterwards.
pub(crate) unsafe fn keep_only(fds: Vec<OwnedFd>) -> io::Result<Vec<OwnedFd>> {
    let first: RawFd = 3;
    let end = first + fds.len() as RawFd;
    // Out of the way first, so that no target number is still a source.
    let mut high = Vec::with_capacity(fds.len());
    for fd in fds {
        high.push(rustix::io::fcntl_dupfd_cloexec(&fd, end)?);
    }
    let mut kept = Vec::with_capacity(high.len());
    for (i, fd) in high.iter().enumerate() {
        let target = first + i as RawFd;
        // SAFETY: dup3 takes integers. It closes what was open at `target`, which lies above 2: the caller vouches that
        // its owner is never used again. `high` itself lies at `end` and above.
        check(libc::c_long::from(unsafe { libc::dup3(fd.as_raw_fd(), target, libc::O_CLOEXEC) }))?;
        // SAFETY: dup3 has just opened `target`, and its former owner is never used again, so this is its only owner.
        kept.push(unsafe { OwnedFd::from_raw_fd(target) });
    }
    // SAFETY: of this range, `high` is forgotten below without being used, and the caller vouches for the rest.
    unsafe { close_from(end) }?;
    high.into_iter().for_each(std::mem::forget);
    Ok(kept)
}

/// Makes `fd` this process's descriptor 0, 1 or 2, kept across `exec`. Any other number is an error.
pub(crate) fn become_stdio(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    if !(0..=2).contains(&number) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: dup2 takes integers. It closes a standard stream at most, and those are owned by no `OwnedFd` here: they
    // are reached through `std::io`, which allows for their being replaced.
    check(libc::c_long::from(unsafe { libc::dup2(fd.as_raw_fd(), number) }))?;
    Ok(())
}

/// Default action for every signal, none blocked: what a program expects at its start.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL is a valid action for every signal and names no handler that could run; for KILL, STOP and
        // the C library's own signals the call fails and changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: sigset_t is an array of integers, for which all zeroes is valid; `none` outlives both calls, and a null
    // pointer makes sigprocmask not store the old mask.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// The time that processors have worked for a process, all its threads included; `None` if there is no process of this number.
pub(crate) fn cpu_time_of(pid: i32) -> Option<std::time::Duration> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: timespec is a struct of integers, for which all zeroes is a valid value.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: `clock` and `time` outlive the calls, which store a number and a time in them.
    let read = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    read.then(|| std::time::Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// Lets a write past the largest file size fail instead of ending the process.
pub(crate) fn survive_file_size_limit() {
    // SAFETY: SIG_IGN is a valid action for SIGXFSZ and names no handler that could run.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// A descriptor that becomes readable when a child ends. Blocks the signal's normal delivery.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: sigset_t is an array of integers, for which all zeroes is valid, and `set` outlives the calls that fill and
    // read it. The result of signalfd is checked before it is owned: a new descriptor that nothing else owns.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check(libc::c_long::from(fd))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Whether two threads have the same descriptors; `false` where the kernel does not tell.
pub(crate) fn share_descriptors(one: i32, other: i32) -> bool {
    const KCMP_FILES: libc::c_int = 2;
    // SAFETY: kcmp takes integers and changes nothing.
    one == other || unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0, 0) } == 0
}

/// The number of a loop device that is not in use.
pub(crate) fn free_loop_device(control: BorrowedFd<'_>) -> io::Result<i32> {
    const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
    // SAFETY: LOOP_CTL_GET_FREE takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    check(libc::c_long::from(number)).map(|number| number as i32)
}

/// The kernel's `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    device: u64,
    inode: u64,
    real_device: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    names: [u8; 128],
    key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// Attaches a file to a loop device, which is freed when nothing uses it any more.
pub(crate) fn attach_loop_device(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<()> {
    const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
    const AUTOCLEAR: u32 = 4;
    const DIRECT_IO: u32 = 16;
    // SAFETY: LoopConfig is a struct of integers and arrays of them, for which all zeroes is a valid value.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = file.as_raw_fd() as u32;
    // The size of a block of the file system, without which direct I/O is not possible everywhere.
    config.block_size = 4096;
    config.flags = AUTOCLEAR | DIRECT_IO;
    // SAFETY: LOOP_CONFIGURE reads a loop_config, which `config` is, and it outlives the call.
    check(libc::c_long::from(unsafe {
        libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config)
    }))?;
    Ok(())
}

/// A kind of System V object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IpcKind {
    SharedMemory,
    Queue,
}

/// Removes a System V object of this ipc namespace, if it exists and this process may.
pub(crate) fn remove_ipc(kind: IpcKind, id: i32) {
    // SAFETY: IPC_RMID takes integers and ignores the pointer. Memory that a process is attached to stays until it detaches.
    unsafe {
        match kind {
            IpcKind::SharedMemory => libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()),
            IpcKind::Queue => libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()),
        }
    };
}

/// Replaces this process by a program found in the environment's `PATH`. Returns only on failure.
pub(crate) fn execute(argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let Some(program) = argv.first() else { return io::ErrorKind::InvalidInput.into() };
    let (argv, envp) = (pointers(argv), pointers(env));
    // SAFETY: `argv` and `envp` are arrays of pointers to NUL-terminated strings, ended by a null pointer, and they and
    // the strings outlive the call. execvpe looks PATH up in this process's own environment; see `set_path`.
    unsafe { libc::execvpe(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Makes this process's own `PATH` the one programs are looked up in.
pub(crate) fn set_path(_: SingleThreaded, path: &str) {
    // SAFETY: set_var is unsound while another thread may read the environment; the token proves that there is none.
    unsafe { std::env::set_var("PATH", path) };
}

/// Turns a detached mount into one whose file owners are shifted as `userns` maps them.
pub(crate) fn idmap_mount(mount: BorrowedFd<'_>, userns: BorrowedFd<'_>) -> io::Result<()> {
    set_mount_attributes(mount, libc::MOUNT_ATTR_IDMAP, userns.as_raw_fd() as u64, 0)
}

/// Turns a detached mount into one through which nothing can be changed, and no rights gained.
pub(crate) fn make_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    set_mount_attributes(mount, attributes, 0, libc::AT_RECURSIVE)
}

/// Turns a mount and all below it read-only, or none of them.
pub(crate) fn forbid_writing(mount: BorrowedFd<'_>) -> io::Result<()> {
    set_mount_attributes(mount, libc::MOUNT_ATTR_RDONLY, 0, libc::AT_RECURSIVE)
}

fn set_mount_attributes(
    mount: BorrowedFd<'_>,
    attr_set: u64,
    userns_fd: u64,
    flags: libc::c_int,
) -> io::Result<()> {
    let attr = libc::mount_attr { attr_set, attr_clr: 0, propagation: 0, userns_fd };
    // SAFETY: the path is a NUL-terminated string (an empty one with AT_EMPTY_PATH names the descriptor), `attr` is a
    // mount_attr of the size passed with it, and both outlive the call, which only reads them.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: ifreq is a struct and union of integers and byte arrays, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as c_char;
    request.ifr_name[1] = b'o' as c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which `request` is, and it outlives the call.
    check(libc::c_long::from(unsafe {
        libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    }))?;
    Ok(())
}

/// Lets a listening socket accept connections to addresses that are not its own.
pub(crate) fn make_transparent(socket: BorrowedFd<'_>, family: Family) -> io::Result<()> {
    let (level, option) = match family {
        Family::V4 => (libc::SOL_IP, libc::IP_TRANSPARENT),
        Family::V6 => (libc::SOL_IPV6, libc::IPV6_TRANSPARENT),
    };
    let on: libc::c_int = 1;
    // SAFETY: both options take an integer, which `on` is, of the size passed with it; it outlives the call, which only
    // reads it.
    check(libc::c_long::from(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    }))?;
    Ok(())
}

/// The addresses of a name, by the system's resolver. Blocks. A name without addresses is an error of the kind `NotFound`.
pub(crate) fn resolve(name: &str) -> io::Result<Vec<IpAddr>> {
    let name = CString::new(name).map_err(|_| io::ErrorKind::NotFound)?;
    // SAFETY: addrinfo is a struct of integers and pointers, for which all zeroes is a valid value.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list: *mut libc::addrinfo = std::ptr::null_mut();
    // SAFETY: `name` is a NUL-terminated string, a null service is permitted with a name, and `hints` and `list` outlive
    // the call, which reads the first and stores a pointer in the second.
    let code = unsafe {
        libc::getaddrinfo(name.as_ptr(), std::ptr::null(), &raw const hints, &raw mut list)
    };
    match code {
        0 => {}
        libc::EAI_NONAME | libc::EAI_NODATA => return Err(io::ErrorKind::NotFound.into()),
        _ => return Err(io::Error::other("the system's resolver failed")),
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: after success `list` is a list of addrinfo that ends with a null pointer and stays until it is freed below.
    // `ai_addr` points to an address of its family; nothing refers to them afterwards.
    unsafe {
        while let Some(entry) = next.as_ref() {
            found.extend(ip_of(entry.ai_addr));
            next = entry.ai_next;
        }
        libc::freeaddrinfo(list);
    }
    found.dedup();
    Ok(found)
}

/// The IP address that this points to; `None` for null and other families.
///
/// # Safety
///
/// The pointer is null, or points to a socket address that is as long as its family's are.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so by the contract there is an address; of the family's type, which is looked at first.
    unsafe {
        match i32::from((&raw const (*address).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(address.sin_addr.s_addr.to_ne_bytes().into())
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(address.sin6_addr.s6_addr.into())
            }
            _ => None,
        }
    }
}

/// The IP addresses of this machine's interfaces, each with the mask of its network.
pub(crate) fn interface_addresses() -> io::Result<Vec<(IpAddr, IpAddr)>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` outlives the call, which stores a pointer in it.
    check(libc::c_long::from(unsafe { libc::getifaddrs(&raw mut list) }))?;
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: after success `list` is a list of ifaddrs that ends with a null pointer and stays until it is freed below.
    // Its addresses are null or of their family's type; nothing refers to them afterwards.
    unsafe {
        while let Some(entry) = next.as_ref() {
            found.extend(ip_of(entry.ifa_addr).zip(ip_of(entry.ifa_netmask)));
            next = entry.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    Ok(found)
}

/// Makes a terminal this session's controlling one.
pub(crate) fn take_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes an integer and no pointer.
    check(libc::c_long::from(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) }))?;
    Ok(())
}

/// Keeps processes confined by it from reaching abstract unix sockets made outside.
///
/// Returns whether this kernel can do that (Landlock ABI 6, Linux 6.12).
pub(crate) fn scope_abstract_sockets() -> io::Result<bool> {
    const CREATE_RULESET_VERSION: libc::c_uint = 1;
    const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
    #[repr(C)]
    struct RulesetAttr {
        handled_access_fs: u64,
        handled_access_net: u64,
        scoped: u64,
    }
    // SAFETY: with the version flag the kernel requires a null attribute of size 0 and only returns a number.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttr>(),
            0usize,
            CREATE_RULESET_VERSION,
        )
    };
    if abi < 6 {
        return Ok(false);
    }
    let attr = RulesetAttr {
        handled_access_fs: 0,
        handled_access_net: 0,
        scoped: SCOPE_ABSTRACT_UNIX_SOCKET,
    };
    // SAFETY: `attr` has the kernel's layout (`repr(C)`) and the size passed with it, and outlives the call. The result
    // is checked before it is owned: a new descriptor that nothing else owns.
    let ruleset = unsafe {
        let fd = check(libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attr,
            size_of::<RulesetAttr>(),
            0,
        ))?;
        OwnedFd::from_raw_fd(fd as RawFd)
    };
    // SAFETY: landlock_restrict_self takes integers; the descriptor is open. It restricts this thread for good, which
    // affects no memory.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })?;
    Ok(true)
}

/// Installs a seccomp program on this thread.
pub(crate) fn install_seccomp(program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: `filter` points to `len` instructions that outlive the call. The kernel copies and checks them and writes
    // nothing, so the cast from a shared reference is never used to write.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter)
    })?;
    Ok(())
}

/// Registers a descriptor with the asynchronous runtime.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<tokio::io::unix::AsyncFd<OwnedFd>> {
    // SAFETY: the registered descriptor must stay open and the same until it is deregistered. AsyncFd owns the OwnedFd
    // and deregisters it before it gives it up, and an OwnedFd keeps its descriptor for as long as it lives.
    Ok(unsafe { tokio::io::unix::AsyncFd::register(fd) }?)
}
