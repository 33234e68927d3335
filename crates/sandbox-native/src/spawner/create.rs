//! Creates one sandbox: directories, control groups, the clone, and the steps up to a running PID 1.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use crate::{
    cgroup::{Counters, Entrance, Group, Groups},
    diagnostics,
    harden::{CgroupLimit, Hardening, ResourceLimits},
    init::{self, Init},
    mounts::{self, Failure, OverlayMount, Shared, Step},
    plan::{NetworkPlan, Plan, Uppers},
    spawner::{
        counted::Shares,
        identity::{self, Identity},
        volume::{self, Volume},
    },
    sys::{self, SingleThreaded},
    wire,
};

/// A running sandbox.
pub(crate) struct Running {
    /// Process id of its PID 1 on the host. Valid until the spawner reaps it.
    pub(crate) pid: i32,
    /// The control groups of its commands.
    pub(crate) group: Group,
}

impl Running {
    /// Kills PID 1, and all others with it.
    pub(crate) fn kill(&self) {
        use rustix::process::{Pid, Signal, kill_process};
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
        self.group.thaw();
    }
}

/// The parts of the spawner that creating a sandbox needs.
pub(crate) struct Creator<'a> {
    pub(crate) single: SingleThreaded,
    pub(crate) identity: &'a Identity,
    pub(crate) groups: &'a Groups,
    pub(crate) shared: &'a mut Shared,
    pub(crate) filter: &'a [libc::sock_filter],
    /// The number of files that all processes of the machine can have open.
    pub(crate) file_max: u64,
    pub(crate) state: &'a Path,
    /// A pidfd of the spawner itself.
    pub(crate) spawner: &'a OwnedFd,
}

impl Creator<'_> {
    /// Creates a sandbox; returns it and the caller's end of the socket to its PID 1.
    ///
    /// On an error the caller removes the sandbox's directory.
    pub(crate) fn create(&mut self, plan: &Plan) -> Result<(Running, OwnedFd), Failure> {
        if plan.uppers == Uppers::Fresh {
            let (root, owner) = (self.identity.shifted_root(), self.shared.uppers_owner);
            volume::make_uppers(self.state, plan, root, owner)?;
        }
        let (dir, owners) = (volume::uppers(plan), self.identity.owners());
        let overlays = self.shared.overlays(&dir, &plan.overlays, &owners)?;
        let mut group =
            self.groups.add(&plan.id, &plan.limits).step("creating the control group")?;
        let started = self.start(plan, &overlays, &group);
        if Volume::of(plan).is_some() {
            volume::release(&plan.id);
        }
        match started {
            Ok((pid, socket)) => Ok((Running { pid, group }, socket)),
            Err(failure) => {
                group.remove();
                Err(failure)
            }
        }
    }

    fn start(
        &self,
        plan: &Plan,
        overlays: &[OverlayMount],
        group: &Group,
    ) -> Result<(i32, OwnedFd), Failure> {
        let entrance = self.groups.entrance().step("opening the control group")?;
        let commands = group.entrance().step("opening the control group")?;
        let freezer = group.freezer().step("opening the control group")?;
        let (host, inside) = wire::pair().step("creating a socket")?;
        let (go, go_sender) = rustix::pipe::pipe().step("creating a pipe")?;
        let mut flags = libc::CLONE_NEWUSER
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS;
        if plan.network != NetworkPlan::Host {
            flags |= libc::CLONE_NEWNET;
        }
        let directory = match &entrance {
            Entrance::Directory(fd) => Some(fd.as_fd()),
            Entrance::Files(_) => None,
        };
        let clone = || sys::clone3(self.single, flags, directory);
        match self.identity.clone_as_creator(clone).step("starting the sandbox")? {
            sys::Cloned::Child => {
                drop((host, go_sender));
                let spawner = self.spawner;
                let single = self.single;
                let shares = self.identity.shares();
                let process = NewProcess {
                    single,
                    plan,
                    overlays,
                    group,
                    entrance,
                    commands,
                    freezer,
                    go,
                    inside,
                    spawner,
                    shares,
                };
                process.run(self.hardening(plan))
            }
            sys::Cloned::Parent { pid, .. } => {
                if let Err(error) = self.identity.map(pid) {
                    // Without the go-ahead the child sees a closed pipe and exits.
                    drop(go_sender);
                    let _ = rustix::process::waitpid(
                        rustix::process::Pid::from_raw(pid),
                        rustix::process::WaitOptions::empty(),
                    );
                    return Err(error).step("mapping the sandbox's users");
                }
                let _ = rustix::io::write(&go_sender, b"g");
                Ok((pid, host))
            }
        }
    }

    fn hardening(&self, plan: &Plan) -> Hardening {
        let held = |controller| {
            let has = self.groups.hierarchies().has(controller);
            if has { CgroupLimit::Enforced } else { CgroupLimit::Missing }
        };
        let limits = ResourceLimits::new(&plan.limits, held("memory"), held("pids"), self.file_max);
        Hardening::new(self.filter.to_vec(), limits, plan.network)
    }
}

