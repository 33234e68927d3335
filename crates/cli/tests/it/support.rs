//! The program with a home of its own, and bounded waiting. Knows nothing of what is tested.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Nothing a test waits for takes longer.
const LONGEST: Duration = Duration::from_secs(30);

/// The program: where the test runner put it, or where it was built.
pub(crate) fn program() -> PathBuf {
    let told = ["CARGO_BIN_EXE_llm-in-sandbox", "NEXTEST_BIN_EXE_llm-in-sandbox"];
    let told = told.into_iter().find_map(env::var_os);
    told.map_or_else(|| env!("CARGO_BIN_EXE_llm-in-sandbox").into(), PathBuf::from)
}

/// Announces that a test does not run here; fails if it should.
pub(crate) fn skip(capability: &str, reason: &str) {
    assert!(!is_required(capability), "{capability}: {reason}");
    println!("skip: {reason}");
}

/// Whether the test run promises this capability.
fn is_required(capability: &str) -> bool {
    env::var("LIS_REQUIRE").is_ok_and(|required| required.split(',').any(|name| name == capability))
}

/// A setting of the test run.
pub(crate) fn setting(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// A path below the directory of this crate, as the test runner names it: the directory it was built in may belong to
/// another checkout, or be one that this user may not read.
pub(crate) fn crate_path(below: &str) -> PathBuf {
    let dir = setting("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    Path::new(&dir).join(below)
}

/// A path in the folder of real data that may lie beside the workspace.
pub(crate) fn shared(below: &str) -> PathBuf {
    let folder = setting("LIS_SHARED").map_or_else(|| crate_path("../../../shared"), PathBuf::from);
    folder.join(below)
}

/// A place for state that goes with the test.
pub(crate) struct Home {
    dir: TempDir,
}

impl Drop for Home {
    fn drop(&mut self) {
        // A spawner that is just ending removes its own part at the same time, which makes a single try fail.
        for _ in 0..50 {
            if std::fs::remove_dir_all(self.dir.path()).is_ok() || !self.dir.path().exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Home {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::Builder::new().prefix("lis-cli-").tempdir().unwrap() }
    }

    /// One in which sandboxes work, or nothing where they do not.
    pub(crate) fn with_sandboxes() -> Option<Self> {
        let home = Self::new();
        // Where they are required, a test that cannot create one fails by itself.
        if is_required("userns") {
            return Some(home);
        }
        let tried = home.run(["sandbox", "run", "--", "true"]);
        if tried.status.success() {
            return Some(home);
        }
        skip("userns", &format!("no native sandbox works here: {}", err(&tried)));
        None
    }

    /// The state directory, which need not exist yet.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// A place for files of the test.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program with these arguments, without input, and blind to any Docker daemon.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(program());
        command
            .args(args)
            .env("LLM_IN_SANDBOX_HOME", self.state())
            .env_remove("DOCKER_HOST")
            .env_remove("LLM_ADAPTER")
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs the program, which must succeed; its standard output.
    pub(crate) fn ok<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let output = self.run(args);
        assert_eq!(code(&output), 0, "{}", err(&output));
        out(&output)
    }

    /// Runs the program, which must succeed and print JSON.
    pub(crate) fn json<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Value {
        let text = self.ok(args);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    /// Whether the usual sandbox fully enforces a layer; announces a skip if not.
    pub(crate) fn enforces(&self, layer: &str) -> bool {
        let report = self.json(["sandbox", "run", "--json", "--", "true"]);
        let layers = report["protection"]["layers"].as_array().unwrap();
        let found = layers.iter().find(|found| found["name"] == layer).unwrap();
        let enforced = found["state"] == "enforced";
        if !enforced {
            skip("cgroup", &format!("{layer} does not fully hold here: {}", found["detail"]));
        }
        enforced
    }

    /// What dead and living sandboxes have on disk.
    pub(crate) fn traces(&self) -> Vec<PathBuf> {
        let run = self.state().join("run");
        let entries = std::fs::read_dir(run).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

/// The exit code.
pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("it was killed: {:?}", output.status))
}

/// Standard output.
pub(crate) fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Standard error.
pub(crate) fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The one line with which the program refused, and nothing besides.
pub(crate) fn refusal(output: &Output, expected: i32) -> String {
    let text = err(output);
    assert_eq!(code(output), expected, "{text}");
    assert_eq!(out(output), "");
    assert_eq!(text.lines().count(), 1, "{text}");
    let line = text.trim_end().strip_prefix("llm-in-sandbox: error: ");
    line.unwrap_or_else(|| panic!("not marked as an error: {text}")).to_owned()
}

/// A program under way that does not outlive its test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits for its end, not for ever; its exit code.
    pub(crate) fn end(&mut self) -> i32 {
        wait_for("the program's end", || self.0.try_wait().unwrap()).code().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until there is something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONGEST;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A command line no other test has.
pub(crate) fn unique_sleep() -> [String; 2] {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    ["sleep".into(), format!("9{}.{}", std::process::id(), clock.subsec_nanos())]
}

/// Whether a process with this command line exists, in whichever sandbox.
pub(crate) fn is_running(command: &[String]) -> bool {
    let wanted = command.join("\0") + "\0";
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.map(|entry| std::fs::read(entry.path().join("cmdline")));
    lines.any(|line| line.is_ok_and(|line| line == wanted.as_bytes()))
}

/// Whether we have root's rights.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Writes a file, making its directory.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, contents).unwrap();
}

/// The control groups of the sandboxes of this process.
pub(crate) fn groups_of(process: u32) -> Vec<PathBuf> {
    fn find(dir: &Path, start: &str, depth: usize, found: &mut Vec<PathBuf>) {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            match entry.file_name().to_string_lossy().starts_with(start) {
                true => found.push(entry.path()),
                false if depth > 0 => find(&entry.path(), start, depth - 1, found),
                false => {}
            }
        }
    }
    let mut found = Vec::new();
    if is_root() {
        find(Path::new("/sys/fs/cgroup"), &format!("lis-{process}-"), 4, &mut found);
    }
    found
}
