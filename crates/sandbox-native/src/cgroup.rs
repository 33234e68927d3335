//! Control groups of version 1, version 2 or none: what this machine offers, and one group per sandbox.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use sandbox::Limits;

/// Prefix of the name of every group.
pub(crate) const PREFIX: &str = "lis-";

/// Controllers that limit a sandbox.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

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
        for name in CONTROLLERS {
            let mounted = options.split(',').any(|option| option == name);
            if mounted && !self.v1.iter().any(|(known, _)| *known == name) && can_make_groups(at) {
                self.v1.push((name, at.to_owned()));
            }
        }
    }

    /// The version in use.
    pub(crate) fn version(&self) -> CgroupVersion {
        match (&self.v2, self.v1.is_empty()) {
            (Some(_), _) => CgroupVersion::V2,
            (None, false) => CgroupVersion::V1,
            (None, true) => CgroupVersion::None,
        }
    }

    /// Whether this controller can be used.
    pub(crate) fn has(&self, controller: &str) -> bool {
        match &self.v2 {
            Some(_) => self.enabled.contains(controller),
            None => self.v1.iter().any(|(name, _)| *name == controller),
        }
    }

    /// Creates a group with these limits. On an error nothing is left behind.
    pub(crate) fn create(&self, id: &str, limits: &Limits) -> io::Result<Group> {
        let name = format!("{PREFIX}{id}");
        let mut group = Group { dirs: Vec::new(), v2: self.v2.is_some() };
        let made = match &self.v2 {
            Some(parent) => group.add_v2(&parent.join(&name), &self.held(limits)),
            None => self.v1.iter().try_for_each(|(controller, parent)| {
                group.add_v1(controller, &parent.join(&name), limits)
            }),
        };
        match made {
            Ok(()) => Ok(group),
            Err(error) => {
                group.remove();
                Err(error)
            }
        }
    }

    /// The limits that the usable controllers can enforce.
    fn held(&self, limits: &Limits) -> Limits {
        Limits {
            memory: limits.memory.filter(|_| self.has("memory")),
            pids: limits.pids.filter(|_| self.has("pids")),
            cpus: limits.cpus.filter(|_| self.has("cpu")),
            disk: None,
        }
    }

    /// The directories of groups whose name starts with this.
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
    for dir in above.filter(|dir| can_make_groups(dir)) {
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

/// The groups of one sandbox.
#[derive(Debug)]
pub(crate) struct Group {
    /// Controller (or "v2") and directory.
    dirs: Vec<(&'static str, PathBuf)>,
    v2: bool,
}

/// How a new process enters a group.
pub(crate) enum Entrance {
    /// It is cloned into this directory.
    Directory(OwnedFd),
    /// It writes `0` to each of these files itself.
    ///
    /// Moving a single task, through `tasks`, avoids a global lock of the kernel: microseconds instead of milliseconds.
    Files(Vec<OwnedFd>),
}

/// The kernel's counter files, where it has them.
pub(crate) struct Counters {
    /// Processes killed because of the memory limit.
    pub(crate) memory: Option<OwnedFd>,
    /// Forks refused because of the process limit.
    pub(crate) pids: Option<OwnedFd>,
    /// Peak memory use.
    pub(crate) peak: Option<OwnedFd>,
    /// Memory in use now.
    pub(crate) current: Option<OwnedFd>,
}

impl Group {
    fn add_v2(&mut self, dir: &Path, limits: &Limits) -> io::Result<()> {
        fs::create_dir(dir)?;
        self.dirs.push(("v2", dir.to_owned()));
        let set = |name: &str, value: String| write_existing(&dir.join(name), &value);
        if let Some(memory) = limits.memory {
            set("memory.max", memory.bytes().to_string())?;
            // Absent where swap accounting is off.
            let _ = set("memory.swap.max", "0".into());
        }
        if let Some(pids) = limits.pids {
            set("pids.max", (u64::from(pids) + RESERVED_PIDS).to_string())?;
        }
        if let Some(cpus) = limits.cpus {
            set("cpu.max", format!("{} {PERIOD_US}", quota(cpus)))?;
        }
        Ok(())
    }

    fn add_v1(&mut self, controller: &'static str, dir: &Path, limits: &Limits) -> io::Result<()> {
        fs::create_dir(dir)?;
        self.dirs.push((controller, dir.to_owned()));
        let set = |name: &str, value: String| write_existing(&dir.join(name), &value);
        match controller {
            "memory" => {
                if let Some(memory) = limits.memory {
                    set("memory.limit_in_bytes", memory.bytes().to_string())?;
                    let _ = set("memory.memsw.limit_in_bytes", memory.bytes().to_string());
                }
            }
            "pids" => {
                if let Some(pids) = limits.pids {
                    set("pids.max", (u64::from(pids) + RESERVED_PIDS).to_string())?;
                }
            }
            "cpu" => {
                if let Some(cpus) = limits.cpus {
                    set("cpu.cfs_period_us", PERIOD_US.to_string())?;
                    set("cpu.cfs_quota_us", quota(cpus).to_string())?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Opens what a new process needs to enter the group.
    pub(crate) fn entrance(&self) -> io::Result<Entrance> {
        if self.v2 {
            let dir = &self.dirs[0].1;
            return Ok(Entrance::Directory(File::open(dir)?.into()));
        }
        let open = |(_, dir): &(_, PathBuf)| -> io::Result<OwnedFd> {
            Ok(OpenOptions::new().write(true).open(dir.join("tasks"))?.into())
        };
        self.dirs.iter().map(open).collect::<io::Result<_>>().map(Entrance::Files)
    }

    /// Opens the kernel's counters of the group.
    pub(crate) fn counters(&self) -> Counters {
        let find = |controller: &str, file: &str| {
            let dir = self.dirs.iter().find(|(name, _)| *name == controller || *name == "v2");
            dir.and_then(|(_, dir)| File::open(dir.join(file)).ok()).map(OwnedFd::from)
        };
        let (memory, peak, current) = match self.v2 {
            true => ("memory.events", "memory.peak", "memory.current"),
            false => ("memory.oom_control", "memory.max_usage_in_bytes", "memory.usage_in_bytes"),
        };
        Counters {
            memory: find("memory", memory),
            pids: find("pids", "pids.events"),
            peak: find("memory", peak),
            current: find("memory", current),
        }
    }

    /// Removes the groups, which must have no processes; returns whether they are gone.
    pub(crate) fn remove(&mut self) -> bool {
        self.dirs.retain(|(_, dir)| match fs::remove_dir(dir) {
            Ok(()) => false,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        });
        self.dirs.is_empty()
    }
}

/// Not counted against the caller's limit: PID 1, the shell, its sleeping copy and a file worker.
const RESERVED_PIDS: u64 = 4;
const PERIOD_US: u64 = 100_000;

fn quota(cpus: f64) -> u64 {
    ((cpus * PERIOD_US as f64) as u64).max(1000)
}

/// Writes a control file. `fs::write` would try to create a missing one and hide the cause.
fn write_existing(file: &Path, value: &str) -> io::Result<()> {
    use io::Write;
    let wrap = |error: io::Error| {
        io::Error::new(error.kind(), format!("writing {value} to {}: {error}", file.display()))
    };
    let mut file = OpenOptions::new().write(true).open(file).map_err(wrap)?;
    file.write_all(value.as_bytes()).map_err(wrap)
}

/// The number in a file that has nothing else in it.
pub(crate) fn number_in(file: &File) -> Option<u64> {
    current(file).trim().parse().ok()
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