/// A new process, before it serves as PID 1.
struct NewProcess<'a> {
    single: SingleThreaded,
    plan: &'a Plan,
    overlays: &'a [OverlayMount],
    group: &'a Group,
    /// Into the group of PID 1.
    entrance: Entrance,
    /// Into the group of commands.
    commands: Entrance,
    /// Stops the group of commands.
    freezer: Option<OwnedFd>,
    go: OwnedFd,
    inside: OwnedFd,
    spawner: &'a OwnedFd,
    shares: Shares,
}

impl NewProcess<'_> {
    fn run(self, hardening: Hardening) -> ! {
        let NewProcess { single, plan, overlays, shares, .. } = self;
        shares.apply();
        let mut kept = match self.keep_descriptors() {
            Ok(kept) => kept,
            Err(error) => {
                diagnostics::report(&format!("a new sandbox cannot keep its descriptors: {error}"));
                sys::exit_now(1)
            }
        };
        let failure = match kept.set_up(single, plan, overlays, hardening) {
            Ok(init) => init::run(init),
            Err(failure) => failure,
        };
        let _ = wire::send(kept.socket.as_fd(), &init::Reply::NotReady(failure.into()), &[]);
        sys::exit_now(1)
    }

    /// Closes every descriptor inherited from the spawner except those that this process needs.
    fn keep_descriptors(self) -> io::Result<ProcessFds> {
        let entrance = match self.entrance {
            Entrance::Files(files) => files,
            // Closed before `keep_only` assigns its number to another.
            Entrance::Directory(directory) => {
                drop(directory);
                Vec::new()
            }
        };
        let (commands, is_directory) = match self.commands {
            Entrance::Files(files) => (files, false),
            Entrance::Directory(directory) => (vec![directory], true),
        };
        let counters = self.group.counters(self.freezer);
        let space = volume::open_space(self.plan);
        let uppers = self.overlays.iter().map(|overlay| &overlay.upper);
        let written = uppers.chain(self.overlays.iter().map(|overlay| &overlay.work));
        let written = written.map(|dir| mounts::detached(dir)).collect::<io::Result<Vec<_>>>()?;
        let counts = [
            1,
            1,
            1,
            entrance.len(),
            written.len(),
            counters.memory.iter().len(),
            counters.pids.iter().len(),
            counters.peak.iter().len(),
            counters.current.iter().len(),
            counters.kinds.iter().len(),
            commands.len(),
            space.iter().len(),
            counters.freezer.iter().len(),
            counters.frozen.iter().len(),
        ];
        let all = [self.inside, self.go, self.spawner.try_clone()?]
            .into_iter()
            .chain(entrance)
            .chain(written);
        let all = all.chain(counters.memory).chain(counters.pids).chain(counters.peak);
        let all = all.chain(counters.current).chain(counters.kinds).chain(commands).chain(space);
        let all = all.chain(counters.freezer).chain(counters.frozen);
        // SAFETY: this is a copy of the spawner that becomes PID 1. It ends by `exit_now`, in `NewProcess::run` or in
        // `init::run`, without returning to the spawner's code, so none of the spawner's descriptors is used or dropped
        // here again; those needed are all in the list. `plan`, `overlays` and `group` hold paths only.
        let mut kept = unsafe { sys::keep_only(all.collect()) }?.into_iter();
        let mut groups =
            counts.map(|count| kept.by_ref().take(count).collect::<Vec<_>>().into_iter());
        let missing = || io::Error::other("a descriptor is missing");
        Ok(ProcessFds {
            socket: groups[0].next().ok_or_else(missing)?,
            go: groups[1].next().ok_or_else(missing)?,
            spawner: groups[2].next(),
            entrance: groups[3].by_ref().collect(),
            written: groups[4].by_ref().collect(),
            counters: Counters {
                memory: groups[5].next(),
                pids: groups[6].next(),
                peak: groups[7].next(),
                current: groups[8].next(),
                kinds: groups[9].next(),
                freezer: groups[12].next(),
                frozen: groups[13].next(),
            },
            commands: match is_directory {
                true => Entrance::Directory(groups[10].next().ok_or_else(missing)?),
                false => Entrance::Files(groups[10].by_ref().collect()),
            },
            space: groups[11].next(),
        })
    }
}

