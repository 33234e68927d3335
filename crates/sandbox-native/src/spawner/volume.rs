//! File systems of a fixed size, one for what one sandbox writes: a disk limit that the kernel enforces.
//!
//! On disk it is an ext4 in a sparse file. Its empty content is made once per size by `mkfs.ext4` and copied, which takes a
//! few milliseconds less for every other sandbox. The loop device detaches itself with the last mount, so nothing is left
//! when the sandbox ends, however it ends.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{FileExt, chown},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{
    fs::{Mode, OFlags, SeekFrom, seek},
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

use sandbox::DiskQuota;

use super::{Storage, project};
use crate::{
    mounts::{Failure, Step},
    plan::Plan,
    sys,
};

/// Where distributions install the program that makes a file system. The spawner's environment is empty.
const MAKERS: [&str; 2] = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
const LOOP_CONTROL: &str = "/dev/loop-control";
/// The directory of a sandbox that its file system is mounted on.
pub(crate) const MOUNT_POINT: &str = "m";
const IMAGE: &str = "disk.img";
/// An empty file that shows the space of the file system it is on: directories show that of their project.
const SPACE: &str = "space";
/// Bytes of the file system for each of its files.
const PER_FILE: u64 = 8192;
/// Tries to get a loop device that no other program takes meanwhile.
const TRIES: u32 = 64;

/// A file system of a fixed size.
#[derive(Clone, Copy)]
pub(crate) enum Volume {
    /// In a file.
    Image(u64),
    /// In memory.
    Memory(u64),
}

impl Volume {
    /// The volume of a sandbox; `None` where what it writes is measured.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let bytes = plan.limits.disk?.bytes();
        match plan.disk_quota {
            DiskQuota::Auto | DiskQuota::Measured | DiskQuota::Project => None,
            DiskQuota::Strict => Some(Self::Image(bytes)),
            DiskQuota::Memory => Some(Self::Memory(bytes)),
        }
    }
}

/// What this machine lacks for a volume in a file; `None` if it has everything.
pub(crate) fn missing(privileged: bool, storage: Storage) -> Option<String> {
    let text = if !privileged {
        "only root may mount a file system of its own; as an ordinary user take the quota `memory`"
    } else if storage == Storage::Memory {
        "the state directory's file system cannot hold the files of sandboxes"
    } else if !Path::new(LOOP_CONTROL).exists() {
        "there is no /dev/loop-control; load the kernel module with `modprobe loop`"
    } else if maker().is_none() {
        "there is no mkfs.ext4; install the package e2fsprogs"
    } else {
        return None;
    };
    Some(text.into())
}

fn maker() -> Option<&'static str> {
    MAKERS.into_iter().find(|program| Path::new(program).exists())
}

/// Creates the writable directories of a sandbox: in its directory, or on a volume that is mounted there.
///
/// `state` is the spawner's directory of sandboxes; the scratch directory shows it as `state`. `root` is the user of the
/// host that is root inside, `owner` the one to give directories to that are not on a volume.
pub(crate) fn make_uppers(
    state: &Path,
    plan: &Plan,
    root: Option<u32>,
    owner: Option<u32>,
) -> Result<(), Failure> {
    let what = "creating the sandbox's directory";
    let dir = state.join(&plan.id);
    fs::create_dir(&dir).step(what)?;
    if let (DiskQuota::Project, Some(limit)) = (plan.disk_quota, plan.limits.disk) {
        project::limit(&dir, limit.bytes()).step("setting a project quota")?;
        File::create_new(dir.join(SPACE)).step(what)?;
    }
    let volume = Volume::of(plan);
    if let Some(volume) = volume {
        mount_volume(volume, &dir, &plan.id)?;
    }
    // Through the mount where there is one. Otherwise not: owners would be shifted twice.
    let (above, owner) = match volume {
        Some(_) => (uppers(plan), root),
        None => (dir, owner),
    };
    for i in 0..plan.overlays.len() {
        for kind in ["u", "w"] {
            let upper = above.join(format!("{kind}{i}"));
            fs::create_dir(&upper).step(what)?;
            if let Some(root) = owner {
                chown(&upper, Some(root), Some(root)).step(what)?;
            }
        }
    }
    Ok(())
}

/// The directory with the writable directories of a sandbox, relative to the scratch directory.
pub(crate) fn uppers(plan: &Plan) -> PathBuf {
    let dir = Path::new("state").join(&plan.id);
    if Volume::of(plan).is_some() { dir.join(MOUNT_POINT) } else { dir }
}

