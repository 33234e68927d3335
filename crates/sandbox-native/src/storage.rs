//! Which file systems can hold the state of sandboxes: found out by what they are, and where that is unknown by trying.
//!
//! The homes of compute clusters are on NFS, Lustre and their like. These can hold no upper layer of an overlay, and often
//! no sockets, no named pipes and no extended attributes.

use std::{
    ffi::OsString,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::{fs::DirBuilderExt, net::UnixListener},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, XattrFlags, flock, fsetxattr, mkdirat,
    mknodat, open, statfs, unlinkat,
};

/// What a directory's file system can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suitability {
    /// Everything: sockets, locks and the files of sandboxes.
    Everything,
    /// Sockets and locks, but not the files of sandboxes, for the reason given. They are kept in memory.
    StateOnly(&'static str),
    /// Not even sockets and locks, for the reason given.
    Nothing(&'static str),
}

/// File systems that hold everything, whatever their options.
const GOOD: [i64; 3] = [
    0xef53,      // ext2, ext3, ext4
    0x9123_683e, // btrfs
    0x5846_5342, // XFS
];

/// File systems that overlayfs refuses as the upper layer, or that other machines use at the same time.
const UNSUITABLE: [(i64, &str); 11] = [
    (0x794c_7630, "it is on overlayfs, which cannot hold an overlay of its own"),
    (0x6969, "it is on NFS"),
    (0x0bd0_0bd0, "it is on Lustre"),
    (0x6573_5546, "it is on FUSE"),
    (0xff53_4d42, "it is on CIFS"),
    (0xfe53_4d42, "it is on SMB"),
    (0x4750_4653, "it is on GPFS"),
    (0x1983_0326, "it is on BeeGFS"),
    (0x00c3_6400, "it is on CephFS"),
    (0x0102_1997, "it is on 9p"),
    (0x5346_414f, "it is on AFS"),
];

/// Whether other machines may use this directory at the same time.
pub(crate) fn is_shared(dir: &Path) -> bool {
    const OVERLAYFS: i64 = 0x794c_7630;
    let found = statfs(dir).map_or(0, |found| found.f_type);
    found != OVERLAYFS && UNSUITABLE.iter().any(|(magic, _)| *magic == found)
}

/// Why a file system that is known cannot hold the files of sandboxes.
fn known(dir: &Path) -> io::Result<Option<Suitability>> {
    let found = statfs(dir)?.f_type;
    Ok(match UNSUITABLE.iter().find(|(magic, _)| *magic == found) {
        Some((_, reason)) => Some(Suitability::StateOnly(reason)),
        None => GOOD.contains(&found).then_some(Suitability::Everything),
    })
}

/// Examines the file system of a directory that exists. Where its kind alone does not tell, files are created in the
/// directory, and removed again.
///
/// # Errors
/// If the directory cannot be examined: it is missing, or not writable.
pub fn suitability(dir: &Path) -> io::Result<Suitability> {
    let known = known(dir)?;
    if known == Some(Suitability::Everything) {
        return Ok(Suitability::Everything);
    }
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let own = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!(".probe-{}-{own}", std::process::id());
    let _ = fs::remove_dir_all(dir.join(&name));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = open(dir, flags, Mode::empty())?;
    mkdirat(&above, name.as_str(), Mode::RWXU)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let tried = rustix::fs::openat(&above, name.as_str(), flags, Mode::empty()).map(|inside| {
        let found = try_out(&inside, known);
        for entry in ["socket", "pipe", "whiteout", "lock"] {
            let _ = unlinkat(&inside, entry, AtFlags::empty());
        }
        found
    });
    let _ = unlinkat(&above, name.as_str(), AtFlags::REMOVEDIR);
    Ok(tried?)
}

/// Creates in an empty directory what is needed.
fn try_out(dir: &impl AsFd, known: Option<Suitability>) -> Suitability {
    // A path through the descriptor is short enough for a socket.
    let below = |name: &str| format!("/proc/self/fd/{}/{name}", dir.as_fd().as_raw_fd());
    if UnixListener::bind(below("socket")).is_err() {
        return Suitability::Nothing("its file system cannot hold sockets");
    }
    let locked = fs::File::create(below("lock"))
        .and_then(|file| Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?));
    if locked.is_err() {
        return Suitability::Nothing("its file system has no file locks");
    }
    if let Some(known) = known {
        return known;
    }
    let mode = Mode::RUSR | Mode::WUSR;
    if mknodat(dir, "pipe", FileType::Fifo, mode, 0).is_err() {
        return Suitability::StateOnly("its file system cannot hold named pipes");
    }
    if mknodat(dir, "whiteout", FileType::CharacterDevice, Mode::empty(), 0).is_err() {
        return Suitability::StateOnly("its file system cannot hold the whiteouts of overlayfs");
    }
    if fsetxattr(dir, c"user.overlay.opaque", b"y", XattrFlags::empty()).is_err() {
        return Suitability::StateOnly("its file system has no extended attributes for users");
    }
    let typed = Dir::read_from(dir).is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| entry.file_type() != FileType::Unknown))
    });
    match typed {
        true => Suitability::Everything,
        false => {
            Suitability::StateOnly("its file system does not tell the types of files in lists")
        }
    }
}

