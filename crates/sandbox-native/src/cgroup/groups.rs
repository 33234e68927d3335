//! The groups of one spawner: one for PID 1 and the file workers of all its sandboxes, and one per sandbox for commands.
//!
//! PID 1 is never in a group with its commands, so they can neither use up its processor time nor have the kernel kill it
//! when their memory runs out. No directory of a sandbox has both processes and groups in it, as version 2 demands:
//!
//! - Version 2: `lis-RUN.NS/init` and `lis-RUN.NS/lis-RUN-NUMBER.NS`. A child of PID 1 is cloned right into the group of its sandbox.
//!   The kernel then asks for write access to `cgroup.procs` of that group and of the common parent; both belong to root of
//!   the sandbox, who has no other way to them. Moving a process instead takes a lock of the whole kernel: milliseconds.
//! - Version 1: `lis-RUN-init.NS` (processor only) and `lis-RUN-NUMBER.NS`. A child of PID 1 moves itself, which takes no such
//!   lock. Memory and processes of PID 1 stay where the spawner's are. One of the groups only stops commands, see `init/stop`.
//!
//! NS is the number of the pid namespace in which RUN names its process; see `leftovers`.
//!
//! `memory.oom.group` stays off: it would kill the shell, and with it its state, together with the command that was too
//! large. `cgroup.kill` is not needed: the death of PID 1 ends everything in its pid namespace.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use sandbox::Limits;

use super::{CONTROLLERS, Cgroups, FREEZER, PREFIX, SOCKET_LIMIT, pid_namespace};
use crate::{mounts, sys};

/// Processor weight of PID 1 and the file workers of all sandboxes together, in weights of one sandbox. They sleep nearly
/// always; a larger weight would let many copies of files starve commands.
const INIT_WEIGHT: u32 = 10;
/// The weight of a group that none was set for.
const WEIGHT_V1: u32 = 1024;
const WEIGHT_V2: u32 = 100;
/// Not counted against the caller's limit: the shell and its sleeping copy.
const RESERVED_PIDS: u64 = 2;
const PERIOD_US: u64 = 100_000;
/// The files that stop the processes of a group.
const V1_FREEZER: &str = "freezer.state";
const V2_FREEZER: &str = "cgroup.freeze";

/// The groups of one spawner.
pub(crate) struct Groups {
    cgroups: Cgroups,
    run: String,
    /// The end of the name of every group.
    mark: String,
    /// Those of PID 1 and the file workers; on version 2 their parent first.
    own: Group,
    /// The user of the host that is root in every sandbox, where that is not the spawner's.
    root: Option<u32>,
}

impl Groups {
    /// Creates the groups that all sandboxes of this spawner share. On an error nothing is left behind.
    pub(crate) fn create(cgroups: Cgroups, run: &str, root: Option<u32>) -> io::Result<Self> {
        let own = Group { dirs: Vec::new(), v2: cgroups.v2.is_some() };
        let mark = pid_namespace().map_or_else(String::new, |namespace| format!(".{namespace:x}"));
        let mut groups = Self { cgroups, run: run.to_owned(), mark, own, root };
        match groups.add_own() {
            Ok(()) => Ok(groups),
            Err(error) => {
                groups.remove();
                Err(error)
            }
        }
    }

    fn add_own(&mut self) -> io::Result<()> {
        if let Some(parent) = &self.cgroups.v2 {
            let top = parent.join(self.name(&self.run));
            self.own.add("v2", &top)?;
            for controller in CONTROLLERS.iter().filter(|name| self.cgroups.has(name)) {
                let file = top.join("cgroup.subtree_control");
                sys::while_parent_is_busy(|| write_existing(&file, &format!("+{controller}")))?;
            }
            self.let_in(&top)?;
            let init = top.join("init");
            self.own.add("v2", &init)?;
            if self.cgroups.has("cpu") {
                let weight = (WEIGHT_V2 * INIT_WEIGHT).to_string();
                write_existing(&init.join("cpu.weight"), &weight)?;
            }
        } else if let Some((_, parent)) = self.cgroups.v1.iter().find(|(name, _)| *name == "cpu") {
            let init = parent.join(self.name(&format!("{}-init", self.run)));
            self.own.add("cpu", &init)?;
            write_existing(&init.join("cpu.shares"), &(WEIGHT_V1 * INIT_WEIGHT).to_string())?;
        }
        Ok(())
    }

    fn name(&self, id: &str) -> String {
        format!("{PREFIX}{id}{}", self.mark)
    }

    /// Lets PID 1 of a sandbox clone children into a group of version 2.
    fn let_in(&self, dir: &Path) -> io::Result<()> {
        match self.root {
            Some(root) => std::os::unix::fs::chown(dir.join("cgroup.procs"), Some(root), None),
            None => Ok(()),
        }
    }

    /// The hierarchies in use.
    pub(crate) fn hierarchies(&self) -> &Cgroups {
        &self.cgroups
    }

    /// Opens what a new PID 1 needs to enter its group.
    pub(crate) fn entrance(&self) -> io::Result<Entrance> {
        match self.own.dirs.last() {
            Some((_, init)) if self.own.v2 => Ok(Entrance::Directory(File::open(init)?.into())),
            _ => self.own.tasks().map(Entrance::Files),
        }
    }

