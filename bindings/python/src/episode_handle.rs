//! A running episode as Python holds it: a queue of items to read, and the replies.

use std::sync::Arc;

use pyo3::prelude::*;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{Process, leak},
    episode::{Caller, Item, Items, Pending, Run},
    failure::Failure,
    operation::Operation,
    sandbox_handle::{SandboxHandle, Shared},
    value::Value,
};

/// A running episode.
#[pyclass(frozen, module = "llm_in_sandbox._native")]
pub(crate) struct EpisodeHandle(Arc<Running>);

struct Running {
    process: Arc<Process>,
    items: tokio::sync::Mutex<Items>,
    pending: Pending,
    cancel: CancellationToken,
    task: AbortHandle,
    /// Cancelled when the task is gone.
    gone: CancellationToken,
}

impl EpisodeHandle {
    fn start(shared: &Arc<Shared>, request: &str) -> Result<Self, Failure> {
        let process = Arc::clone(shared.process());
        process.check()?;
        let (caller, items, pending) = Caller::new();
        let run = Run::check(request, shared.network().clone(), caller.clone())?;
        let cancel = run.cancel.clone();
        let shared = Arc::clone(shared);
        let gone = CancellationToken::new();
        let ends = gone.clone().drop_guard();
        let task = process.handle().spawn(async move {
            let _ends = ends;
            let ended =
                shared.using(move |sandbox| Box::pin(async move { run.run(sandbox).await })).await;
            if let Err(failure) = ended {
                caller.fail(failure);
            }
        });
        let items = tokio::sync::Mutex::new(items);
        let task = task.abort_handle();
        Ok(Self(Arc::new(Running { process, items, pending, cancel, task, gone })))
    }
}

impl Drop for EpisodeHandle {
    fn drop(&mut self) {
        match self.0.process.is_own() {
            true => self.0.cancel.cancel(),
            false => leak(&self.0),
        }
    }
}

#[pymethods]
impl EpisodeHandle {
    #[new]
    fn new(py: Python<'_>, sandbox: PyRef<'_, SandboxHandle>, request: &str) -> PyResult<Self> {
        Self::start(sandbox.shared(), request).map_err(|failure| failure.into_exception(py))
    }

    /// Waits for the next item: its kind, the number of a request, and JSON.
    fn next(&self) -> Operation {
        let running = Arc::clone(&self.0);
        let next = async move {
            let item = running.items.lock().await.recv().await;
            let gone = || Failure::infrastructure("the episode has ended without a result");
            Ok(match item.ok_or_else(gone)?? {
                Item::Event(line) => Value::Item("event", 0, line),
                Item::Delta(text) => Value::Item("delta", 0, text),
                Item::Ask { kind, number, request } => Value::Item(kind, number, request),
                Item::Ended(report) => Value::Item("ended", 0, report),
            })
        };
        Operation::new(&self.0.process, next)
    }

    /// Answers a request: with JSON, or with an error.
    fn reply(&self, number: u64, reply: Option<&str>, error: Option<String>) {
        let reply = match (reply.map(serde_json::from_str), error) {
            (Some(Ok(value)), None) => Ok(value),
            (Some(Err(error)), None) => Err(error.to_string()),
            (_, error) => Err(error.unwrap_or_default()),
        };
        if self.0.process.is_own() {
            self.0.pending.answer(number, reply);
        }
    }

    /// Ends the episode as cancelled. Its files are collected, and its end is the last item.
    fn cancel(&self) {
        if self.0.process.is_own() {
            self.0.cancel.cancel();
        }
    }

    /// Ends the episode, and waits until it uses nothing of its caller any more. Does nothing after its end.
    fn stop(&self) -> Operation {
        let running = Arc::clone(&self.0);
        let process = &self.0.process;
        if !process.is_own() || process.closing().is_cancelled() {
            return Operation::nothing(process);
        }
        running.cancel.cancel();
        running.task.abort();
        Operation::new(process, async move {
            running.gone.cancelled().await;
            Ok(Value::None)
        })
    }
}
