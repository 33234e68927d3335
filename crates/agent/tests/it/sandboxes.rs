//! Real sandboxes for tests, and a hand that calls the tools in them.
//!
//! Knows no model and no episode.

use std::{
    env,
    future::Future,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use agent::tools::{Done, Observation, Tools};
use sandbox::{LayerState, Runtime, Sandbox, Spec};
use sandbox_native::{Launcher, NativeOptions, NativeRuntime, NativeSandbox};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use trajectory::{Arguments, ToolCall};

/// Runs a test in bounded time with a fresh sandbox; says why where none can be had.
pub(crate) fn with_sandbox<F: Future<Output = ()>>(spec: &Spec, test: impl FnOnce(Hand) -> F) {
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        match sandbox(spec).await {
            Ok(hand) => {
                let bound = Duration::from_secs(100);
                assert!(tokio::time::timeout(bound, test(hand)).await.is_ok(), "took too long");
            }
            Err(reason) => skip("userns", &reason),
        }
    });
}

/// A runtime with a home of this test's own.
pub(crate) async fn runtime() -> Result<NativeRuntime, String> {
    let launcher = Launcher { program: spawner(), args: Vec::new() };
    NativeRuntime::start(NativeOptions { home: home(), launcher })
        .await
        .map_err(|error| chain(&error))
}

/// Announces that a test does not run, or fails it where `LIS_REQUIRE` asks for the capability.
#[expect(clippy::disallowed_methods, reason = "how tests are run is told by the environment")]
pub(crate) fn skip(capability: &str, reason: &str) {
    let required = env::var("LIS_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name.trim() == capability),
        "{capability} is required but missing: {reason}"
    );
    eprintln!("skip: {capability}: {reason}");
}

/// Somebody with a sandbox and the tools.
pub(crate) struct Hand {
    pub(crate) sandbox: NativeSandbox,
    pub(crate) tools: Tools,
    calls: AtomicU32,
    _runtime: NativeRuntime,
}

impl Hand {
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Done {
        let Value::Object(map) = arguments else { panic!("arguments are an object") };
        let call =
            ToolCall { id: "1".into(), name: tool.into(), arguments: Arguments::Object(map) };
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.tools.call(&call, number, &self.sandbox).await.unwrap()
    }

    pub(crate) async fn observe(&self, tool: &str, arguments: Value) -> Observation {
        match self.call(tool, arguments).await {
            Done::Observed(observation) | Done::Refused(observation) => observation,
            Done::Submitted => panic!("{tool} ended the episode"),
        }
    }

    /// What a command shows.
    pub(crate) async fn bash(&self, command: &str) -> String {
        let seen = self.observe("execute_bash", json!({ "command": command })).await;
        assert!(!seen.is_error, "{seen:?}");
        text(&seen).to_owned()
    }

    /// What the editor shows.
    pub(crate) async fn edit(&self, arguments: Value) -> String {
        let seen = self.observe("str_replace_editor", arguments).await;
        assert!(!seen.is_error, "{seen:?}");
        text(&seen).to_owned()
    }

    /// Why the editor refuses.
    pub(crate) async fn refused(&self, arguments: Value) -> String {
        let seen = self.observe("str_replace_editor", arguments).await;
        assert!(seen.is_error, "{seen:?}");
        text(&seen).to_owned()
    }

    pub(crate) async fn write(&self, path: &str, bytes: &[u8]) {
        self.sandbox.write_file(Path::new(path), bytes).await.unwrap();
    }

    pub(crate) async fn read(&self, path: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut file = self.sandbox.read_file(Path::new(path)).await.unwrap();
        file.read_to_end(&mut bytes).await.unwrap();
        bytes
    }

    /// Whether a limit holds here; if not, the test is skipped.
    pub(crate) fn enforces(&self, layer: &str, capability: &str) -> bool {
        let state = self.sandbox.protection().state(layer);
        if state != LayerState::Enforced {
            skip(capability, &format!("the {layer} is not enforced here"));
        }
        state == LayerState::Enforced
    }
}

/// The text of an observation that has nothing else.
pub(crate) fn text(seen: &Observation) -> &str {
    assert_eq!(seen.content.len(), 1, "{seen:?}");
    seen.content[0].as_text().unwrap()
}

async fn sandbox(spec: &Spec) -> Result<Hand, String> {
    let runtime = runtime().await?;
    let sandbox = runtime.create(spec).await.map_err(|error| chain(&error))?;
    Ok(Hand { sandbox, tools: Tools::default(), calls: AtomicU32::new(1), _runtime: runtime })
}

fn chain(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {}", chain(source))).unwrap_or_default();
    format!("{error}{source}")
}

/// The program that makes sandboxes, built beside this test.
fn spawner() -> PathBuf {
    let test = env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap();
    let program = built.join("examples/lis-test-spawner");
    assert!(program.exists(), "first build it: cargo build -p agent --examples");
    program
}

/// It must outlive the spawner, which outlives the test a little, so each test removes the homes of tests
/// that are over.
fn home() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    let all = env::temp_dir().join(format!("lis-agent-homes-{user}"));
    std::fs::create_dir_all(&all).unwrap();
    for entry in std::fs::read_dir(&all).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let home = all.join(format!("{}-{number}", std::process::id()));
    std::fs::create_dir(&home).unwrap();
    home
}
