//! The file systems of a sandbox, mounted by its PID 1, and the parts that all sandboxes share, prepared by the spawner.
//!
//! No path is resolved through an image's own links while the host's tree can still be reached: what is mounted below
//! the new root is created as a detached mount first, and attached after `pivot_root`.

use std::{
    collections::HashMap,
    fmt, fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{MetadataExt, symlink},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, makedev, mknodat},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
        UnmountFlags, fsconfig_create, fsmount, fsopen, mount, mount_bind, mount_remount,
        move_mount, open_tree, unmount,
    },
};

use crate::{
    host_image::{self, KeptTree},
    plan::{Lower, Overlay},
    sys,
};

/// A failed step of the set-up.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What was being done.
    pub(crate) what: String,
    /// The system's error.
    pub(crate) error: io::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

/// Adds context to an error: `.step("mounting /proc")`.
pub(crate) trait Step<T> {
    /// Adds what was being done.
    fn step(self, what: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure { what: what.into(), error: error.into() })
    }
}

/// The directory in every sandbox with the pipes between PID 1 and the shell; read-only for commands.
pub(crate) const PRIVATE_DIR: &str = "/dev/.lis";

const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// Parts of `/proc` that describe, or act on, the whole machine.
const HIDDEN: [&str; 6] = [
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/kcore",
    "/proc/keys",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
];
const READ_ONLY: [&str; 5] = ["/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/pressure"];

/// How owners of files map to the users of a sandbox.
pub(crate) enum Owners<'a> {
    /// Layers are mounted with the id map of this user namespace.
    Shifted {
        /// The namespace.
        userns: BorrowedFd<'a>,
        /// The host's user id of root.
        root: u32,
    },
    /// Layers are used as they are.
    Same,
}

/// The mounts that all sandboxes of a spawner share.
pub(crate) struct Shared {
    /// Mounted layers by path, device and inode: the directory at a path may be replaced by another.
    layers: HashMap<(PathBuf, u64, u64), PathBuf>,
    skeleton: Option<PathBuf>,
    /// Where the tree of the built-in image is kept for other spawners; `None` where it cannot be.
    kept: Option<PathBuf>,
    /// The tree in use.
    tree: Option<KeptTree>,
    /// Whom the writable directories in the state directory have to be given to: it is mounted with its own owners.
    pub(crate) uppers_owner: Option<u32>,
}

impl Shared {
    /// Mounts the scratch directory and what does not depend on the image. The scratch directory becomes the working
    /// directory of the process. The tree of the built-in image is kept in the directory `kept`, if there is one.
    pub(crate) fn prepare(
        scratch: &Path,
        state: &Path,
        kept: Option<PathBuf>,
        owners: &Owners<'_>,
    ) -> Result<Self, Failure> {
        mount("tmpfs", scratch, "tmpfs", MountFlags::NOSUID, Some(c"mode=0755"))
            .step(format!("mounting a tmpfs on {}", scratch.display()))?;
        std::env::set_current_dir(scratch).step("entering the scratch directory")?;
        for dir in ["layers", "root", "dev", "state"] {
            fs::create_dir(dir).step("filling the scratch directory")?;
        }
        let at = Path::new("state");
        let (bound, uppers_owner) =
            match (bind_shifted(state, at, owners, &Access::Writable), owners) {
                // Before Linux 6.3 a tmpfs cannot be mounted with other owners.
                (Err(error), Owners::Shifted { root, .. })
                    if error.raw_os_error() == Some(libc::EINVAL) =>
                {
                    (bind_shifted(state, at, &Owners::Same, &Access::Writable), Some(*root))
                }
                (bound, _) => (bound, None),
            };
        bound.step("mounting the state directory")?;
        make_devices(owners)?;
        Ok(Self { layers: HashMap::new(), skeleton: None, kept, tree: None, uppers_owner })
    }

    /// Mounts a layer unless it is; returns its path relative to the scratch directory.
    fn layer(&mut self, lower: &Lower, owners: &Owners<'_>) -> Result<PathBuf, Failure> {
        match lower {
            Lower::Dir(dir) => self.directory(dir, owners),
            Lower::HostSkeleton => {
                if let Some(known) = &self.skeleton {
                    return Ok(known.clone());
                }
                let at = match self.kept_tree(owners) {
                    Some(at) => at,
                    None => new_tree(owners).step("creating the built-in image")?,
                };
                self.skeleton = Some(at.clone());
                Ok(at)
            }
        }
    }

