//! The spawner's loop: serves requests, reaps children and cleans up after them.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{self, Stdin},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{WaitOptions, wait},
};
use sandbox::SandboxInfo;

use super::{
    CrashHandler, HostSupport, Identity, SpawnerReply, SpawnerRequest, Storage, counted,
    create::{Creator, Running},
    project,
    remove::{Effort, remove_tree},
    volume::{self, Volume},
};
use crate::{
    cgroup::{Cgroups, Group, Groups},
    diagnostics, harden, leftovers,
    mounts::{Failure, Shared, Step},
    plan::Plan,
    reserve, storage,
    sys::{self, Fork, SingleThreaded},
    wire,
};

/// Once the caller is gone, up to this many files of a sandbox are removed directly; for more a process is started.
const REMOVED_INLINE: usize = 200;
/// Files of destroyed sandboxes are removed by a process of their own, so that a slow disk does not delay requests. It starts
/// once so many trees are waiting, or after so long.
const MAX_WAITING: usize = 16;
const MAX_WAIT: Duration = Duration::from_millis(10);
/// The number of such processes.
const MAX_REMOVERS: usize = 4;
/// How long to wait before trying again to remove a control group that is still busy.
const RETRY: Duration = Duration::from_millis(2);
const MAX_TRIES: u32 = 2000;
/// How often sandboxes that are being destroyed are thawed.
const THAW: Duration = Duration::from_millis(50);
/// How long a new sandbox waits for the space of those that are being removed.
const SPACE_WAIT: Duration = Duration::from_secs(5);
/// How often the space is looked at meanwhile.
const SPACE_CHECK: Duration = Duration::from_millis(20);

pub(crate) struct Spawner {
    caller: Stdin,
    /// A pidfd of the caller, where it can be seen from here. Its end counts even while the socket stays open, as in a
    /// process that the caller forked and that holds a copy of it.
    caller_process: Option<OwnedFd>,
    child_exits: OwnedFd,
    /// A pidfd of this process, for sandboxes to check that it still runs.
    own: OwnedFd,
    run_dir: PathBuf,
    /// Locked for as long as this process lives; see `leftovers`.
    _lock: leftovers::Claim,
    single: SingleThreaded,
    identity: Identity,
    groups: Groups,
    shared: Shared,
    filter: Vec<libc::sock_filter>,
    file_max: u64,
    running: HashMap<String, Running>,
    prepared: HashSet<String>,
    /// Sandboxes being destroyed, with the requests to answer once they are gone.
    dying: HashMap<String, Vec<u32>>,
    /// When those were last thawed.
    thawed: Instant,
    /// Control groups the kernel still reports as busy, with the number of tries.
    busy: Vec<(Group, u32)>,
    removers: usize,
    /// Trees to be removed, and since when there have been any.
    trash: Vec<PathBuf>,
    trash_since: Instant,
    /// Leftovers that were removed but not reported yet.
    removed: Vec<SandboxInfo>,
    /// Sandboxes to be created once others, which are being removed, leave enough space, and until when to wait for it.
    delayed: Vec<(SpawnerRequest, Instant)>,
}

/// What a spawner has prepared before it knows what its caller wants.
pub(crate) struct Prepared {
    caller_process: Option<OwnedFd>,
    child_exits: OwnedFd,
    own: OwnedFd,
    single: SingleThreaded,
    identity: Identity,
    cgroups: Cgroups,
    filter: Vec<libc::sock_filter>,
    crash_handler: CrashHandler,
}

impl Prepared {
    /// Makes this process a spawner, with its signals, its rights and its limits.
    pub(crate) fn new(single: SingleThreaded) -> Result<Self, Failure> {
        // Signals of the caller's terminal, such as Ctrl-C, are for the caller alone.
        let _ = rustix::process::setsid();
        // The root of a sandbox must be readable for all its users, whatever the caller's mask.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let crash_handler = crash_handler();
        let caller_process = caller_process();
        let child_exits = sys::child_signals().step("watching children")?;
        let me = rustix::process::getpid();
        let own = rustix::process::pidfd_open(me, rustix::process::PidfdFlags::empty());
        let own = own.step("opening a pidfd of the spawner")?;
        let cgroups = Cgroups::detect();
        let filter = harden::filter().step("building the system call filter")?;
        let identity = Identity::assume(single)?;
        Ok(Self {
            caller_process,
            child_exits,
            own,
            single,
            identity,
            cgroups,
            filter,
            crash_handler,
        })
    }
}

