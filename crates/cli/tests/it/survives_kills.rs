//! Killed without warning at any moment, the program leaves no process, mount, cgroup or directory.

mod in_every_phase;

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::support::{Home, Running, unique_sleep, wait_for};

const ROUNDS: u32 = 200;

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What exists on this machine that a sandbox could have left.
pub(crate) fn control_groups() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![Path::new("/sys/fs/cgroup").to_owned()];
    for _ in 0..2 {
        for dir in std::mem::take(&mut left) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if entry.file_name().to_string_lossy().starts_with("lis-") {
                        found.insert(entry.path().display().to_string());
                    }
                    left.push(entry.path());
                }
            }
        }
    }
    found
}

/// Mounts of anything below `dir`; the machine's other mounts come and go as they like.
pub(crate) fn mounts_of(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().unwrap();
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    all.lines().filter(|mount| mount.contains(dir)).map(str::to_owned).collect()
}

/// Processes with this word among their arguments.
pub(crate) fn processes_with(word: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok())
        .filter(|line| line.contains(word))
        .collect()
}

#[test]
fn random_moment_kills_leave_nothing() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    for round in 0..ROUNDS {
        let sleep = unique_sleep();
        let script =
            format!("echo x > /testbed/f; setsid {} & {}", sleep.join(" "), sleep.join(" "));
        let mut command = home.command(["sandbox", "run", "--", "bash", "-c", &script]);
        let started = Instant::now();
        let mut running = Running(command.spawn().unwrap());
        // A whole run up to the command takes some tens of milliseconds: most rounds hit its beginning.
        std::thread::sleep(Duration::from_micros(dice.roll(60_000)));
        let own = format!("lis-{}-", running.0.id());
        running.signal(Signal::KILL);
        running.0.wait().unwrap();
        let what = format!("clean-up after round {round}, killed after {:?}", started.elapsed());
        wait_for(&what, || {
            let groups = control_groups();
            let clean = home.traces().is_empty()
                && !groups.iter().any(|group| group.contains(&own))
                && processes_with(&sleep.join("\0")).is_empty();
            clean.then_some(())
        });
    }
    assert_eq!(mounts_of(&home.state()), Vec::<String>::new());
}

#[test]
fn random_moment_kills_of_the_spawner_are_cleaned_up_by_the_next_start() {
    let Some(home) = Home::with_sandboxes() else { return };
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut callers = Vec::new();
    for _ in 0..20 {
        let sleep = unique_sleep();
        let mut command = home.command(["sandbox", "run", "--"]);
        let mut running = Running(command.args(&sleep).spawn().unwrap());
        let spawner =
            wait_for("the spawner", || crate::leaves_nothing_behind::spawner_of(running.0.id()));
        callers.push(format!("lis-{}-", running.0.id()));
        std::thread::sleep(Duration::from_micros(dice.roll(30_000)));
        rustix::process::kill_process(spawner, Signal::KILL).unwrap();
        wait_for("the sandbox's end", || {
            processes_with(&sleep.join("\0")).is_empty().then_some(())
        });
        assert_eq!(running.end(), 4);
    }
    assert_eq!(home.command(["sandbox", "prune"]).output().unwrap().status.code(), Some(0));
    wait_for("nothing", || home.traces().is_empty().then_some(()));
    let left = control_groups();
    let ours = |group: &&String| callers.iter().any(|caller| group.contains(caller));
    assert_eq!(left.iter().find(ours), None);
}
