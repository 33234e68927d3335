//! Making one sandbox: directories, control groups, the clone, and the steps up to a running PID 1.

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use crate::{
    cgroup::{Cgroups, Counters, Entrance, Group},
    harden::{Hardening, Held, ResourceLimits},
    init::{self, Init},
    mounts::{self, Failure, OverlayMount, Shared, Step},
    plan::{NetworkPlan, Plan, Uppers},
    spawner::identity::{self, Identity},
    sys, wire,
};

/// A sandbox that runs.
pub(crate) struct Running {
    /// Its PID 1. Stays valid until the spawner reaps it.
    pub(crate) pid: i32,
    /// Its control groups.
    pub(crate) group: Group,
}

/// What making a sandbox needs of the spawner.
pub(crate) struct Maker<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) cgroups: &'a Cgroups,
    pub(crate) shared: &'a mut Shared,
    pub(crate) filter: &'a [libc::sock_filter],
    pub(crate) state: &'a Path,
    /// A handle for the spawner itself.
    pub(crate) spawner: &'a OwnedFd,
}

impl Maker<'_> {
    /// Makes a sandbox; answers it and the caller's end of the socket to its PID 1.
    ///
    /// On an error the caller removes the sandbox's directory.
    pub(crate) fn make(&mut self, plan: &Plan) -> Result<(Running, OwnedFd), Failure> {
        if plan.uppers == Uppers::Fresh {
            make_uppers(self.state, &plan.id, plan.overlays.len())
                .step("making the sandbox's directory")?;
        }
        let overlays = self.shared.overlays(&plan.id, &plan.overlays, &self.identity.owners())?;
        let mut group =
            self.cgroups.create(&plan.id, &plan.limits).step("making the control group")?;
        match self.start(plan, &overlays, &group) {
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
        let entrance = group.entrance().step("opening the control group")?;
        let (host, inside) = wire::pair().step("making a socket")?;
        let (go, tell_go) = rustix::pipe::pipe().step("making a pipe")?;
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
        match sys::clone3(flags as u64, directory).step("starting the sandbox")? {
            sys::Cloned::Child => {
                drop((host, tell_go));
                let spawner = self.spawner;
                let born = Born { plan, overlays, group, entrance, go, inside, spawner };
                born.live(self.hardening(plan))
            }
            sys::Cloned::Parent { pid, .. } => {
                if let Err(error) = self.identity.map(pid) {
                    // Without the go-ahead the child sees a closed pipe and exits.
                    drop(tell_go);
                    let _ = rustix::process::waitpid(
                        rustix::process::Pid::from_raw(pid),
                        rustix::process::WaitOptions::empty(),
                    );
                    return Err(error).step("mapping the sandbox's users");
                }
                let _ = rustix::io::write(&tell_go, b"g");
                Ok((pid, host))
            }
        }
    }

    fn hardening(&self, plan: &Plan) -> Hardening {
        let held = |controller| if self.cgroups.has(controller) { Held::Yes } else { Held::No };
        let limits = ResourceLimits::new(&plan.limits, held("memory"), held("pids"));
        Hardening::new(self.filter.to_vec(), limits, plan.network)
    }
}

/// Makes the writable directories of a sandbox.
pub(crate) fn make_uppers(state: &Path, id: &str, overlays: usize) -> io::Result<()> {
    let dir = state.join(id);
    fs::create_dir(&dir)?;
    for i in 0..overlays {
        fs::create_dir(dir.join(format!("u{i}")))?;
        fs::create_dir(dir.join(format!("w{i}")))?;
    }
    Ok(())
}

/// A process just cloned, on its way to being PID 1.
struct Born<'a> {
    plan: &'a Plan,
    overlays: &'a [OverlayMount],
    group: &'a Group,
    entrance: Entrance,
    go: OwnedFd,
    inside: OwnedFd,
    spawner: &'a OwnedFd,
}