    /// Creates the group of a sandbox's commands, with these limits. On an error nothing is left behind.
    pub(crate) fn add(&self, id: &str, limits: &Limits) -> io::Result<Group> {
        let name = self.name(id);
        let mut group = Group { dirs: Vec::new(), v2: self.own.v2 };
        let made = match self.own.dirs.first() {
            Some((_, top)) if self.own.v2 => {
                let dir = top.join(name);
                let made = group.add_v2(&dir, &self.enforceable(limits));
                made.and_then(|()| self.let_in(&dir))
            }
            _ => self.cgroups.v1.iter().try_for_each(|(controller, parent)| {
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
    fn enforceable(&self, limits: &Limits) -> Limits {
        Limits {
            memory: limits.memory.filter(|_| self.cgroups.has("memory")),
            pids: limits.pids.filter(|_| self.cgroups.has("pids")),
            cpus: limits.cpus.filter(|_| self.cgroups.has("cpu")),
            disk: None,
        }
    }

    /// Removes the shared groups, which must have no processes; returns whether they are gone.
    pub(crate) fn remove(&mut self) -> bool {
        self.own.remove()
    }
}

/// The groups of one sandbox's commands.
#[derive(Debug)]
pub(crate) struct Group {
    /// Controller (or "v2") and directory, a parent before what is in it.
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
    /// What that memory is for.
    pub(crate) kinds: Option<OwnedFd>,
    /// Stops all processes, or lets them continue.
    pub(crate) freezer: Option<OwnedFd>,
    /// Version 2: says whether they have stopped. On version 1 `freezer` says so itself.
    pub(crate) frozen: Option<OwnedFd>,
}

impl Group {
    fn add(&mut self, controller: &'static str, dir: &Path) -> io::Result<()> {
        fs::create_dir(dir)?;
        self.dirs.push((controller, dir.to_owned()));
        Ok(())
    }

    fn add_v2(&mut self, dir: &Path, limits: &Limits) -> io::Result<()> {
        self.add("v2", dir)?;
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
        self.add(controller, dir)?;
        let set = |name: &str, value: String| write_existing(&dir.join(name), &value);
        match controller {
            "memory" => {
                if let Some(memory) = limits.memory {
                    set("memory.limit_in_bytes", memory.bytes().to_string())?;
                    let _ = set("memory.memsw.limit_in_bytes", memory.bytes().to_string());
                    // Buffers of TCP and UDP sockets are counted apart from the rest.
                    let _ = set(SOCKET_LIMIT, (memory.bytes() / 4).to_string());
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

    /// Opens what a new process of a command needs to enter the group. A descriptor of it leads nowhere else.
    pub(crate) fn entrance(&self) -> io::Result<Entrance> {
        match self.dirs.first() {
            Some((_, dir)) if self.v2 => mounts::detached(dir).map(Entrance::Directory),
            _ => self.tasks().map(Entrance::Files),
        }
    }

    fn tasks(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |(_, dir): &(_, PathBuf)| -> io::Result<OwnedFd> {
            Ok(OpenOptions::new().write(true).open(dir.join("tasks"))?.into())
        };
        self.dirs.iter().map(open).collect()
    }

    /// Opens the kernel's counters of the group, with what stops it: see [`Group::freezer`].
    pub(crate) fn counters(&self, freezer: Option<OwnedFd>) -> Counters {
        let find = |controller: &str, file: &str| {
            let path = self.path(controller, file)?;
            File::open(path).ok().map(OwnedFd::from)
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
            kinds: find("memory", "memory.stat"),
            freezer,
            frozen: self.v2.then(|| find(FREEZER, "cgroup.events")).flatten(),
        }
    }

    /// Opens what stops all processes of the group. To be called by the spawner: PID 1 is a user who may not open it.
    pub(crate) fn freezer(&self) -> io::Result<Option<OwnedFd>> {
        let path = self.path(FREEZER, if self.v2 { V2_FREEZER } else { V1_FREEZER });
        match path.map(|path| OpenOptions::new().read(true).write(true).open(path)) {
            Some(Ok(file)) => Ok(Some(file.into())),
            // A kernel without it.
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Some(Err(error)) => Err(error),
            None => Ok(None),
        }
    }

    fn path(&self, controller: &str, file: &str) -> Option<PathBuf> {
        let dir = self.dirs.iter().find(|(name, _)| *name == controller || *name == "v2");
        dir.map(|(_, dir)| dir.join(file))
    }

    /// Lets frozen processes continue, so that those that were killed end. On version 2 they end by themselves.
    pub(crate) fn thaw(&self) {
        if let Some((_, dir)) = self.dirs.iter().find(|(controller, _)| *controller == FREEZER) {
            thaw(dir);
        }
    }

    /// Removes the groups, which must have no processes; returns whether they are gone.
    pub(crate) fn remove(&mut self) -> bool {
        let is_gone = |dir: &Path| match fs::remove_dir(dir) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(_) => {
                thaw(dir);
                false
            }
        };
        // What is inside another one first.
        self.dirs.reverse();
        self.dirs.retain(|(_, dir)| !is_gone(dir));
        self.dirs.reverse();
        self.dirs.is_empty()
    }
}

/// Lets the processes of a group continue: on version 1, those that were killed while they were frozen end only then, and so
/// does PID 1, which waits for them.
pub(crate) fn thaw(group: &Path) {
    let _ = write_existing(&group.join(V1_FREEZER), "THAWED");
    let _ = write_existing(&group.join(V2_FREEZER), "0");
}

fn quota(cpus: f64) -> u64 {
    ((cpus * PERIOD_US as f64) as u64).max(1000)
}

/// A control file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
struct Unwritten(String, #[source] io::Error);

/// Writes a control file. `fs::write` would try to create a missing one and hide the cause.
fn write_existing(file: &Path, value: &str) -> io::Result<()> {
    use io::Write;
    let wrap = |error: io::Error| {
        io::Error::new(
            error.kind(),
            Unwritten(format!("writing {value} to {}", file.display()), error),
        )
    };
    let mut file = OpenOptions::new().write(true).open(file).map_err(wrap)?;
    file.write_all(value.as_bytes()).map_err(wrap)
}