/// Whether a directory can hold the files of sandboxes. One that cannot be examined is taken at its word.
pub(crate) fn holds_files(dir: &Path) -> bool {
    matches!(suitability(dir), Ok(Suitability::Everything) | Err(_))
}

/// Creates a directory that no other user can enter. One that exists must be such a directory already: its parent may be
/// writable for all users, such as `/tmp`, and another user may have been there first.
///
/// # Errors
/// If it cannot be created; or it exists and is a link, belongs to another user, or can be entered by others; or another
/// user could replace it.
pub fn private_directory(dir: &Path) -> io::Result<()> {
    let refuse = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let user = rustix::process::geteuid().as_raw();
    if let Some(parent) = dir.parent()
        && let Some((at, because)) = replaceable(&std::path::absolute(parent)?, user)?
    {
        let at = at.display();
        let because = match because {
            Replaceable::Theirs => format!("{at} is theirs"),
            Replaceable::Shared(mode) => {
                let mode = mode & 0o7777;
                format!(
                    "they may write to {at} (mode {mode:03o}); chmod go-w it or set its sticky bit"
                )
            }
        };
        return Err(refuse(format!("other users can replace it, because {because}")));
    }
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let about = rustix::fs::fstat(open(dir, flags, Mode::empty())?)?;
    let mode = about.st_mode & 0o777;
    match FileType::from_raw_mode(about.st_mode) {
        FileType::Directory => {}
        FileType::Symlink => return Err(refuse("it is a symbolic link".into())),
        _ => return Err(refuse("it is not a directory".into())),
    }
    if about.st_uid != user {
        return Err(refuse(format!("it belongs to the user {}, not to {user}", about.st_uid)));
    }
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(refuse(format!("other users may enter it (mode {mode:03o}); chmod 700 it"))),
    }
}

/// Links that are followed before a path is given up.
const MAX_LINKS: u32 = 40;

/// Why another user can replace what is in a directory, or where a link leads.
enum Replaceable {
    /// It is another user's.
    Theirs,
    /// Its group or everybody may write to it, with these permissions.
    Shared(u32),
}

/// The first directory or link on the way to an existing directory that another user can replace, or change what is in it.
fn replaceable(path: &Path, user: u32) -> io::Result<Option<(PathBuf, Replaceable)>> {
    use std::os::unix::fs::MetadataExt;
    // In the user namespace of a container, the machine's root has no user id of its own, and is shown as nobody.
    let root = fs::metadata("/proc").map_or(0, |about| about.uid());
    let is_foreign = |about: &fs::Metadata| ![0, root, user].contains(&about.uid());
    // Without the sticky bit, whoever may write to a directory can move away what is in it.
    let is_shared = |about: &fs::Metadata| about.mode() & 0o022 != 0 && about.mode() & 0o1000 == 0;
    let mut links = 0;
    let mut at = PathBuf::from("/");
    // The names to go, the next one last.
    let mut names = names_of(path);
    loop {
        let about = fs::symlink_metadata(&at)?;
        if about.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            let target = fs::read_link(&at)?;
            if is_foreign(&about) {
                return Ok(Some((at, Replaceable::Theirs)));
            }
            at.pop();
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            names.extend(names_of(&target));
        } else if is_foreign(&about) {
            return Ok(Some((at, Replaceable::Theirs)));
        } else if is_shared(&about) {
            return Ok(Some((at, Replaceable::Shared(about.mode()))));
        }
        match names.pop() {
            Some(name) if name == ".." => drop(at.pop()),
            Some(name) => at.push(name),
            None => return Ok(None),
        }
    }
}

