//! How overlayfs marks what a layer takes away, in the form it reads with the mount option `userxattr`.
//!
//! Elsewhere than on Linux there is no overlayfs, and layers that take something away are refused.

use std::{io, os::fd::BorrowedFd};

/// Marks `name` as absent, whatever lower layers hold there.
#[cfg(target_os = "linux")]
pub(crate) fn whiteout(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    use rustix::fs::{FileType, Mode, mknodat};
    // A character device 0/0 needs no privilege: it is no device.
    mknodat(parent, name, FileType::CharacterDevice, Mode::empty(), 0)?;
    Ok(())
}

/// Marks a directory as hiding everything lower layers hold in it.
#[cfg(target_os = "linux")]
pub(crate) fn make_opaque(dir: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::fs::{XattrFlags, fsetxattr};
    fsetxattr(dir, c"user.overlay.opaque", b"y", XattrFlags::empty())?;
    Ok(())
}

/// Makes a named pipe.
#[cfg(target_os = "linux")]
pub(crate) fn make_fifo(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    use rustix::fs::{FileType, Mode, mknodat};
    mknodat(parent, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn whiteout(_: BorrowedFd<'_>, _: &[u8]) -> io::Result<()> {
    unsupported()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn make_opaque(_: BorrowedFd<'_>) -> io::Result<()> {
    unsupported()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn make_fifo(_: BorrowedFd<'_>, _: &[u8]) -> io::Result<()> {
    unsupported()
}

#[cfg(not(target_os = "linux"))]
fn unsupported() -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "layers like this one can be unpacked on Linux only",
    ))
}
