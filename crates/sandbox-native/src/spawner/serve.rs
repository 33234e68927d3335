//! The spawner's loop: take an order, notice a death, clean up, go on.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{self, Stdin},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, WaitOptions, kill_process, wait},
};
use sandbox::SandboxInfo;

use super::{
    Answer, Facts, Identity, Order, Storage,
    create::{Maker, Running, make_uppers},
    remove::{Effort, remove_tree},
};
use crate::{
    cgroup::{Cgroups, Group},
    harden, leftovers,
    mounts::{Failure, Shared, Step},
    plan::Plan,
    sys::{self, Fork},
    wire,
};

/// Removing up to this many files is quicker than starting a process for it.
const REMOVED_INLINE: usize = 200;
/// How long to wait before looking again for something the kernel has not finished.
const RETRY: Duration = Duration::from_millis(2);
const MOST_TRIES: u32 = 2000;

pub(crate) struct Spawner {
    caller: Stdin,
    deaths: OwnedFd,
    /// A handle for this process, by which sandboxes notice its end.
    own: OwnedFd,
    run_dir: PathBuf,
    /// Held as long as we live, so that others can tell.
    _lock: fs::File,
    identity: Identity,
    cgroups: Cgroups,
    shared: Shared,
    filter: Vec<libc::sock_filter>,
    running: HashMap<String, Running>,
    prepared: HashSet<String>,
    /// Sandboxes being destroyed, and the orders to answer when they are gone.
    dying: HashMap<String, Vec<u32>>,
    /// Groups the kernel still calls busy.
    busy: Vec<(Group, u32)>,
    removers: usize,
    /// Leftovers of others that were removed and not reported yet.
    removed: Vec<SandboxInfo>,
}

impl Spawner {
    /// Prepares everything sandboxes share, and tells the caller.
    pub(crate) fn begin(run_dir: PathBuf) -> Result<Self, Failure> {
        sys::assert_single_threaded().step("starting the spawner")?;
        // Signals for the caller's terminal are the caller's business.
        let _ = rustix::process::setsid();
        let deaths = sys::child_signals().step("watching children")?;
        let me = rustix::process::getpid();
        let own = rustix::process::pidfd_open(me, rustix::process::PidfdFlags::empty());
        let own = own.step("making a handle for the spawner")?;
        let cgroups = Cgroups::detect();
        let filter = harden::filter().step("building the system call filter")?;
        let lock = leftovers::claim(&run_dir).step(format!(
            "making {} (choose another place with LLM_IN_SANDBOX_HOME)",
            run_dir.display()
        ))?;
        let prepared = Self::prepare(&run_dir);
        if prepared.is_err() {
            remove_traces(&run_dir);
        }
        let (identity, shared, storage, removed) = prepared?;
        let facts = Facts {
            users: identity.users(),
            cgroups: cgroups.version(),
            controllers: ["memory", "pids", "cpu"]
                .iter()
                .filter(|name| cgroups.has(name))
                .map(ToString::to_string)
                .collect(),
            storage,
        };
        let caller = io::stdin();
        // A caller that is gone already is noticed in the first turn.
        let _ = wire::send(caller.as_fd(), &Answer::Begun(facts), &[]);
        Ok(Self {
            caller,
            deaths,
            own,
            run_dir,
            _lock: lock,
            identity,
            cgroups,
            shared,
            filter,
            running: HashMap::new(),
            prepared: HashSet::new(),
            dying: HashMap::new(),
            busy: Vec::new(),
            removers: 0,
            removed,
        })
    }

    fn prepare(run_dir: &Path) -> Result<Prepared, Failure> {
        let scratch = run_dir.join("scratch");
        let state = run_dir.join("state");
        for dir in [&scratch, &state, &run_dir.join("trash")] {
            fs::create_dir(dir).step(format!("making {}", dir.display()))?;
        }
        spread_out(&state);
        let identity = Identity::assume()?;
        // Now that we may remove files of every user inside: what died before us.
        let removed = prune(run_dir).unwrap_or_default();
        let storage = storage_of(&state);
        if storage == Storage::Memory {
            use rustix::mount::{MountFlags, mount};
            mount("tmpfs", &state, "tmpfs", MountFlags::NOSUID, Some(c"mode=0700"))
                .step("mounting a tmpfs for what sandboxes write")?;
        }
        let shared = Shared::prepare(&scratch, &state, &identity.owners())?;
        Ok((identity, shared, storage, removed))
    }