/// The names in a path, the first one last.
fn names_of(path: &Path) -> Vec<OsString> {
    use std::path::Component::{Normal, ParentDir};
    let names = path.components().filter(|part| matches!(part, Normal(_) | ParentDir));
    names.rev().map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn trying_a_directory_out_leaves_nothing_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let fd = fs::File::open(dir.path()).unwrap();
        let tried = try_out(&fd, None);
        assert!(matches!(tried, Suitability::Everything | Suitability::StateOnly(_)), "{tried:?}");
        assert!(names(dir.path()) > 1, "nothing was tried");
        let other = tempfile::tempdir().unwrap();
        suitability(other.path()).unwrap();
        assert_eq!(names(other.path()), 0);
        // Neither sockets nor locks, but readable: as root too.
        let proc = suitability(Path::new("/proc/self"));
        assert!(!matches!(proc, Ok(Suitability::Everything)), "{proc:?}");
        assert!(suitability(&dir.path().join("missing")).is_err());
    }

    #[test]
    fn a_private_directory_is_refused_where_another_user_was_first() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("own");
        let change = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let refused = |dir: &Path| private_directory(dir).unwrap_err().to_string();
        private_directory(&dir).unwrap();
        private_directory(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        change(&dir, 0o750);
        assert!(refused(&dir).contains("mode 750"), "{}", refused(&dir));
        let link = tmp.path().join("link");
        symlink(tmp.path(), &link).unwrap();
        assert!(refused(&link).contains("symbolic link"));
        fs::write(tmp.path().join("file"), "").unwrap();
        assert!(refused(&tmp.path().join("file")).contains("not a directory"));
        // Without the sticky bit, anyone can move the directory away and put another in its place.
        change(tmp.path(), 0o777);
        for mode in [0o777, 0o775] {
            change(tmp.path(), mode);
            let why = refused(&tmp.path().join("new"));
            assert!(why.contains(&format!("mode {mode:o}")) && why.contains("chmod go-w"), "{why}");
        }
        assert!(!tmp.path().join("new").exists());
        change(tmp.path(), 0o1777);
        private_directory(&tmp.path().join("new")).unwrap();
        if rustix::process::geteuid().is_root() {
            let foreign = tmp.path().join("foreign");
            fs::create_dir(&foreign).unwrap();
            change(&foreign, 0o700);
            std::os::unix::fs::chown(&foreign, Some(12345), None).unwrap();
            assert!(refused(&foreign).contains("belongs to the user 12345"));
            // Whoever owns a directory further up, or a link on the way, decides what the path leads to.
            let (below, way) = (foreign.join("own/deep"), foreign.join("way"));
            fs::create_dir_all(&below).unwrap();
            assert!(refused(&below.join("new")).contains("foreign is theirs"));
            symlink(tmp.path(), &way).unwrap();
            symlink(&way, tmp.path().join("short")).unwrap();
            assert!(refused(&tmp.path().join("short/own2")).contains("foreign is theirs"));
            let theirs = tmp.path().join("theirs");
            symlink(tmp.path(), &theirs).unwrap();
            std::os::unix::fs::lchown(&theirs, Some(12345), None).unwrap();
            assert!(refused(&theirs.join("own2")).contains("theirs is theirs"));
            symlink(tmp.path(), tmp.path().join("ours")).unwrap();
            private_directory(&tmp.path().join("ours/own2")).unwrap();
        }
    }
}