impl Born<'_> {
    fn live(self, hardening: Hardening) -> ! {
        let Born { plan, overlays, .. } = self;
        let Ok(mut kept) = self.keep() else { sys::exit_now(1) };
        let failure = match kept.set_up(plan, overlays, hardening) {
            Ok(init) => init::run(init),
            Err(failure) => failure,
        };
        let _ = wire::send(kept.socket.as_fd(), &init::Reply::NotReady(failure.into()), &[]);
        sys::exit_now(1)
    }

    /// Closes everything of the spawner's but what this process needs.
    fn keep(self) -> io::Result<Kept> {
        let entrance = match self.entrance {
            Entrance::Files(files) => files,
            // Closed before the numbers change hands below.
            Entrance::Directory(directory) => {
                drop(directory);
                Vec::new()
            }
        };
        let counters = self.group.counters();
        let uppers = self.overlays.iter().map(|overlay| mounts::detached(&overlay.upper));
        let uppers = uppers.collect::<io::Result<Vec<_>>>()?;
        let counts = [
            1,
            1,
            1,
            entrance.len(),
            uppers.len(),
            counters.memory.iter().len(),
            counters.pids.iter().len(),
            counters.peak.iter().len(),
        ];
        let all = [self.inside, self.go, self.spawner.try_clone()?]
            .into_iter()
            .chain(entrance)
            .chain(uppers);
        let all = all.chain(counters.memory).chain(counters.pids).chain(counters.peak);
        let mut kept = sys::keep_only(all.collect())?.into_iter();
        let mut groups =
            counts.map(|count| kept.by_ref().take(count).collect::<Vec<_>>().into_iter());
        let missing = || io::Error::other("a descriptor is missing");
        Ok(Kept {
            socket: groups[0].next().ok_or_else(missing)?,
            go: groups[1].next().ok_or_else(missing)?,
            spawner: groups[2].next(),
            entrance: groups[3].by_ref().collect(),
            uppers: groups[4].by_ref().collect(),
            counters: Counters {
                memory: groups[5].next(),
                pids: groups[6].next(),
                peak: groups[7].next(),
            },
        })
    }
}

/// The descriptors of a process on its way to being PID 1.
struct Kept {
    socket: OwnedFd,
    go: OwnedFd,
    spawner: Option<OwnedFd>,
    entrance: Vec<OwnedFd>,
    uppers: Vec<OwnedFd>,
    counters: Counters,
}

impl Kept {
    fn set_up(
        &mut self,
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
        identity::become_root().step("becoming root of the sandbox")?;
        // Should the spawner die, so shall we: its one thread is our parent. A change of user resets this.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .step("tying the sandbox to its spawner")?;
        // It may have died just before that took effect.
        if self.spawner.take().is_some_and(|spawner| has_ended(&spawner)) {
            return Err(io::Error::other("the spawner is gone"))
                .step("tying the sandbox to its spawner");
        }
        // The single-user map forbids changing groups; there are none to drop then.
        let _ = rustix::thread::set_thread_groups(&[]);
        identity::unshare(rustix::thread::UnshareFlags::NEWCGROUP)
            .step("making a control group namespace")?;
        // Nobody inside may look into this process, whoever root inside is outside.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
            .step("hiding the first process")?;
        let resolv = match plan.network {
            NetworkPlan::Host => fs::read("/etc/resolv.conf").ok(),
            _ => None,
        };
        let own = mounts::enter(overlays, plan.limits.memory.map(|m| m.bytes()))?;
        rustix::system::sethostname(b"sandbox").step("naming the sandbox")?;
        if plan.network != NetworkPlan::Host {
            sys::loopback_up().step("starting the loopback interface")?;
        }
        write_network_files(resolv.as_deref()).step("writing /etc/hosts")?;
        fs::create_dir_all(&plan.workdir)
            .step(format!("making the working directory {}", plan.workdir.display()))?;
        Ok(Init {
            socket: self.socket.as_fd(),
            uppers: &self.uppers,
            counters: &self.counters,
            own,
            hardening,
            plan: plan.clone(),
        })
    }
}

/// Whether the process behind this handle is over.
fn has_ended(process: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Host names and resolvers, where the image has none or the host's are needed.
fn write_network_files(resolv: Option<&[u8]>) -> io::Result<()> {
    fs::create_dir_all("/etc")?;
    if Path::new("/etc/hosts").symlink_metadata().is_err() {
        let hosts = "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n";
        match fs::write("/etc/hosts", hosts) {
            // An image whose files belong to somebody this user cannot be: names resolve without it.
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