impl Spawner {
    /// Creates what all sandboxes share, and reports to the caller.
    pub(crate) fn begin(
        prepared: Prepared,
        run_dir: PathBuf,
        host_image: PathBuf,
    ) -> Result<Self, Failure> {
        let Prepared {
            caller_process, child_exits, own, single, identity, cgroups, filter, ..
        } = prepared;
        let lock = leftovers::claim(&run_dir)
            .step(format!("creating the state directory {}", run_dir.display()))?;
        let (shared, storage, removed) = Self::prepare(&run_dir, host_image, &cgroups, &identity)
            .inspect_err(|_| remove_traces(&run_dir))?;
        let run = run_dir.file_name().unwrap_or_default().to_string_lossy();
        let groups = Groups::create(cgroups, &run, identity.shifted_root())
            .step("creating the control groups of all sandboxes")
            .inspect_err(|_| remove_traces(&run_dir))?;
        let cgroups = groups.hierarchies();
        let support = HostSupport {
            users: identity.users(),
            cgroups: cgroups.version(),
            controllers: ["memory", "pids", "cpu"]
                .iter()
                .filter(|name| cgroups.has(name))
                .map(ToString::to_string)
                .collect(),
            storage,
            can_freeze: cgroups.can_freeze(),
            limits_sockets: cgroups.limits_sockets(),
            crash_handler: prepared.crash_handler,
            no_strict_quota: volume::missing(identity.is_root(), storage),
            no_project_quota: project::missing(identity.is_root(), storage, &run_dir.join("state")),
        };
        let caller = io::stdin();
        // A caller that is already gone is noticed by the loop.
        let _ = wire::send(caller.as_fd(), &SpawnerReply::Started(support), &[]);
        Ok(Self {
            caller,
            caller_process,
            child_exits,
            own,
            run_dir,
            _lock: lock,
            single,
            identity,
            groups,
            shared,
            filter,
            file_max: file_max(),
            running: HashMap::new(),
            prepared: HashSet::new(),
            dying: HashMap::new(),
            thawed: Instant::now(),
            busy: Vec::new(),
            removers: 0,
            trash: Vec::new(),
            trash_since: Instant::now(),
            removed,
            delayed: Vec::new(),
        })
    }

    fn prepare(
        run_dir: &Path,
        host_image: PathBuf,
        cgroups: &Cgroups,
        identity: &Identity,
    ) -> Result<(Shared, Storage, Vec<SandboxInfo>), Failure> {
        let scratch = run_dir.join("scratch");
        let state = run_dir.join("state");
        for dir in [&scratch, &state] {
            fs::create_dir(dir).step(format!("creating {}", dir.display()))?;
        }
        spread_out(&state);
        let removed = prune(run_dir, cgroups).unwrap_or_default();
        let storage = storage_of(&state);
        if storage == Storage::Memory {
            use rustix::mount::{MountFlags, mount};
            // A new sandbox opens its directory in it before it has any user but its creator's, who must be able to pass.
            // The directory above keeps other users out.
            mount("tmpfs", &state, "tmpfs", MountFlags::NOSUID, Some(c"mode=0755"))
                .step("mounting a tmpfs for what sandboxes write")?;
        }
        // A file system that cannot hold an upper layer is slow, or on another machine.
        let kept = (storage == Storage::Disk).then_some(host_image);
        let shared = Shared::prepare(&scratch, &state, kept, &identity.owners())?;
        Ok((shared, storage, removed))
    }

