//! A queue of ended operations for an event loop: readable when there are any.

use std::{
    collections::HashMap,
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use pyo3::{exceptions::PyOSError, prelude::*};
use rustix::event::{EventfdFlags, eventfd};
use tokio::task::AbortHandle;

use crate::{
    engine::{Process, leak},
    failure::Failure,
    value::Outcome,
};

/// Results that wait for an event loop.
#[pyclass(frozen, module = "llm_in_sandbox._native")]
pub(crate) struct Completions {
    pid: u32,
    queue: Arc<Queue>,
    next: AtomicU64,
}

struct Queue {
    /// Readable while `ended` is not empty.
    event: OwnedFd,
    ended: Mutex<Vec<(u64, Outcome)>>,
    running: Mutex<HashMap<u64, AbortHandle>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    fn push(&self, number: u64, outcome: Outcome) {
        lock(&self.running).remove(&number);
        lock(&self.ended).push((number, outcome));
        // It fails only if the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// The number of an operation, and its result or its exception.
type Report = (u64, Py<PyAny>, Option<PyErr>);

/// Reports an operation, even one that panics or is dropped.
struct Reporter {
    queue: Arc<Queue>,
    number: u64,
    outcome: Option<Outcome>,
}

impl Reporter {
    fn finish(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let unfinished = || Err(Failure::infrastructure("the operation was cancelled or failed"));
        self.queue.push(self.number, self.outcome.take().unwrap_or_else(unfinished));
    }
}

impl Completions {
    /// Starts an operation and returns its number.
    pub(crate) fn start(
        &self,
        process: &Process,
        operation: impl Future<Output = Outcome> + Send + 'static,
    ) -> Result<u64, Failure> {
        process.check()?;
        self.check()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let queue = Arc::clone(&self.queue);
        let reporter = Reporter { queue: Arc::clone(&queue), number, outcome: None };
        // Held until it is registered, so that it does not end before.
        let mut running = lock(&queue.running);
        let task = process.handle().spawn(async move {
            reporter.finish(operation.await);
        });
        running.insert(number, task.abort_handle());
        drop(running);
        Ok(number)
    }

    /// Reports an operation that has ended, and returns its number.
    pub(crate) fn report(&self, outcome: Outcome) -> Result<u64, Failure> {
        self.check()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.queue.push(number, outcome);
        Ok(number)
    }

    /// Whether this is the process that created it. Another one shares the event with it, and has a copy of its locks,
    /// which may be held forever.
    fn is_own(&self) -> bool {
        std::process::id() == self.pid
    }

    fn check(&self) -> Result<(), Failure> {
        match self.is_own() {
            true => Ok(()),
            false => Err(Failure::closed(format!(
                "the event loop belongs to the process {} and cannot be used in one forked from it",
                self.pid
            ))),
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        if !self.is_own() {
            leak(&self.queue);
        }
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> PyResult<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| PyOSError::new_err((error.raw_os_error(), error.to_string())))?;
        let queue =
            Queue { event, ended: Mutex::new(Vec::new()), running: Mutex::new(HashMap::new()) };
        Ok(Self { pid: std::process::id(), queue: Arc::new(queue), next: AtomicU64::new(1) })
    }

    /// The descriptor that an event loop watches.
    fn fileno(&self) -> i32 {
        self.queue.event.as_raw_fd()
    }

    /// Takes what has ended: numbers, each with a result or an exception, of which one is `None`. Nothing in a forked
    /// process.
    fn drain(&self, py: Python<'_>) -> PyResult<Vec<Report>> {
        if !self.is_own() {
            return Ok(Vec::new());
        }
        // Before the list is taken: what ends in between makes it readable again.
        let _ = rustix::io::read(&self.queue.event, &mut [0_u8; 8]);
        let ended = std::mem::take(&mut *lock(&self.queue.ended));
        let object = |outcome: Outcome| {
            outcome.map_err(|failure| failure.into_exception(py))?.into_object(py)
        };
        let report = |(number, outcome)| match object(outcome) {
            Ok(value) => (number, value, None),
            Err(error) => (number, py.None(), Some(error)),
        };
        Ok(ended.into_iter().map(report).collect())
    }

    /// Cancels an operation. It is still reported. Does nothing in a forked process.
    fn cancel(&self, number: u64) {
        if !self.is_own() {
            return;
        }
        let task = lock(&self.queue.running).get(&number).cloned();
        if let Some(task) = task {
            task.abort();
        }
    }
}
