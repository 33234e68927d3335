//! Real sandboxes for tests, with helpers that call the tools in them.

use std::{
    future::Future,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use lis_agent::tools::{Observation, ToolOutcome, Tools};
use sandbox::{LayerState, Runtime, Sandbox, Spec};
use sandbox_native::{NativeRuntime, NativeSandbox};
use sandbox_testkit::Spawner;
pub(crate) use sandbox_testkit::skip;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use trajectory::{Arguments, ToolCall};

/// Runs a test in bounded time with a new sandbox, or skips it visibly.
pub(crate) fn with_sandbox<F: Future<Output = ()>>(spec: &Spec, test: impl FnOnce(Hand) -> F) {
    sandbox_testkit::with_runtime(SPAWNER, Duration::from_secs(100), async |runtime| {
        let sandbox = match runtime.create(spec).await {
            Ok(sandbox) => sandbox,
            Err(error) => return skip("userns", &error.chain()),
        };
        let (tools, calls) = (Tools::default(), AtomicU32::new(1));
        test(Hand { sandbox, tools, calls, _runtime: runtime }).await;
    });
}

const SPAWNER: Spawner<'_> = Spawner::Example("lis-test-spawner");

/// A sandbox with the tools.
pub(crate) struct Hand {
    pub(crate) sandbox: NativeSandbox,
    pub(crate) tools: Tools,
    calls: AtomicU32,
    _runtime: NativeRuntime,
}

impl Hand {
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> ToolOutcome {
        let Value::Object(map) = arguments else { panic!("arguments are an object") };
        let call =
            ToolCall { id: "1".into(), name: tool.into(), arguments: Arguments::Object(map) };
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.tools.call(&call, number, &self.sandbox).await.unwrap()
    }

    pub(crate) async fn observe(&self, tool: &str, arguments: Value) -> Observation {
        match self.call(tool, arguments).await {
            ToolOutcome::Observed(observation) | ToolOutcome::Refused(observation) => observation,
            ToolOutcome::Submitted => panic!("{tool} ended the episode"),
        }
    }

    /// The observation of a command.
    pub(crate) async fn bash(&self, command: &str) -> String {
        let seen = self.observe("execute_bash", json!({ "command": command })).await;
        assert!(!seen.is_error, "{seen:?}");
        text(&seen).to_owned()
    }

    /// The observation of an edit.
    pub(crate) async fn edit(&self, arguments: Value) -> String {
        let seen = self.observe("str_replace_editor", arguments).await;
        assert!(!seen.is_error, "{seen:?}");
        text(&seen).to_owned()
    }

    /// The explanation of an edit that fails.
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
    pub(crate) fn enforces(&self, layer: &sandbox::Layer, capability: &str) -> bool {
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
