//! [`Session`]: the sandbox of one client, from its first tool call to the session's end.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use agent::tools::Tools;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use sandbox::Sandbox;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    CreateError, SandboxSource,
    tools::{self, infrastructure_failure},
};

/// Most tool calls of a session at once, running or waiting for the shell.
pub(crate) const MAX_CALLS: u32 = 16;

/// One client's tools and sandbox.
///
/// Call [`Session::end`] when the client is gone: it ends the calls that run, and returns once the sandbox is gone.
pub struct Session<P: SandboxSource> {
    source: P,
    tools: Tools,
    list: Vec<Tool>,
    /// Locked while it is created, so that concurrent first calls create one.
    sandbox: Mutex<Option<Arc<Held<P>>>>,
    calls: Semaphore,
    ending: CancellationToken,
    /// Calls so far; each names the files of its long output.
    number: AtomicU32,
}

/// A sandbox, and what is held with it. The permit is released after the sandbox.
struct Held<P: SandboxSource> {
    sandbox: P::Sandbox,
    permit: P::Permit,
}

/// Why a tool call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    #[error("there are {MAX_CALLS} tool calls under way in this session; wait for one to end")]
    TooMany,
    #[error("the call was cancelled")]
    Cancelled,
    #[error("the session has ended")]
    Ended,
}

impl<P: SandboxSource> fmt::Debug for Session<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("tools", &self.tools).finish_non_exhaustive()
    }
}

impl<P: SandboxSource> Session<P> {
    /// A session without a sandbox yet.
    pub fn new(source: P, tools: Tools) -> Self {
        Self {
            source,
            list: tools::list(&tools),
            tools,
            sandbox: Mutex::default(),
            calls: Semaphore::new(MAX_CALLS as usize),
            ending: CancellationToken::new(),
            number: AtomicU32::new(1),
        }
    }

    /// The definitions of the tools.
    pub(crate) fn list(&self) -> &[Tool] {
        &self.list
    }

    /// Executes a call to one of the tools. Ends without a result when it is cancelled or the session ends; what the call
    /// has started is killed then.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
        cancelled: &CancellationToken,
    ) -> Result<CallToolResult, CallError> {
        let Ok(_permit) = self.calls.try_acquire() else { return Err(CallError::TooMany) };
        tokio::select! {
            biased;
            () = self.ending.cancelled() => Err(CallError::Ended),
            () = cancelled.cancelled() => Err(CallError::Cancelled),
            result = self.execute(tool, arguments) => Ok(result),
        }
    }

    async fn execute(&self, tool: &str, arguments: JsonObject) -> CallToolResult {
        let held = match self.sandbox().await {
            Ok(held) => held,
            Err(CreateError::Refused(why)) => {
                let text = format!("There is no sandbox for this call: {why}. Try again later.");
                return infrastructure_failure(text);
            }
            Err(CreateError::Sandbox(error)) => {
                tracing::error!("creating a sandbox: {}", error.chain());
                let text = format!("The sandbox could not be created: {}", error.chain());
                return infrastructure_failure(text);
            }
        };
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let done = tools::call(&self.tools, tool, arguments, number, &held.sandbox).await;
        let error = match done {
            Ok(result) => return result,
            Err(error) => error,
        };
        tracing::error!("calling {tool}: {}", error.chain());
        let mut text = format!("The sandbox failed, not the call: {}.", error.chain());
        if error.is_gone() {
            self.forget(&held).await;
            text.push_str(" The next call gets a new sandbox, without the files of this one.");
        }
        infrastructure_failure(text)
    }

    /// The sandbox of the session, created where there is none.
    async fn sandbox(&self) -> Result<Arc<Held<P>>, CreateError> {
        let mut sandbox = self.sandbox.lock().await;
        if let Some(held) = &*sandbox {
            return Ok(Arc::clone(held));
        }
        let (created, permit) = self.source.create().await?;
        let held = Arc::new(Held { sandbox: created, permit });
        *sandbox = Some(Arc::clone(&held));
        Ok(held)
    }

    /// Lets go of a sandbox that does not work any more, unless another call did.
    async fn forget(&self, lost: &Arc<Held<P>>) {
        let mut sandbox = self.sandbox.lock().await;
        if sandbox.as_ref().is_some_and(|held| Arc::ptr_eq(held, lost)) {
            *sandbox = None;
        }
    }

    /// Ends the calls that run; later ones are refused.
    pub(crate) fn interrupt(&self) {
        self.ending.cancel();
    }

    /// Ends the calls that run and destroys the sandbox; returns when it is gone. Later calls are refused.
    pub async fn end(&self) {
        self.interrupt();
        // Each call has a permit, and drops its share of the sandbox before it.
        let _all = self.calls.acquire_many(MAX_CALLS).await;
        let Some(held) = self.sandbox.lock().await.take() else { return };
        let Ok(Held { sandbox, permit }) = Arc::try_unwrap(held) else {
            tracing::error!("the sandbox of an ended session is still used");
            return;
        };
        if let Err(error) = sandbox.destroy().await {
            tracing::error!("removing a sandbox: {}", error.chain());
        }
        drop(permit);
    }
}
