//! Named sandboxes: they last from command to command, and end when they should.

mod copies;
mod ends;
mod lives;
mod refuses;
mod streams;

use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    process::Output,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Home, wait_for};

/// A home whose named sandboxes are removed with it.
struct Kept(Home);

impl Deref for Kept {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.run(["sandbox", "rm", "--all"]);
        // It would stay a while for the next sandbox, and its spawner would miss the directory that goes with the test.
        let terminate = |pid: i32| kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM);
        for pid in self.supervisors() {
            let _ = terminate(pid);
        }
        let is_clean = || self.supervisors().is_empty() && self.traces().is_empty();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_clean() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(std::thread::panicking() || is_clean(), "the supervisor did not end");
    }
}

impl Kept {
    fn new() -> Option<Self> {
        Home::with_sandboxes().map(Self)
    }

    /// One with a sandbox called `box`.
    fn with_box() -> Option<Self> {
        let kept = Self::new()?;
        assert_eq!(kept.ok(["sandbox", "create", "box"]), "box\n");
        Some(kept)
    }

    /// Runs a script in `box`.
    fn exec(&self, script: &str) -> Output {
        self.run(["sandbox", "exec", "box", "--", "sh", "-c", script])
    }

    /// Runs a script in `box`, which must succeed; its output.
    fn exec_ok(&self, script: &str) -> String {
        self.ok(["sandbox", "exec", "box", "--", "sh", "-c", script])
    }

    /// The named sandboxes.
    fn list(&self) -> Vec<Value> {
        let all = self.json(["sandbox", "list", "--runtime", "native", "--json"]);
        let named = |found: &&Value| !found["name"].is_null();
        all.as_array().unwrap().iter().filter(named).cloned().collect()
    }

    fn names(&self) -> Vec<String> {
        let names = self.list().into_iter().map(|found| found["name"].as_str().unwrap().to_owned());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// The supervisor's process.
    fn owner(&self) -> u32 {
        self.list()[0]["owner_pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// Every supervisor of this home.
    fn supervisors(&self) -> Vec<i32> {
        let state = self.state().into_os_string().into_encoded_bytes();
        let is_ours = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut args = line.split(|byte| *byte == 0);
            args.any(|arg| arg == b"__supervisor") && args.any(|arg| arg == state)
        };
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(is_ours).collect()
    }

    /// The supervisor's directory.
    fn directory(&self) -> PathBuf {
        let entries = fs::read_dir(self.state()).unwrap().flatten().map(|entry| entry.path());
        let ours =
            |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("supervisor-");
        entries.into_iter().find(ours).unwrap()
    }

    /// Waits until nothing is left of the supervisor and its sandboxes.
    fn is_clean(&self, supervisor: u32) {
        wait_for("the supervisor's end", || (!is_alive(supervisor)).then_some(()));
        wait_for("the removal of every trace", || self.traces().is_empty().then_some(()));
        let mut left: Vec<_> = fs::read_dir(self.directory())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["lock", "log", "starting"]);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(self.state().to_str().unwrap()), "{mounts}");
    }
}

fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}
