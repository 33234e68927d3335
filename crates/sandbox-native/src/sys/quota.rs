//! Project quotas: the kernel counts the blocks and files of every project on a file system, and refuses more than a limit.
//!
//! The same calls serve ext4 and XFS: the kernel translates between their interfaces.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use super::check;

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`.
const GET_ATTRIBUTES: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
const SET_ATTRIBUTES: libc::Ioctl = 0x401c_5820;
/// What is created in a directory with this flag belongs to its project.
const INHERITED: u32 = 0x200;

const PROJECTS: u32 = 2;
const GET_QUOTA: u32 = 0x80_0007;
const SET_QUOTA: u32 = 0x80_0008;
/// `Q_XGETQSTAT`.
const GET_STATE: u32 = 0x5805;
/// In the state: projects are counted, and limits on them enforced.
const ENFORCED: u16 = 0x30;
const BLOCK_LIMITS: u32 = 1;
const FILE_LIMITS: u32 = 4;

/// The kernel's `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// The kernel's `struct if_dqblk`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Quota {
    /// In KiB.
    hard_blocks: u64,
    soft_blocks: u64,
    /// In bytes.
    space: u64,
    hard_files: u64,
    soft_files: u64,
    files: u64,
    block_time: u64,
    file_time: u64,
    valid: u32,
}

/// What a project holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Bytes of its files.
    pub(crate) bytes: u64,
    /// Its files and directories.
    pub(crate) files: u64,
    /// The limit on bytes; 0 for none.
    pub(crate) limit: u64,
}

/// The limits of a project; 0 for none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProjectLimits {
    /// Bytes, rounded up to KiB.
    pub(crate) bytes: u64,
    /// Files and directories.
    pub(crate) files: u64,
}

/// Whether the file system of this file enforces limits on projects.
pub(crate) fn is_enforced(file: BorrowedFd<'_>) -> bool {
    // The kernel's `struct fs_quota_stat` has 80 bytes; its flags are the second 16 bits.
    let mut state = [0u16; 128];
    let got = control(file, GET_STATE, 0, state.as_mut_ptr().cast());
    got.is_ok() && state[1] & ENFORCED == ENFORCED
}

/// What a project holds on the file system of this file.
pub(crate) fn held(file: BorrowedFd<'_>, project: u32) -> io::Result<Held> {
    let mut quota = Quota::default();
    match control(file, GET_QUOTA, project, (&raw mut quota).cast()) {
        Ok(()) => {}
        // XFS knows nothing of a project without files and limits.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {}
        Err(error) => return Err(error),
    }
    Ok(Held { bytes: quota.space, files: quota.files, limit: quota.hard_blocks << 10 })
}

/// Limits a project.
pub(crate) fn limit(file: BorrowedFd<'_>, project: u32, limits: ProjectLimits) -> io::Result<()> {
    let mut quota = Quota {
        hard_blocks: limits.bytes.div_ceil(1024),
        hard_files: limits.files,
        valid: BLOCK_LIMITS | FILE_LIMITS,
        ..Quota::default()
    };
    control(file, SET_QUOTA, project, (&raw mut quota).cast())
}

/// The project that a directory passes on to what is created in it; `None` if it passes on none.
pub(crate) fn inherited_project(dir: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let attributes = attributes(dir)?;
    Ok((attributes.flags & INHERITED != 0).then_some(attributes.project))
}

/// Makes an empty directory belong to a project, with everything that will be created in it; `None`: to none.
pub(crate) fn set_project(dir: BorrowedFd<'_>, project: Option<u32>) -> io::Result<()> {
    let mut attributes = attributes(dir)?;
    attributes.project = project.unwrap_or(0);
    match project {
        Some(_) => attributes.flags |= INHERITED,
        None => attributes.flags &= !INHERITED,
    }
    // SAFETY: the request reads a `struct fsxattr`, which `Attributes` is, and it outlives the call.
    let set = unsafe {
        libc::ioctl(dir.as_raw_fd(), SET_ATTRIBUTES, (&raw const attributes).cast::<u8>())
    };
    check(libc::c_long::from(set)).map(drop)
}

fn attributes(file: BorrowedFd<'_>) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the request writes a `struct fsxattr`, which `Attributes` is, and it outlives the call.
    let got = unsafe {
        libc::ioctl(file.as_raw_fd(), GET_ATTRIBUTES, (&raw mut attributes).cast::<u8>())
    };
    check(libc::c_long::from(got)).map(|_| attributes)
}

/// `address` is of what the command reads or writes.
fn control(
    file: BorrowedFd<'_>,
    command: u32,
    project: u32,
    address: *mut libc::c_void,
) -> io::Result<()> {
    let command = (command << 8) | PROJECTS;
    // SAFETY: callers pass the address of a local variable of the type that the command uses, or a larger one.
    let done = unsafe {
        libc::syscall(libc::SYS_quotactl_fd, file.as_raw_fd(), command, project, address)
    };
    check(done).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_kernel() {
        assert_eq!((size_of::<Attributes>(), size_of::<Quota>()), (28, 72));
    }
}
