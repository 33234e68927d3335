//! A home in which each phase can be reached, and the search for what a killed program left.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};
use testkit::MockServer;

use super::super::{control_groups, mounts_of};
use crate::{
    benchmarks::{bench, sums, sums_script},
    support::{Home, code, err, write},
};

/// What the program does when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Create,
    Exec,
    CopyIn,
    CopyOut,
    Strict,
    Freeze,
    Pool,
    Import,
    NamedCreate,
    NamedExec,
    Fork,
    Save,
    Remove,
}

pub(super) const PHASES: [(Phase, &str); 13] = [
    (Phase::Create, "create, destroy"),
    (Phase::Exec, "exec"),
    (Phase::CopyIn, "copy-in"),
    (Phase::CopyOut, "copy-out"),
    (Phase::Strict, "strict quota"),
    (Phase::Freeze, "freeze"),
    (Phase::Pool, "pool"),
    (Phase::Import, "image import"),
    (Phase::NamedCreate, "named: create"),
    (Phase::NamedExec, "named: exec"),
    (Phase::Fork, "named: fork"),
    (Phase::Save, "named: save"),
    (Phase::Remove, "named: remove"),
];

/// What a killed supervisor leaves for the next command, which prints the names of lost sandboxes and removes them.
const OF_THE_SUPERVISOR: [&str; 3] = ["socket", "sandboxes.json", "sandboxes.json.next"];

impl Phase {
    /// Whether it concerns named sandboxes.
    pub(super) fn is_named(self) -> bool {
        self >= Self::NamedCreate
    }
}

pub(super) struct Ground {
    home: Home,
    server: MockServer,
    /// How long each phase takes undisturbed; those that do not work here are missing.
    durations: BTreeMap<Phase, Duration>,
    /// The files of the state directory while there is no sandbox.
    files: BTreeSet<PathBuf>,
}

impl Ground {
    /// Goes through each phase once.
    pub(super) fn prepare() -> Option<Self> {
        let home = Home::with_sandboxes()?;
        // Processes whose parent was killed become children of this one, so that none is missed.
        set_child_subreaper(Some(getpid())).unwrap();
        for n in 0..300 {
            write(&home.file(&format!("tree/usr/{}/{n}", n % 7)), vec![b'x'; 20_000]);
        }
        for dir in ["bin", "etc", "tmp"] {
            fs::create_dir_all(home.file("tree").join(dir)).unwrap();
        }
        sums(&home, 8);
        let server = sums_script(8).serve();
        let (durations, files) = (BTreeMap::new(), BTreeSet::new());
        let mut ground = Self { home, server, durations, files };
        for (phase, name) in PHASES {
            ground.set_up(phase);
            let began = Instant::now();
            let output = ground.command(phase).output().unwrap();
            let took = began.elapsed();
            if output.status.success() {
                ground.durations.insert(phase, took);
            } else {
                assert_eq!(phase, Phase::Strict, "{name}: {}", err(&output));
                println!("skip: {name}: {}", err(&output).trim());
            }
            ground.end_supervisor(name, 0);
            ground.wait_for_processes(name, Duration::from_secs(30));
        }
        ground.prune("preparing");
        ground.files = ground.state_files();
        Some(ground)
    }

    /// The phases that work here, their names, and how long they take undisturbed.
    pub(super) fn phases(&self) -> Vec<(Phase, &'static str, Duration)> {
        let known = PHASES.iter().map(|(phase, name)| (*phase, *name, self.durations.get(phase)));
        known.filter_map(|(phase, name, took)| Some((phase, name, *took?))).collect()
    }

    /// Creates what the phase needs.
    pub(super) fn set_up(&self, phase: Phase) {
        for used in ["to", "out"] {
            let _ = fs::remove_dir_all(self.home.file(used));
        }
        if phase.is_named() && phase != Phase::NamedCreate {
            self.home.ok(["sandbox", "create", "box"]);
            let script = "for i in {1..200}; do head -c 20000 /dev/zero > /testbed/$i; done";
            self.home.ok(["sandbox", "exec", "box", "--", "bash", "-c", script]);
        }
    }

    /// The program that goes through the phase.
    pub(super) fn command(&self, phase: Phase) -> Command {
        let tree = self.home.file("tree").into_os_string().into_string().unwrap();
        let run = |args: &[&str]| self.home.command([&["sandbox", "run"], args].concat());
        let named = |args: &[&str]| self.home.command([&["sandbox"], args].concat());
        let shell = |script: &'static str| ["--", "bash", "-c", script];
        let mut command = match phase {
            Phase::Create => run(&["--", "true"]),
            Phase::Exec => run(&shell("echo x > f; setsid sleep 0.2 & sleep 0.2")),
            Phase::CopyIn => run(&["--copy-in", &format!("{tree}:/in"), "--", "true"]),
            Phase::CopyOut => {
                fs::create_dir_all(self.home.file("to")).unwrap();
                let mut command = run(&["--copy-out", "/out:to/all"]);
                command.args(shell(
                    "mkdir /out; for i in {1..300}; do head -c 20000 /dev/zero > /out/$i; done",
                ));
                command
            }
            Phase::Strict => {
                let mut command = run(&["--disk-quota", "strict", "--disk", "64M"]);
                command.args(shell("head -c 9000000 /dev/zero > f; sleep 0.05"));
                command
            }
            Phase::Freeze | Phase::Pool => self.benchmark(phase),
            Phase::Import => self.home.command(["image", "import", "--force", &tree, "imported"]),
            Phase::NamedCreate => named(&["create", "box"]),
            Phase::NamedExec => named(&["exec", "box", "--", "sleep", "0.2"]),
            Phase::Fork => named(&["fork", "box", "other"]),
            Phase::Save => named(&["save", "box", "saved"]),
            Phase::Remove => named(&["rm", "box"]),
        };
        // What it does not write there belongs to the state directory.
        let tmp = self.home.file("tmp");
        fs::create_dir_all(&tmp).unwrap();
        command.env("TMPDIR", tmp);
        command
    }