    fn directory(&mut self, dir: &Path, owners: &Owners<'_>) -> Result<PathBuf, Failure> {
        let meta = fs::metadata(dir).step(format!("reading {}", dir.display()))?;
        let key = (dir.to_owned(), meta.dev(), meta.ino());
        if let Some(known) = self.layers.get(&key) {
            return Ok(known.clone());
        }
        let at = PathBuf::from(format!("layers/{}", self.layers.len()));
        if !at.exists() {
            fs::create_dir(&at).step("creating a mount point")?;
        }
        bind_shifted(dir, &at, owners, &Access::ReadOnly)
            .map_err(|error| Failure { what: cannot_mount(dir, owners, &error), error })?;
        self.layers.insert(key, at.clone());
        Ok(at)
    }

    /// Mounts the tree of the built-in image from the disk, where it can be kept there.
    fn kept_tree(&mut self, owners: &Owners<'_>) -> Option<PathBuf> {
        let tree = host_image::tree(self.kept.as_ref()?).ok()?;
        let at = self.directory(&tree.path, owners).ok()?;
        self.tree = Some(tree);
        Some(at)
    }

    /// Prepares the overlays of one sandbox for its PID 1 to mount. Their writable directories are in `dir`.
    pub(crate) fn overlays(
        &mut self,
        dir: &Path,
        overlays: &[Overlay],
        owners: &Owners<'_>,
    ) -> Result<Vec<OverlayMount>, Failure> {
        let mut ready = Vec::with_capacity(overlays.len());
        for (i, overlay) in overlays.iter().enumerate() {
            let target = Path::new("/").join(&overlay.target);
            let (upper, work) = (dir.join(format!("u{i}")), dir.join(format!("w{i}")));
            let lowers = overlay.lowers.iter().map(|lower| self.layer(lower, owners));
            let lowers = match lowers.collect::<Result<Vec<_>, _>>() {
                // Other mounts lie inside. An overlay would show what they cover, which an unprivileged user must not see. What
                // an image has above is empty, if it was made like this.
                Err(failure)
                    if i > 0
                        && failure.error.raw_os_error() == Some(libc::EINVAL)
                        && are_empty(&overlay.lowers) =>
                {
                    let at = target.clone();
                    ready.push(OverlayMount { at, target, options: None, upper, work });
                    continue;
                }
                lowers => lowers?,
            };
            let lowers: Vec<_> = lowers.iter().map(|at| at.display().to_string()).collect();
            let at = if i == 0 { PathBuf::from("root") } else { PathBuf::from(format!("over{i}")) };
            if !at.exists() {
                fs::create_dir(&at).step("creating a mount point")?;
            }
            let options = format!(
                "lowerdir={},upperdir={},workdir={},userxattr,volatile",
                lowers.join(":"),
                upper.display(),
                work.display()
            );
            ready.push(OverlayMount { at, target, options: Some(options), upper, work });
        }
        Ok(ready)
    }
}

/// Whether all layers above the lowest have no files.
fn are_empty(lowers: &[Lower]) -> bool {
    let (_, above) = lowers.split_last().unwrap_or((&Lower::HostSkeleton, &[]));
    above.iter().all(|lower| match lower {
        Lower::Dir(dir) => fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none()),
        Lower::HostSkeleton => false,
    })
}

/// What failed when a layer was mounted. For root, owners of files are shifted, which NFS and its like cannot do.
fn cannot_mount(dir: &Path, owners: &Owners<'_>, error: &io::Error) -> String {
    let hint = match owners {
        Owners::Shifted { .. } if error.raw_os_error() == Some(libc::EINVAL) => {
            " (its file system may not shift owners for root: copy it to a local disk, or run as an ordinary user)"
        }
        _ if error.raw_os_error() == Some(libc::EINVAL) => {
            " (other file systems are mounted inside it, and the image changes its files: use the image where none are)"
        }
        _ => "",
    };
    format!("mounting the layer {}{hint}", dir.display())
}

