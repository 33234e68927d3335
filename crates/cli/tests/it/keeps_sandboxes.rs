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
};

use serde_json::Value;

use crate::support::{Home, is_root, wait_for};

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

/// Control groups of sandboxes of the processes of this supervisor.
fn groups_of(supervisor: u32) -> usize {
    fn count(dir: &Path, start: &str, depth: usize) -> usize {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        entries
            .map(|entry| match entry.file_name().to_string_lossy().starts_with(start) {
                true => 1,
                false if depth > 0 => count(&entry.path(), start, depth - 1),
                false => 0,
            })
            .sum()
    }
    if !is_root() {
        return 0;
    }
    count(Path::new("/sys/fs/cgroup"), &format!("lis-{supervisor}-"), 4)
}
