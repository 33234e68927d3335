//! Processes that run commands: apart from PID 1 and the file workers, in a control group with the sandbox's limits.

use std::io;

use rustix::{
    process::{Gid, Uid},
    thread::{UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use sandbox::Identity;

use super::Init;
use crate::{
    cgroup::Entrance,
    spawner::unshare,
    sys::{self, Cloned, Fork},
};

/// Forks. The child has to call [`enter`] first.
pub(crate) fn fork(init: &Init<'_>) -> io::Result<Fork> {
    match init.commands {
        Entrance::Files(_) => sys::fork(init.single),
        Entrance::Directory(group) => {
            match sys::clone3(init.single, 0, Some(std::os::fd::AsFd::as_fd(group)))? {
                Cloned::Child => Ok(Fork::Child),
                Cloned::Parent { pid, .. } => Ok(Fork::Parent(pid)),
            }
        }
    }
}

/// In the forked child: enters the group of commands, and hides all others. Where there are no groups, the command yields
/// to PID 1.
pub(crate) fn enter(init: &Init<'_>) -> io::Result<()> {
    if let Entrance::Files(files) = init.commands {
        for file in files {
            rustix::io::write(file, b"0")?;
        }
        if files.is_empty() {
            // PID 1 has to run when commands take all processors. A higher priority for it is not permitted.
            let _ = rustix::process::nice(NICENESS);
        }
    }
    // Here, because a namespace shows the group it was created in as the root.
    unshare(UnshareFlags::NEWCGROUP)
}

/// By how much commands yield to PID 1 where they are not in a group of their own.
const NICENESS: i32 = 5;

/// In a child with one thread: takes the rights of a user for good. The kernel takes all capabilities of root with it.
pub(crate) fn become_user(user: &Identity) -> io::Result<()> {
    if user.uid == 0 && user.gid == 0 {
        return Ok(());
    }
    let number = |number: u32| match number {
        u32::MAX => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        number => Ok(number),
    };
    let groups: io::Result<Vec<_>> =
        user.groups.iter().map(|group| number(*group).map(Gid::from_raw)).collect();
    let (uid, gid) = (Uid::from_raw(number(user.uid)?), Gid::from_raw(number(user.gid)?));
    set_thread_groups(&groups?)?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}