    /// Serves until the caller is gone, then removes everything.
    pub(crate) fn serve(&mut self) {
        while self.turn().is_ok_and(|more| more) {}
        self.end();
    }

    /// Waits for something to happen and deals with it. Answers whether the caller is still there.
    fn turn(&mut self) -> io::Result<bool> {
        let retry = Timespec { tv_sec: 0, tv_nsec: RETRY.as_nanos() as i64 };
        let timeout = (!self.busy.is_empty()).then_some(retry);
        let (order, death) = {
            let mut fds = [
                PollFd::new(&self.caller, PollFlags::IN),
                PollFd::new(&self.deaths, PollFlags::IN),
            ];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
        };
        self.retry_groups();
        if death {
            self.reap();
        }
        if order {
            match wire::receive::<Order>(self.caller.as_fd())? {
                Some((order, _)) => self.obey(order),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Begin { .. } => {}
            Order::Create { request, plan } => match self.create(&plan) {
                Ok(socket) => self.answer(&Answer::Created { request }, &[socket]),
                Err(failure) => self.fail(request, failure),
            },
            Order::Prepare { request, id, overlays } => match self.prepare_uppers(&id, overlays) {
                Ok(dirs) => self.answer(&Answer::Prepared { request }, &dirs),
                Err(failure) => self.fail(request, failure),
            },
            Order::Destroy { request, id } => self.destroy(request, id),
            Order::Prune { request } => match prune(&self.run_dir) {
                Ok(more) => {
                    let mut removed = std::mem::take(&mut self.removed);
                    removed.extend(more);
                    self.answer(&Answer::Pruned { request, removed }, &[]);
                }
                Err(error) => {
                    self.fail(request, Failure { what: "removing leftovers".into(), error })
                }
            },
        }
    }

    fn create(&mut self, plan: &Plan) -> Result<OwnedFd, Failure> {
        let info = leftovers::info(&plan.id, &plan.image, rustix::process::getppid());
        let made = leftovers::write_info(&self.run_dir, &info)
            .step("writing the sandbox's record")
            .and_then(|()| {
                let state = self.run_dir.join("state");
                let mut maker = Maker {
                    identity: &self.identity,
                    cgroups: &self.cgroups,
                    shared: &mut self.shared,
                    filter: &self.filter,
                    state: &state,
                    spawner: &self.own,
                };
                maker.make(plan)
            });
        self.prepared.remove(&plan.id);
        match made {
            Ok((running, socket)) => {
                self.running.insert(plan.id.clone(), running);
                Ok(socket)
            }
            Err(failure) => {
                let tree = self.set_aside(&plan.id);
                self.remove_files(&tree);
                Err(failure)
            }
        }
    }

    fn prepare_uppers(&mut self, id: &str, overlays: usize) -> Result<Vec<OwnedFd>, Failure> {
        self.prepared.insert(id.to_owned());
        let made = make_uppers(&self.run_dir.join("state"), id, overlays).and_then(|()| {
            // Through the shifted mount, so that owners mean the same as inside.
            let open = |i| crate::mounts::detached(Path::new(&format!("state/{id}/u{i}")));
            (0..overlays).map(open).collect::<io::Result<Vec<_>>>()
        });
        if made.is_err() {
            let tree = self.set_aside(id);
            self.remove_files(&tree);
        }
        made.step("making the sandbox's directory")
    }

    fn destroy(&mut self, request: u32, id: String) {
        match self.running.get(&id).and_then(|running| Pid::from_raw(running.pid)) {
            Some(pid) => {
                // The answer follows its death.
                let _ = kill_process(pid, Signal::KILL);
                self.dying.entry(id).or_default().push(request);
            }
            None => {
                if self.prepared.remove(&id) {
                    let tree = self.set_aside(&id);
                    self.remove_files(&tree);
                }
                self.answer(&Answer::Destroyed { request }, &[]);
            }
        }
    }

    /// Buries every child that ended: sandboxes, whose traces go with them, and removers.
    fn reap(&mut self) {
        let mut buffer = [0u8; 128];
        while matches!(rustix::io::read(&self.deaths, &mut buffer), Ok(n) if n > 0) {}
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            let id = self.running.iter().find(|(_, r)| r.pid == pid).map(|(id, _)| id.clone());
            match id {
                Some(id) => self.bury(&id),
                None => self.removers = self.removers.saturating_sub(1),
            }
        }
    }