/// The descriptors of a new process, before it serves as PID 1.
struct ProcessFds {
    socket: OwnedFd,
    go: OwnedFd,
    spawner: Option<OwnedFd>,
    entrance: Vec<OwnedFd>,
    /// The writable directories of the overlays, then those in which the kernel prepares what it moves there.
    written: Vec<OwnedFd>,
    counters: Counters,
    commands: Entrance,
    space: Option<OwnedFd>,
}

impl ProcessFds {
    fn set_up(
        &mut self,
        single: SingleThreaded,
        plan: &Plan,
        overlays: &[OverlayMount],
        hardening: Hardening,
    ) -> Result<Init<'_>, Failure> {
        let mut go = [0u8; 1];
        if rustix::io::read(&self.go, &mut go).step("waiting for the spawner")? != 1 {
            return Err(io::Error::other("the spawner gave up")).step("waiting for the spawner");
        }
        for file in self.entrance.drain(..) {
            rustix::io::write(file, b"0").step("entering the control group")?;
        }
        sys::be_scheduled_promptly();
        identity::become_root().step("becoming root of the sandbox")?;
        // The sandbox dies with the spawner, whose only thread is its parent. Must follow the change of user, which resets
        // it.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .step("tying the sandbox to its spawner")?;
        // The spawner may have died just before that took effect.
        if self.spawner.take().is_some_and(|spawner| has_ended(&spawner)) {
            return Err(io::Error::other("the spawner is gone"))
                .step("tying the sandbox to its spawner");
        }
        // Not permitted with a single-user map, where there are no groups to drop.
        let _ = rustix::thread::set_thread_groups(&[]);
        // No process inside may trace PID 1 or read its memory, even if root inside is root outside.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
            .step("protecting PID 1")?;
        let resolv = match plan.network {
            NetworkPlan::Host => fs::read("/etc/resolv.conf").ok(),
            NetworkPlan::Internet => Some(init::RESOLV_CONF.into()),
            NetworkPlan::Isolated | NetworkPlan::Proxied => None,
        };
        let own = mounts::enter(overlays, plan.limits.memory.map(|m| m.bytes()))?;
        rustix::system::sethostname(b"sandbox").step("naming the sandbox")?;
        if plan.network != NetworkPlan::Host {
            sys::loopback_up().step("starting the loopback interface")?;
        }
        write_network_files(resolv.as_deref()).step("writing /etc/hosts")?;
        fs::create_dir_all(&plan.workdir)
            .step(format!("creating the working directory {}", plan.workdir.display()))?;
        Ok(Init {
            single,
            socket: self.socket.as_fd(),
            uppers: self.written.get(..overlays.len()).unwrap_or_default(),
            written: &self.written,
            space: self.space.as_ref(),
            counters: &self.counters,
            commands: &self.commands,
            own,
            hardening,
            plan: plan.clone(),
        })
    }
}

/// Whether the process of this pidfd has ended.
fn has_ended(process: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Writes `/etc/hosts` where the image has none, and the given resolvers.
fn write_network_files(resolv: Option<&[u8]>) -> io::Result<()> {
    fs::create_dir_all("/etc")?;
    if Path::new("/etc/hosts").symlink_metadata().is_err() {
        let hosts = "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n";
        match fs::write("/etc/hosts", hosts) {
            // The image's files belong to an unmapped user. Names resolve without the file.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            written => written?,
        }
    }
    if let Some(content) = resolv {
        let _ = fs::remove_file("/etc/resolv.conf");
        fs::write("/etc/resolv.conf", content)?;
    }
    Ok(())
}