    /// Serves until the caller is gone, then removes everything.
    pub(crate) fn serve(&mut self) {
        loop {
            match self.poll_once() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    diagnostics::report(&format!("the spawner stops serving: {error}"));
                    break;
                }
            }
        }
        self.end();
    }

    /// Waits for an event and handles it. Returns whether the caller is still there.
    fn poll_once(&mut self) -> io::Result<bool> {
        let retry = (!self.busy.is_empty()).then_some(RETRY);
        let check = (!self.delayed.is_empty()).then_some(SPACE_CHECK);
        let thaw = (!self.dying.is_empty()).then_some(THAW);
        let wait = retry.into_iter().chain(check).chain(thaw).chain(self.removal_due_in()).min();
        let timeout = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        let (order, death, orphaned) = {
            // Standard input twice, where there is no pidfd: the last entry is then ignored.
            let process = self.caller_process.as_ref().map_or(self.caller.as_fd(), AsFd::as_fd);
            let mut fds = [
                PollFd::new(&self.caller, PollFlags::IN),
                PollFd::new(&self.child_exits, PollFlags::IN),
                PollFd::from_borrowed_fd(process, PollFlags::IN),
            ];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let orphaned = self.caller_process.is_some() && !fds[2].revents().is_empty();
            (!fds[0].revents().is_empty(), !fds[1].revents().is_empty(), orphaned)
        };
        if orphaned {
            return Ok(false);
        }
        self.retry_groups();
        if death {
            self.reap();
        }
        self.thaw_dying();
        if order {
            match wire::receive::<SpawnerRequest>(self.caller.as_fd())? {
                Some((order, _)) => self.handle_or_delay(order),
                None => return Ok(false),
            }
        }
        self.handle_delayed();
        if self.removal_due_in().is_some_and(|due| due.is_zero()) {
            self.start_remover();
        }
        Ok(true)
    }

    /// When to start removing files, if any are waiting for it.
    fn removal_due_in(&self) -> Option<Duration> {
        if self.trash.is_empty() || self.removers >= MAX_REMOVERS {
            return None;
        }
        let full = self.trash.len() >= MAX_WAITING;
        let left = MAX_WAIT.saturating_sub(self.trash_since.elapsed());
        Some(if full { Duration::ZERO } else { left })
    }

    /// Removes files that are waiting for it, in a process of their own: all, or the share of one where there are many.
    fn start_remover(&mut self) {
        let free = MAX_REMOVERS.saturating_sub(self.removers).max(1);
        let share = self.trash.len().div_ceil(free).max(MAX_WAITING).min(self.trash.len());
        let trees: Vec<_> = self.trash.drain(..share).collect();
        let remove = || trees.iter().for_each(|tree| drop(remove_tree(tree, &Effort::Unlimited)));
        match sys::fork(self.single) {
            Ok(Fork::Child) => {
                let_go_of_caller();
                remove();
                sys::exit_now(0)
            }
            Ok(Fork::Parent(_)) => self.removers += 1,
            Err(_) => remove(),
        }
    }

    /// Has the files of a sandbox removed soon.
    fn remove_later(&mut self, tree: PathBuf) {
        if self.trash.is_empty() {
            self.trash_since = Instant::now();
        }
        self.trash.push(tree);
    }

    /// Handles a request; later, if it needs space that files take which are being removed.
    fn handle_or_delay(&mut self, order: SpawnerRequest) {
        match self.waits_for_space(&order) {
            true => self.delayed.push((order, Instant::now() + SPACE_WAIT)),
            false => self.handle(order),
        }
    }

    fn waits_for_space(&self, order: &SpawnerRequest) -> bool {
        let (SpawnerRequest::Create { plan, .. } | SpawnerRequest::Prepare { plan, .. }) = order
        else {
            return false;
        };
        let removing = self.removers > 0 || !self.trash.is_empty() || !self.dying.is_empty();
        removing && self.check_reserve(plan).is_err()
    }

    /// Handles delayed requests for which there is space now, or that have waited for too long.
    fn handle_delayed(&mut self) {
        for (order, until) in std::mem::take(&mut self.delayed) {
            match Instant::now() < until && self.waits_for_space(&order) {
                true => self.delayed.push((order, until)),
                false => self.handle(order),
            }
        }
    }

    fn handle(&mut self, order: SpawnerRequest) {
        match order {
            SpawnerRequest::Start { .. } => {}
            SpawnerRequest::Create { request, plan } => match self.create(&plan) {
                Ok(socket) => self.answer(&SpawnerReply::Created { request }, &[socket]),
                Err(failure) => self.fail(request, failure),
            },
            SpawnerRequest::Prepare { request, plan } => match self.prepare_uppers(&plan) {
                Ok(dirs) => self.answer(&SpawnerReply::Prepared { request }, &dirs),
                Err(failure) => self.fail(request, failure),
            },
            SpawnerRequest::Destroy { request, id } => self.destroy(request, id),
            SpawnerRequest::Prune { request } => {
                match prune(&self.run_dir, self.groups.hierarchies()) {
                    Ok(more) => {
                        let mut removed = std::mem::take(&mut self.removed);
                        removed.extend(more);
                        self.answer(&SpawnerReply::Pruned { request, removed }, &[]);
                    }
                    Err(error) => {
                        self.fail(request, Failure { what: "removing leftovers".into(), error })
                    }
                }
            }
        }
    }

    fn create(&mut self, plan: &Plan) -> Result<OwnedFd, Failure> {
        let info = leftovers::info(&plan.id, &plan.image, rustix::process::getppid());
        let made = self
            .check_reserve(plan)
            .and_then(|()| {
                leftovers::write_info(&self.run_dir, &info).step("writing the sandbox's record")
            })
            .and_then(|()| {
                let state = self.run_dir.join("state");
                let mut creator = Creator {
                    single: self.single,
                    identity: &self.identity,
                    groups: &self.groups,
                    shared: &mut self.shared,
                    filter: &self.filter,
                    file_max: self.file_max,
                    state: &state,
                    spawner: &self.own,
                };
                creator.create(plan)
            });
        self.prepared.remove(&plan.id);
        match made {
            Ok((running, socket)) => {
                self.running.insert(plan.id.clone(), running);
                Ok(socket)
            }
            Err(failure) => {
                self.move_to_trash(&plan.id);
                Err(failure)
            }
        }
    }

    /// Fails where the file system that would hold the sandbox's files has less space left than has to stay free.
    fn check_reserve(&self, plan: &Plan) -> Result<(), Failure> {
        if let Some(Volume::Memory(_)) = Volume::of(plan) {
            return Ok(());
        }
        let state = self.run_dir.join("state");
        let state = fs::File::open(state).step("opening the state directory")?;
        match reserve::shortage(state, plan.disk_reserve) {
            None => Ok(()),
            Some(shortage) => {
                let error = io::Error::new(io::ErrorKind::StorageFull, shortage.to_string());
                Err(error).step("creating a sandbox")
            }
        }
    }

    fn prepare_uppers(&mut self, plan: &Plan) -> Result<Vec<OwnedFd>, Failure> {
        self.prepared.insert(plan.id.clone());
        let (state, root) = (self.run_dir.join("state"), self.identity.shifted_root());
        let made = self.check_reserve(plan);
        let owner = self.shared.uppers_owner;
        let made =
            made.and_then(|()| volume::make_uppers(&state, plan, root, owner)).and_then(|()| {
                // Through the id-mapped mount, so that owners are those seen inside.
                let dir = volume::uppers(plan);
                let open = |i| crate::mounts::detached(&dir.join(format!("u{i}")));
                let opened = (0..plan.overlays.len()).map(open).collect::<io::Result<Vec<_>>>();
                opened.step("opening the sandbox's directory")
            });
        if made.is_err() {
            self.move_to_trash(&plan.id);
        }
        made
    }

    fn destroy(&mut self, request: u32, id: String) {
        self.delayed.retain(|(order, _)| match order {
            SpawnerRequest::Create { plan, .. } | SpawnerRequest::Prepare { plan, .. } => {
                plan.id != id
            }
            _ => true,
        });
        match self.running.get(&id) {
            Some(running) => {
                // The reply is sent when it is reaped.
                running.kill();
                self.dying.entry(id).or_default().push(request);
            }
            None => {
                if self.prepared.remove(&id) {
                    self.move_to_trash(&id);
                }
                self.answer(&SpawnerReply::Destroyed { request }, &[]);
            }
        }
    }

    /// Reaps every child that has ended: PID 1 of a sandbox, which is cleaned up, or a remover.
    fn reap(&mut self) {
        let mut buffer = [0u8; 128];
        while matches!(rustix::io::read(&self.child_exits, &mut buffer), Ok(n) if n > 0) {}
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            let id = self.running.iter().find(|(_, r)| r.pid == pid).map(|(id, _)| id.clone());
            match id {
                Some(id) => self.clean_up(&id),
                None => self.removers = self.removers.saturating_sub(1),
            }
        }
    }

    fn clean_up(&mut self, id: &str) {
        if let Some(mut running) = self.running.remove(id)
            && !running.group.remove()
        {
            self.busy.push((running.group, 0));
        }
        self.move_to_trash(id);
        // Its processes are gone and it is no longer listed; only its files remain.
        for request in self.dying.remove(id).unwrap_or_default() {
            self.answer(&SpawnerReply::Destroyed { request }, &[]);
        }
    }

    /// Lets processes end that PID 1 had frozen when it was killed. Again and again: it may have been about to freeze them.
    fn thaw_dying(&mut self) {
        if self.dying.is_empty() || self.thawed.elapsed() < THAW {
            return;
        }
        self.thawed = Instant::now();
        for id in self.dying.keys() {
            if let Some(running) = self.running.get(id) {
                running.group.thaw();
            }
        }
    }

    /// Tries again to remove busy control groups; one that stays busy is left to `prune`.
    fn retry_groups(&mut self) {
        self.busy.retain_mut(|(group, tries)| {
            *tries += 1;
            !group.remove() && *tries < MAX_TRIES
        });
    }

    /// Removes a sandbox's record and moves its files out of sight, to be removed.
    fn move_to_trash(&mut self, id: &str) {
        leftovers::remove_info(&self.run_dir, id);
        volume::release(id);
        let from = self.run_dir.join("state").join(id);
        let to = self.run_dir.join(format!("trash-{id}"));
        project::release(&from);
        // Files in memory cannot be renamed to the disk.
        let tree = if fs::rename(&from, &to).is_ok() { to } else { from };
        self.remove_later(tree);
    }

    /// Removes the files of a sandbox; many of them in a process of their own.
    fn remove_files(&mut self, tree: &Path) {
        if !remove_tree(tree, &Effort::AtMost(REMOVED_INLINE)).is_ok_and(|gone| gone) {
            self.trash.push(tree.to_owned());
            self.start_remover();
        }
    }

    fn answer(&self, answer: &SpawnerReply, fds: &[OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        // A caller that is gone is noticed by the loop.
        let _ = wire::send(self.caller.as_fd(), answer, &fds);
    }

    fn fail(&self, request: u32, failure: Failure) {
        self.answer(&SpawnerReply::Failed { request, failure: failure.into() }, &[]);
    }

    /// Kills every sandbox and removes everything of this spawner.
    fn end(&mut self) {
        self.running.values().for_each(Running::kill);
        loop {
            while self.trash.len() > MAX_WAITING && self.removers < MAX_REMOVERS {
                self.start_remover();
            }
            for tree in std::mem::take(&mut self.trash) {
                self.remove_files(&tree);
            }
            if self.running.is_empty() && self.removers == 0 && self.busy.is_empty() {
                break;
            }
            let wait = Timespec { tv_sec: 0, tv_nsec: RETRY.as_nanos() as i64 };
            let _ = poll(&mut [PollFd::new(&self.child_exits, PollFlags::IN)], Some(&wait));
            if self.thawed.elapsed() >= THAW {
                self.thawed = Instant::now();
                self.running.values().for_each(|running| running.group.thaw());
            }
            self.retry_groups();
            self.reap();
        }
        for _ in 0..MAX_TRIES {
            if self.groups.remove() {
                break;
            }
            std::thread::sleep(RETRY);
        }
        remove_traces(&self.run_dir);
    }
}

