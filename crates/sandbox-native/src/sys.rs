//! System calls that have no safe wrapper elsewhere, each behind a function that is safe to call.
//!
//! `fork` and `clone3` are sound here because the spawner and PID 1 never have a second thread:
//! [`assert_single_threaded`] is checked before the first use.

use std::{
    ffi::{CString, c_char},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

/// Which side of a fork this is.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old process, told the new one's number.
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

/// Refuses to go on where another thread exists: a forked child would inherit its locks.
pub(crate) fn assert_single_threaded() -> io::Result<()> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads == 1 {
        Ok(())
    } else {
        Err(io::Error::other(format!("the spawner has {threads} threads instead of one")))
    }
}

/// A copy of this process.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: this process has one thread (see the module's head), so the child may run any code.
    match check(libc::c_long::from(unsafe { libc::fork() }))? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid as i32)),
    }
}

/// A copy of this process in new namespaces, optionally born in a version 2 control group.
pub(crate) fn clone3(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    let mut pidfd: RawFd = -1;
    // SAFETY: clone_args is plain data for which all zeroes is valid.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(fd) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = fd.as_raw_fd() as u64;
    }
    // SAFETY: the arguments live across the call, no stack is passed and no CLONE_VM is set, so the child
    // is a plain copy; this process has one thread.
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>())
    })?;
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    // SAFETY: the kernel stored a new descriptor there, owned by nobody else.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned::Parent { pid: pid as i32, pidfd })
}

/// Stops every process this one may signal but itself: from PID 1, all of its sandbox, in one step that no
/// fork escapes.
pub(crate) fn stop_all() {
    // SAFETY: kill has no preconditions on memory.
    unsafe { libc::kill(-1, libc::SIGSTOP) };
}

/// Ends this process at once, without running destructors of the parent's state.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor from this number on.
pub(crate) fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: callers give up every owned descriptor in that range; none is used afterwards.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) })?;
    Ok(())
}

/// Places descriptors at exactly 3, 4, 5 ... and closes all others above 2.
///
/// The caller's own `OwnedFd`s are consumed, so none refers to a closed number.
pub(crate) fn keep_only(fds: Vec<OwnedFd>) -> io::Result<Vec<OwnedFd>> {
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
        // SAFETY: both numbers are valid for dup3; whatever was open at `target` belongs to the parent's
        // copied state, which this process never uses again.
        check(libc::c_long::from(unsafe { libc::dup3(fd.as_raw_fd(), target, libc::O_CLOEXEC) }))?;
        // SAFETY: `target` is open and owned by nobody else.
        kept.push(unsafe { OwnedFd::from_raw_fd(target) });
    }
    close_from(end)?;
    // Their numbers lie in the closed range.
    high.into_iter().for_each(std::mem::forget);
    Ok(kept)
}

/// Makes `fd` this process's descriptor 0, 1 or 2, kept across `exec`.
pub(crate) fn become_stdio(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: dup2 on valid numbers.
    check(libc::c_long::from(unsafe { libc::dup2(fd.as_raw_fd(), number) }))?;
    Ok(())
}

/// Default action for every signal, none blocked: what a program expects at its start.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL is valid for every signal; the calls fail harmlessly for KILL and STOP.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: an all-zero set is a valid place for sigemptyset to fill, and the set outlives the call.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Lets a write past the largest file size fail instead of ending the process.
pub(crate) fn survive_file_size_limit() {
    // SAFETY: SIG_IGN is valid for this signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// A descriptor that becomes readable when a child ends. Blocks the signal's normal delivery.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is filled before use and outlives the calls; signalfd returns a new descriptor.
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

/// Replaces this process by a program found in the environment's `PATH`. Returns only on failure.
pub(crate) fn execute(argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(argv), pointers(env));
    // SAFETY: both are null-terminated arrays of C strings that outlive the call. execvpe looks PATH up in
    // the calling process's environment, which `set_path` has made the sandbox's.
    unsafe { libc::execvpe(argv[0], argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Makes this process's own `PATH` the one programs are looked up in.
pub(crate) fn set_path(path: &str) {
    // SAFETY: this process has one thread.
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
    // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor; attr outlives the call.
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
    // SAFETY: ifreq is plain data for which all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as c_char;
    request.ifr_name[1] = b'o' as c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: the request is a valid ifreq that outlives the call.
    check(libc::c_long::from(unsafe {
        libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    }))?;
    Ok(())
}

/// Makes a terminal this session's controlling one.
pub(crate) fn take_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes an integer argument.
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
    // SAFETY: with a null attribute and the version flag the call only answers a number.
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
    // SAFETY: the attribute outlives the call; the result is a new descriptor.
    let ruleset = unsafe {
        let fd = check(libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attr,
            size_of::<RulesetAttr>(),
            0,
        ))?;
        OwnedFd::from_raw_fd(fd as RawFd)
    };
    // SAFETY: plain call on a valid descriptor.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })?;
    Ok(true)
}

/// Installs a seccomp program on this thread.
pub(crate) fn install_seccomp(program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which outlives the call and is never written to.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter)
    })?;
    Ok(())
}

/// Lets the asynchronous runtime tell when a descriptor is ready.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<tokio::io::unix::AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd stays the same open descriptor for as long as it lives, which is as long as the
    // registration does.
    Ok(unsafe { tokio::io::unix::AsyncFd::register(fd) }?)
}