    fn benchmark(&self, phase: Phase) -> Command {
        let data = self.home.file("sums.jsonl");
        let mut command = bench(&self.home, &self.server.base_url(), ["math", "--quiet"]);
        command.arg("--data").arg(data).args(["--mode", "sandbox"]);
        if phase == Phase::Freeze {
            command.args(["--without", "files"]);
        }
        command
    }

    /// The supervisor of this home.
    pub(super) fn supervisor(&self) -> Option<Pid> {
        let state = self.home.state().into_os_string().into_encoded_bytes();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let found = pids.find(|pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut args = line.split(|byte| *byte == 0);
            args.any(|arg| arg == b"__supervisor") && args.any(|arg| arg == state)
        });
        found.and_then(Pid::from_raw)
    }

    /// Kills the supervisor, which outlives the program as it should. Returns the processes that may have had sandboxes.
    pub(super) fn end_supervisor(&self, what: &str, program: u32) -> Vec<String> {
        let mut callers = vec![format!("lis-{program}-")];
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Some(supervisor) = self.supervisor() {
            callers.push(format!("lis-{}-", supervisor.as_raw_nonzero()));
            let _ = kill_process(supervisor, Signal::KILL);
            self.reap();
            assert!(Instant::now() < deadline, "{what}: a supervisor cannot be killed");
            std::thread::sleep(Duration::from_millis(2));
        }
        callers
    }

    pub(super) fn prune(&self, what: &str) {
        for image in ["imported", "saved"] {
            let _ = self.home.run(["image", "rm", image]);
        }
        for command in [["sandbox", "prune"], ["image", "prune"]] {
            let output = self.home.run(command);
            assert_eq!(code(&output), 0, "{what}: {command:?}: {}", err(&output));
        }
    }

    /// Waits until every process that any of the programs started has ended.
    pub(super) fn wait_for_processes(&self, what: &str, longest: Duration) {
        let deadline = Instant::now() + longest;
        loop {
            let left = self.reap();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: processes are left: {left:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until nothing is left.
    pub(super) fn is_clean(&self, what: &str, callers: &[String], longest: Duration) {
        self.wait_for_processes(what, longest);
        let deadline = Instant::now() + longest;
        loop {
            let left = self.left(callers);
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "{what}: left: {left:#?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.home.ok(["sandbox", "list", "--runtime", "native"]);
        for entry in fs::read_dir(self.home.state()).unwrap().flatten() {
            for name in OF_THE_SUPERVISOR {
                assert!(!entry.path().join(name).exists(), "{what}: left: {name}");
            }
        }
    }

    fn left(&self, callers: &[String]) -> Vec<String> {
        let mut left: Vec<String> = mounts_of(&self.home.state());
        left.extend(loop_devices(&self.home.state()));
        let ours = |group: &String| callers.iter().any(|caller| group.contains(caller.as_str()));
        left.extend(control_groups().into_iter().filter(ours));
        left.extend(self.home.traces().iter().map(|path| path.display().to_string()));
        let more = self.state_files().difference(&self.files).cloned().collect::<Vec<_>>();
        left.extend(more.iter().map(|path| path.display().to_string()));
        for entry in fs::read_dir(self.home.file("tmp")).into_iter().flatten().flatten() {
            left.push(entry.path().display().to_string());
        }
        left
    }

    /// The files of the state directory, apart from [`OF_THE_SUPERVISOR`].
    fn state_files(&self) -> BTreeSet<PathBuf> {
        let (mut found, mut open) = (BTreeSet::new(), vec![self.home.state()]);
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let kind = entry.file_type();
                if kind.is_ok_and(|kind| kind.is_dir()) {
                    open.push(entry.path());
                } else if !OF_THE_SUPERVISOR.iter().any(|name| entry.file_name() == *name) {
                    found.insert(entry.path());
                }
            }
        }
        found
    }

    /// Reaps the children of this process that have ended; returns those that have not, and what they run.
    fn reap(&self) -> Vec<String> {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let lists: Vec<String> = lists.collect();
        let pids = lists.iter().flat_map(|list| list.split_whitespace());
        let mut left = Vec::new();
        for pid in pids.filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)) {
            if matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)) {
                let number = pid.as_raw_nonzero();
                let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                left.push(format!("{number}: {line}"));
            }
        }
        left
    }
}

/// Loop devices with a file below this directory.
fn loop_devices(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let files = devices
        .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.filter(|file| file.contains(dir)).collect()
}
