//! Whiteouts of overlayfs, in the form for the mount option `userxattr`.
//!
//! Other systems than Linux have no overlayfs; layers with whiteouts are refused there.

use std::{io, os::fd::BorrowedFd};

/// Marks `name` as removed, whatever lower layers contain there.
#[cfg(target_os = "linux")]
pub(crate) fn whiteout(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    use rustix::fs::{FileType, Mode, mknodat};
    // The character device 0/0 is a whiteout and needs no privileges.
    mknodat(parent, name, FileType::CharacterDevice, Mode::empty(), 0)?;
    Ok(())
}

/// Makes a directory hide its content in lower layers.
#[cfg(target_os = "linux")]
pub(crate) fn make_opaque(dir: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::fs::{XattrFlags, fsetxattr};
    fsetxattr(dir, c"user.overlay.opaque", b"y", XattrFlags::empty())?;
    Ok(())
}

/// Creates a named pipe.
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
        "whiteouts and named pipes can be unpacked on Linux only",
    ))
}