    fn bury(&mut self, id: &str) {
        if let Some(mut running) = self.running.remove(id)
            && !running.group.remove()
        {
            self.busy.push((running.group, 0));
        }
        let tree = self.set_aside(id);
        // Nothing of it runs, is counted or can be found any more.
        for request in self.dying.remove(id).unwrap_or_default() {
            self.answer(&Answer::Destroyed { request }, &[]);
        }
        self.remove_files(&tree);
    }

    /// Removes groups the kernel has let go of meanwhile; one it never lets go of is left to `prune`.
    fn retry_groups(&mut self) {
        self.busy.retain_mut(|(group, tries)| {
            *tries += 1;
            !group.remove() && *tries < MOST_TRIES
        });
    }

    /// Takes a sandbox's files and record out of sight; answers where the files are now.
    fn set_aside(&self, id: &str) -> PathBuf {
        leftovers::remove_info(&self.run_dir, id);
        let (from, to) = (self.run_dir.join("state").join(id), self.run_dir.join("trash").join(id));
        match fs::rename(&from, &to) {
            Ok(()) => to,
            // Kept in memory, they cannot move to the disk.
            Err(_) => from,
        }
    }

    fn remove_files(&mut self, tree: &Path) {
        if !remove_tree(tree, &Effort::AtMost(REMOVED_INLINE)).is_ok_and(|gone| gone) {
            match sys::fork() {
                Ok(Fork::Child) => {
                    let gone = remove_tree(tree, &Effort::Whatever).is_ok_and(|gone| gone);
                    sys::exit_now(i32::from(!gone))
                }
                Ok(Fork::Parent(_)) => self.removers += 1,
                Err(_) => drop(remove_tree(tree, &Effort::Whatever)),
            }
        }
    }

    fn answer(&self, answer: &Answer, fds: &[OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        // A caller that is gone is noticed in the next turn.
        let _ = wire::send(self.caller.as_fd(), answer, &fds);
    }

    fn fail(&self, request: u32, failure: Failure) {
        self.answer(&Answer::Failed { request, trouble: failure.into() }, &[]);
    }

    /// Ends every sandbox and removes every trace of this spawner.
    fn end(&mut self) {
        for running in self.running.values() {
            if let Some(pid) = Pid::from_raw(running.pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        while !self.running.is_empty() || self.removers > 0 || !self.busy.is_empty() {
            let wait = Timespec { tv_sec: 0, tv_nsec: RETRY.as_nanos() as i64 };
            let _ = poll(&mut [PollFd::new(&self.deaths, PollFlags::IN)], Some(&wait));
            self.retry_groups();
            self.reap();
        }
        remove_traces(&self.run_dir);
    }
}

/// Removes a spawner's own directory, from below its mounts.
fn remove_traces(run_dir: &Path) {
    let _ = std::env::set_current_dir("/");
    for dir in ["scratch", "state"] {
        let _ = rustix::mount::unmount(run_dir.join(dir), rustix::mount::UnmountFlags::DETACH);
    }
    let _ = remove_tree(run_dir, &Effort::Whatever);
}

/// Asks ext4 to put each sandbox's directory into a block group of its own.
///
/// Making and removing thousands of files in one group slows every further one down many times over.
/// Other file systems do not know the flag, and do not need it.
fn spread_out(state: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    if let Ok(dir) = fs::File::open(state)
        && let Ok(flags) = ioctl_getflags(&dir)
    {
        let _ = ioctl_setflags(&dir, flags | IFlags::TOPDIR);
    }
}

type Prepared = (Identity, Shared, Storage, Vec<SandboxInfo>);

/// Removes what died beside this spawner.
fn prune(run_dir: &Path) -> io::Result<Vec<SandboxInfo>> {
    run_dir.parent().map_or_else(|| Ok(Vec::new()), leftovers::prune)
}

/// Where an overlay's upper layer in this directory would live. Some file systems cannot hold one.
fn storage_of(dir: &Path) -> Storage {
    const UNSUITABLE: [i64; 5] = [
        0x794c_7630, // overlayfs
        0x6969,      // NFS
        0x0bd0_0bd0, // Lustre
        0x6573_5546, // FUSE
        0xff53_4d42, // SMB
    ];
    match rustix::fs::statfs(dir) {
        Ok(stat) if UNSUITABLE.contains(&stat.f_type) => Storage::Memory,
        _ => Storage::Disk,
    }
}