/// Makes the tree of the built-in image in the scratch directory; returns its path.
fn new_tree(owners: &Owners<'_>) -> io::Result<PathBuf> {
    let at = PathBuf::from("skeleton");
    fs::create_dir(&at)?;
    host_image::make_skeleton(&at)?;
    if let Owners::Shifted { root, .. } = owners {
        host_image::give_to(&at, *root)?;
    }
    Ok(at)
}

/// One overlay, ready to be mounted.
pub(crate) struct OverlayMount {
    at: PathBuf,
    target: PathBuf,
    /// `None` where the host's directory itself is used, read-only.
    options: Option<String>,
    /// Its writable directory, relative to the scratch directory.
    pub(crate) upper: PathBuf,
    /// The directory in which the kernel prepares what it then moves there: while it copies a file of the image, for example.
    pub(crate) work: PathBuf,
}

/// Opens a directory as a detached mount, which `..` cannot leave.
pub(crate) fn detached(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(open_tree(CWD, dir, flags)?)
}

/// Whether a mount can be written to.
#[derive(PartialEq, Eq)]
enum Access {
    ReadOnly,
    Writable,
}

fn bind_shifted(from: &Path, to: &Path, owners: &Owners<'_>, access: &Access) -> io::Result<()> {
    let tree = detached(from)?;
    if let Owners::Shifted { userns, .. } = owners {
        sys::idmap_mount(tree.as_fd(), *userns)?;
    }
    if *access == Access::ReadOnly {
        sys::make_read_only(tree.as_fd())?;
    }
    Ok(move_mount(tree, "", CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Creates the `/dev` that all sandboxes share, read-only: device nodes, and mount points for what is private.
fn make_devices(owners: &Owners<'_>) -> Result<(), Failure> {
    let what = "creating device nodes";
    mount("tmpfs", "dev", "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, Some(c"mode=0755"))
        .step(what)?;
    for (name, major, minor) in DEVICES {
        let at = Path::new("dev").join(name);
        let mode = Mode::from_raw_mode(0o666);
        match mknodat(CWD, &at, FileType::CharacterDevice, mode, makedev(major, minor)) {
            Ok(()) => {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(&at, fs::Permissions::from_mode(0o666)).step(what)?;
                if let Owners::Shifted { root, .. } = owners {
                    std::os::unix::fs::lchown(&at, Some(*root), Some(*root)).step(what)?;
                }
            }
            // Not permitted in a user namespace: bind the host's node instead.
            Err(_) => {
                fs::File::create(&at).step(what)?;
                mount_bind(Path::new("/dev").join(name), &at).step(what)?;
            }
        }
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, Path::new("dev").join(name)).step(what)?;
    }
    for dir in ["shm", "pts", ".lis"] {
        fs::create_dir(Path::new("dev").join(dir)).step(what)?;
    }
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC;
    mount_remount("dev", flags, "").step(what)
}

/// Mounts of PID 1 that are writable although commands see them read-only.
pub(crate) struct PrivateMounts {
    /// [`PRIVATE_DIR`].
    pub(crate) pipes: OwnedFd,
    /// `/proc`.
    pub(crate) proc: OwnedFd,
}

/// In the new namespaces: mounts everything and changes the root. The host's tree cannot be reached afterwards.
pub(crate) fn enter(
    overlays: &[OverlayMount],
    memory: Option<u64>,
) -> Result<PrivateMounts, Failure> {
    for overlay in overlays {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let Some(options) = &overlay.options else { continue };
        let options = std::ffi::CString::new(options.as_str());
        let options = options.map_err(io::Error::other).step("building mount options")?;
        mount("overlay", &overlay.at, "overlay", flags, Some(options.as_c_str()))
            .step(format!("mounting the overlay for {}", overlay.target.display()))?;
    }
    let recursive = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let detach = |at: &Path| open_tree(CWD, at, recursive);
    let mut attached: Vec<(PathBuf, OwnedFd)> = Vec::new();
    for overlay in &overlays[1..] {
        let mounted = detach(&overlay.at).step("detaching an overlay")?;
        if overlay.options.is_none() {
            sys::make_read_only(mounted.as_fd())
                .step("making a directory of the host read-only")?;
        }
        attached.push((overlay.target.clone(), mounted));
    }
    attached.push(("/proc".into(), new_proc().step("mounting /proc")?));
    attached.push(("/dev".into(), detach(Path::new("dev")).step("mounting /dev")?));

    std::env::set_current_dir("root").step("entering the new root")?;
    rustix::process::pivot_root(".", ".").step("changing the root")?;
    unmount(".", UnmountFlags::DETACH).step("leaving the host's file system")?;
    std::env::set_current_dir("/").step("entering the new root")?;

    for dir in ["/proc", "/dev", "/sys", "/tmp"] {
        if Path::new(dir).symlink_metadata().is_err() {
            fs::create_dir(dir).step(format!("creating {dir}"))?;
        }
    }
    for (target, mounted) in attached {
        move_mount(mounted, "", CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .step(format!("mounting {}", target.display()))?;
    }
    let pipes = own_devices(memory)?;
    let proc = detached(Path::new("/proc")).step("opening /proc")?;
    restrict_proc()?;
    Ok(PrivateMounts { pipes, proc })
}

/// Makes every mount of the sandbox read-only, in one step. Fails with `EBUSY`, having changed nothing, while a process
/// has a file open for writing.
pub(crate) fn freeze() -> io::Result<()> {
    let root = open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    sys::forbid_writing(root.as_fd())
}

fn new_proc() -> io::Result<OwnedFd> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Mounts the private parts of `/dev`: shared memory, terminals, and the pipes of PID 1, which are returned.
fn own_devices(memory: Option<u64>) -> Result<OwnedFd, Failure> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Files in memory count as memory but outlive their writers: they must not be able to take all of it.
    let tmpfs = |at: &str, mode: u32, size: u64| {
        let options = std::ffi::CString::new(format!("mode={mode:o},size={size},nr_inodes=65536"));
        let options = options.map_err(io::Error::other).step("building mount options")?;
        mount("tmpfs", at, "tmpfs", flags, Some(options.as_c_str())).step(format!("mounting {at}"))
    };
    let memory = memory.unwrap_or(2 << 30);
    tmpfs("/dev/shm", 0o1777, memory / 2)?;
    tmpfs(PRIVATE_DIR, 0o700, (memory / 4).min(64 << 20))?;
    let pipes = detached(Path::new(PRIVATE_DIR)).step("opening the private directory")?;
    mount_remount(PRIVATE_DIR, flags | MountFlags::BIND | MountFlags::RDONLY, "")
        .step("making the private directory read-only")?;
    let pts = MountFlags::NOSUID | MountFlags::NOEXEC;
    // Of the terminals that all users of the machine have together.
    let options = c"newinstance,ptmxmode=0666,mode=0620,max=64";
    mount("devpts", "/dev/pts", "devpts", pts, Some(options)).step("mounting /dev/pts")?;
    Ok(pipes)
}

/// Limits on resources that the kernel counts for the host's user who created the sandbox.
const COUNTED: [(&str, &str); 10] = [
    ("max_inotify_instances", "16"),
    ("max_inotify_watches", "16384"),
    ("max_user_namespaces", "0"),
    ("max_mnt_namespaces", "0"),
    ("max_pid_namespaces", "0"),
    ("max_net_namespaces", "0"),
    ("max_ipc_namespaces", "0"),
    // Every program gets one of each, see `init::processes` and `init::command`; commands cannot create any.
    ("max_uts_namespaces", "4096"),
    ("max_cgroup_namespaces", "4096"),
    ("max_time_namespaces", "0"),
];

fn restrict_proc() -> Result<(), Failure> {
    for (name, value) in COUNTED {
        // Not every kernel has every limit.
        let _ = fs::write(Path::new("/proc/sys/user").join(name), value);
    }
    for path in HIDDEN {
        if Path::new(path).exists() {
            mount_bind("/dev/null", path).step(format!("hiding {path}"))?;
        }
    }
    for path in READ_ONLY {
        if Path::new(path).exists() {
            let what = || format!("making {path} read-only");
            mount_bind(path, path).step(what())?;
            let flags = MountFlags::BIND
                | MountFlags::RDONLY
                | MountFlags::NOSUID
                | MountFlags::NODEV
                | MountFlags::NOEXEC;
            mount_remount(path, flags, "").step(what())?;
        }
    }
    Ok(())
}