/// A pidfd of the caller, unless it is in another PID namespace.
fn caller_process() -> Option<OwnedFd> {
    let parent = rustix::process::getppid()?;
    let process = rustix::process::pidfd_open(parent, rustix::process::PidfdFlags::empty()).ok()?;
    // If the caller has ended meanwhile, its number may be another's; its socket tells.
    (rustix::process::getppid() == Some(parent)).then_some(process)
}

/// Keeps crashes inside from starting the host's program for core dumps, where there is one.
fn crash_handler() -> CrashHandler {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    match counted::forbid_core_dumps() || !pattern.starts_with('|') {
        true => CrashHandler::NotStarted,
        false => CrashHandler::Started,
    }
}

/// The number of files that all processes of the machine can have open.
fn file_max() -> u64 {
    let text = fs::read_to_string("/proc/sys/fs/file-max").unwrap_or_default();
    text.trim().parse().unwrap_or(u64::MAX)
}

/// In a child that is not a sandbox: closes the caller's socket and pipe, which have to close with the spawner.
fn let_go_of_caller() {
    if let Ok(null) = fs::File::open("/dev/null") {
        for number in 0..3 {
            let _ = sys::become_stdio(null.as_fd(), number);
        }
    }
}

/// Removes the spawner's own directory, after detaching its mounts.
fn remove_traces(run_dir: &Path) {
    let _ = std::env::set_current_dir("/");
    for dir in ["scratch", "state"] {
        let _ = rustix::mount::unmount(run_dir.join(dir), rustix::mount::UnmountFlags::DETACH);
    }
    let _ = remove_tree(run_dir, &Effort::Unlimited);
}

/// Asks ext4 to place each sandbox's directory in its own block group.
///
/// Creating and removing thousands of files in one group makes further ones many times slower. Other file systems
/// neither know nor need the flag.
fn spread_out(state: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    if let Ok(dir) = fs::File::open(state)
        && let Ok(flags) = ioctl_getflags(&dir)
    {
        let _ = ioctl_setflags(&dir, flags | IFlags::TOPDIR);
    }
}

/// Removes the leftovers of dead spawners with the same home.
fn prune(run_dir: &Path, cgroups: &Cgroups) -> io::Result<Vec<SandboxInfo>> {
    run_dir.parent().map_or_else(|| Ok(Vec::new()), |runs| leftovers::prune(runs, cgroups))
}

/// Where to store the files of sandboxes: some file systems cannot hold the upper layer of an overlay.
fn storage_of(dir: &Path) -> Storage {
    if storage::holds_files(dir) { Storage::Disk } else { Storage::Memory }
}