fn mount_volume(volume: Volume, dir: &Path, id: &str) -> Result<(), Failure> {
    let what = "creating the sandbox's file system";
    fs::create_dir(dir.join(MOUNT_POINT)).step(what)?;
    let at = Path::new("state").join(id).join(MOUNT_POINT);
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    match volume {
        Volume::Memory(bytes) => {
            let files = (bytes / PER_FILE).max(4096);
            let options = format!("mode=0755,size={bytes},nr_inodes={files}");
            let options = std::ffi::CString::new(options).map_err(io::Error::other).step(what)?;
            mount("tmpfs", &at, "tmpfs", flags, Some(options.as_c_str())).step(what)
        }
        Volume::Image(bytes) => {
            let image = dir.join(IMAGE);
            let templates = dir.parent().and_then(Path::parent).unwrap_or(dir);
            copy_template(templates, bytes, &image).step(what)?;
            let (_device, name) = attach(&image).step("attaching a loop device")?;
            // Blocks of removed files become holes in the image.
            let mounted = mount(name.as_str(), &at, "ext4", flags, Some(c"discard"));
            mounted.step(format!("mounting {name}"))
        }
    }
}

/// Unmounts a volume here, if there is one. A sandbox that was started meanwhile has its own mount.
pub(crate) fn release(id: &str) {
    let at = Path::new("state").join(id).join(MOUNT_POINT);
    let _ = unmount(at, UnmountFlags::DETACH);
}

/// Opens a file that shows how much space the host's file system has left. Where there is none, the directories themselves
/// show it.
pub(crate) fn open_space(plan: &Plan) -> Option<OwnedFd> {
    let name = match plan.disk_quota {
        DiskQuota::Strict => IMAGE,
        DiskQuota::Project => SPACE,
        DiskQuota::Auto | DiskQuota::Measured | DiskQuota::Memory => return None,
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(Path::new("state").join(&plan.id).join(name), flags, Mode::empty()).ok()
}

/// Copies the empty file system of this size, made at the first use.
fn copy_template(templates: &Path, bytes: u64, image: &Path) -> io::Result<()> {
    // Directories of files take space as well, which must not be missing from the limit.
    let size = (bytes + bytes / 32 + (4 << 20)).next_multiple_of(4096);
    let template = templates.join(format!("empty-{size}.img"));
    if !template.exists() {
        make(&template, size).inspect_err(|_| drop(fs::remove_file(&template)))?;
    }
    let (from, to) = (File::open(template)?, File::create_new(image)?);
    to.set_len(size)?;
    copy_data(&from, &to)
}

/// Copies what is not a hole.
fn copy_data(from: &File, to: &File) -> io::Result<()> {
    let mut buffer = vec![0u8; 1 << 16];
    let mut at = 0;
    while let Ok(start) = seek(from, SeekFrom::Data(at)) {
        let end = seek(from, SeekFrom::Hole(start))?;
        at = start;
        while at < end {
            let most = buffer.len().min((end - at) as usize);
            let read = from.read_at(&mut buffer[..most], at)?;
            if read == 0 {
                return Ok(());
            }
            to.write_all_at(&buffer[..read], at)?;
            at += read as u64;
        }
    }
    Ok(())
}

fn make(template: &Path, size: u64) -> io::Result<()> {
    let maker = maker().ok_or_else(|| io::Error::other("there is no mkfs.ext4"))?;
    OpenOptions::new().write(true).create_new(true).open(template)?.set_len(size)?;
    // No journal: the file system does not outlive the sandbox. No space is kept for root.
    let options = ["-q", "-F", "-m", "0", "-b", "4096", "-I", "256"];
    let features = ["-O", "^has_journal,^resize_inode,^metadata_csum,sparse_super2"];
    let extended = ["-E", "lazy_itable_init=1,nodiscard,num_backup_sb=0"];
    #[expect(clippy::disallowed_methods, reason = "the kernel cannot make a file system")]
    let output = Command::new(maker)
        .args(options)
        .args(features)
        .args(extended)
        .args(["-i", &PER_FILE.to_string()])
        .arg(template)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("{maker} ({}): {}", output.status, said.trim())))
        }
    }
}

/// Attaches a file to a loop device that detaches itself once nothing uses it; returns it and its path.
fn attach(image: &Path) -> io::Result<(OwnedFd, String)> {
    let file = OpenOptions::new().read(true).write(true).open(image)?;
    let control = OpenOptions::new().read(true).write(true).open(LOOP_CONTROL)?;
    for _ in 0..TRIES {
        let name = format!("/dev/loop{}", sys::free_loop_device(control.as_fd())?);
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
        let device = OpenOptions::new().read(true).write(true).open(&name).map_err(named)?;
        match sys::attach_loop_device(device.as_fd(), file.as_fd()) {
            Ok(()) => return Ok((device.into(), name)),
            // Another program was faster.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(named(error)),
        }
    }
    Err(io::Error::other("no loop device is free"))
}
