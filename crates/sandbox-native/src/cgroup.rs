//! Control groups of version 1, version 2 or none: what this machine offers to sandboxes. `groups` has those in use.

mod groups;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

pub(crate) use self::groups::{Counters, Entrance, Group, Groups, thaw};

/// Prefix of the name of every group.
pub(crate) const PREFIX: &str = "lis-";

/// The number of this process's pid namespace, at the end of the name of every group: the process id in the name means
/// nothing in another one. `None` where it cannot be told.
pub(crate) fn pid_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

/// Controllers that limit a sandbox.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// Version 1: the controller that stops all processes of a group in one step. Every group of version 2 can do that.
const FREEZER: &str = "freezer";

/// The hierarchies this process may create groups in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cgroups {
    /// The version 2 directory below which groups with limits can be created.
    v2: Option<PathBuf>,
    /// The controllers enabled for groups below it.
    enabled: BTreeSet<String>,
    /// Version 1: controller and directory.
    v1: Vec<(&'static str, PathBuf)>,
}

/// The version of control groups that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum CgroupVersion {
    /// The unified hierarchy.
    V2,
    /// Separate hierarchies.
    V1,
    /// This user may use none.
    None,
}

impl Cgroups {
    /// Finds the hierarchies that are mounted and writable.
    pub(crate) fn detect() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut found = Self::default();
        for line in mounts.lines() {
            let mut fields = line.split(' ').skip(1);
            let (Some(at), Some(kind), Some(options)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if kind == "cgroup2" && found.v2.is_none() {
                found.v2 = usable_v2(Path::new(at), &own);
            } else if kind == "cgroup" {
                found.add_v1(Path::new(at), options);
            }
        }
        if let Some(dir) = &found.v2 {
            found.enabled = controllers(&dir.join("cgroup.subtree_control"));
            found.v1.clear();
        }
        found
    }

    fn add_v1(&mut self, at: &Path, options: &str) {
        for name in CONTROLLERS.into_iter().chain([FREEZER]) {
            let mounted = options.split(',').any(|option| option == name);
            if mounted && !self.v1.iter().any(|(known, _)| *known == name) && can_make_groups(at) {
                self.v1.push((name, at.to_owned()));
            }
        }
    }

    /// The version in use.
    pub(crate) fn version(&self) -> CgroupVersion {
        match (&self.v2, CONTROLLERS.iter().any(|name| self.has(name))) {
            (Some(_), _) => CgroupVersion::V2,
            (None, true) => CgroupVersion::V1,
            (None, false) => CgroupVersion::None,
        }
    }

    /// Whether the processes of a group can be stopped in one step.
    pub(crate) fn can_freeze(&self) -> bool {
        self.v2.is_some() || self.has(FREEZER)
    }

    /// Whether this controller can be used.
    pub(crate) fn has(&self, controller: &str) -> bool {
        match &self.v2 {
            Some(_) => self.enabled.contains(controller),
            None => self.v1.iter().any(|(name, _)| *name == controller),
        }
    }

    /// Whether a limit on memory covers the buffers of sockets.
    pub(crate) fn limits_sockets(&self) -> bool {
        let v1 = self.v1.iter().find(|(name, _)| *name == "memory");
        self.v2.is_some() || v1.is_some_and(|(_, dir)| dir.join(SOCKET_LIMIT).exists())
    }

    /// The directories of groups whose name starts with this. On version 2 one may have groups inside.
    pub(crate) fn named(&self, start: &str) -> Vec<PathBuf> {
        let parents = self.v2.iter().chain(self.v1.iter().map(|(_, dir)| dir));
        let mut found = Vec::new();
        for parent in parents {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                if entry.file_name().to_str().is_some_and(|name| name.starts_with(start)) {
                    found.push(entry.path());
                }
            }
        }
        found
    }
}

/// Finds the directory of a version 2 hierarchy in which limits can be set, and enables its controllers.
///
/// Only leaves of such a tree may have processes. Except for the root, which is exempt, the directory must therefore have
/// none: the parent of this process's group, or a delegated one.
fn usable_v2(mount: &Path, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let here = mount.join(path.trim_start_matches('/'));
    let above = here.ancestors().take_while(|dir| dir.starts_with(mount));
    // The nearest of those with the most controllers; nothing is changed above one that has all.
    let mut best: Option<(usize, &Path)> = None;
    for dir in above.filter(|dir| can_make_groups(dir) && !has_own_processes(dir)) {
        let count = enable_controllers(dir);
        if count > best.map_or(0, |(most, _)| most) {
            best = Some((count, dir));
        }
        if count == CONTROLLERS.len() {
            break;
        }
    }
    best.map(|(_, dir)| dir.to_owned())
}

/// Whether groups below this one would compete with processes in it. The kernel still lets some controllers be enabled there,
/// but then accepts no process in any group below. One that has `memory` enabled had no processes then; those seen in it now
/// pass through, and are waited for when groups are created.
fn has_own_processes(dir: &Path) -> bool {
    // The root of the whole hierarchy has no type.
    let is_root = !dir.join("cgroup.type").exists();
    let is_parent = || controllers(&dir.join("cgroup.subtree_control")).contains("memory");
    let processes = || fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    !is_root && !is_parent() && !processes().trim().is_empty()
}

/// Enables the controllers for groups below this one; returns how many are enabled.
fn enable_controllers(dir: &Path) -> usize {
    let control = dir.join("cgroup.subtree_control");
    let offered = controllers(&dir.join("cgroup.controllers"));
    let on = controllers(&control);
    for name in CONTROLLERS.iter().filter(|name| offered.contains(**name) && !on.contains(**name)) {
        // Fails where the group has processes of its own.
        let _ = fs::write(&control, format!("+{name}"));
    }
    let on = controllers(&control);
    CONTROLLERS.iter().filter(|name| on.contains(**name)).count()
}

fn controllers(file: &Path) -> BTreeSet<String> {
    fs::read_to_string(file).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn can_make_groups(dir: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, dir, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
        && accessat(CWD, dir.join("cgroup.procs"), Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Version 1: the limit on the buffers of sockets, TCP and UDP alike.
const SOCKET_LIMIT: &str = "memory.kmem.tcp.limit_in_bytes";

/// The number in a file that has nothing else in it.
pub(crate) fn number_in(file: &File) -> Option<u64> {
    current(file).trim().parse().ok()
}

/// The text of a file that has one word in it.
pub(crate) fn word_in(file: &File) -> String {
    current(file).trim().to_owned()
}

/// The count of an event in an event file.
pub(crate) fn count(file: &File, key: &str) -> u64 {
    let text = current(file);
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn current(file: &File) -> String {
    use std::os::unix::fs::FileExt;
    let mut buffer = [0u8; 1024];
    let read = file.read_at(&mut buffer, 0).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..read]).into_owned()
}
