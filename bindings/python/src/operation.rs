//! Operations: what every method of a handle returns, to be waited for or to be reported to an event loop.

use std::{
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use pyo3::{exceptions::PyRuntimeError, prelude::*};
use rustix::process::getpid;

use crate::{
    completions::Completions,
    engine::{Process, leak},
    failure::Failure,
    value::{Outcome, Value},
};

/// How often a blocked main thread lets Python handle signals.
const SIGNALS: Duration = Duration::from_millis(50);

/// Work that has not begun.
type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// An operation, to be started once: by `wait`, or by `start`.
#[pyclass(frozen, module = "llm_in_sandbox._native")]
pub(crate) struct Operation {
    process: Arc<Process>,
    step: Mutex<Step>,
}

enum Step {
    /// It has ended without work: nothing of a process is needed to report it.
    Ended(Outcome),
    Prepared(Work),
    Started,
}

impl Operation {
    /// Prepares an operation of a process.
    pub(crate) fn new(
        process: &Arc<Process>,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) -> Self {
        Self::at(process, Step::Prepared(Box::pin(work)))
    }

    /// An operation that has nothing to do, not even in a forked process or while the interpreter exits.
    pub(crate) fn nothing(process: &Arc<Process>) -> Self {
        Self::at(process, Step::Ended(Ok(Value::None)))
    }

    fn at(process: &Arc<Process>, step: Step) -> Self {
        Self { process: Arc::clone(process), step: Mutex::new(step) }
    }

    fn take(&self) -> Step {
        // Nothing panics while it holds the lock.
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut step, Step::Started)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if !self.process.is_own() {
            leak(&self.process);
            let step = self.step.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::replace(step, Step::Started));
        }
    }
}

#[pymethods]
impl Operation {
    /// Blocks until the operation ends, with the interpreter's lock released and its signals handled; returns the result.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let value = match self.take() {
            Step::Ended(outcome) => outcome.map_err(|failure| failure.into_exception(py))?,
            Step::Prepared(work) => block(py, &self.process, work)?,
            Step::Started => return Err(started_twice()),
        };
        value.into_object(py)
    }

    /// Starts the operation; returns the number under which its result is reported.
    fn start(&self, py: Python<'_>, completions: PyRef<'_, Completions>) -> PyResult<u64> {
        match self.take() {
            Step::Ended(outcome) => completions.report(outcome),
            Step::Prepared(work) => completions.start(&self.process, work),
            Step::Started => return Err(started_twice()),
        }
        .map_err(|failure| failure.into_exception(py))
    }
}

fn started_twice() -> PyErr {
    PyRuntimeError::new_err("the operation was started before")
}

/// Blocks until the work is done. A signal whose handler raises drops it, which cancels it.
fn block(py: Python<'_>, process: &Process, work: Work) -> PyResult<Value> {
    process.check().map_err(|failure: Failure| failure.into_exception(py))?;
    let mut work = pin!(work);
    // Only the first thread of a process handles signals.
    let handles_signals = rustix::thread::gettid() == getpid();
    loop {
        let ended = py.detach(|| {
            let work = work.as_mut();
            process.handle().block_on(async {
                match handles_signals {
                    true => tokio::time::timeout(SIGNALS, work).await.ok(),
                    false => Some(work.await),
                }
            })
        });
        match ended {
            Some(outcome) => return outcome.map_err(|failure| failure.into_exception(py)),
            // Outside the runtime: a handler may start an operation itself.
            None => py.check_signals()?,
        }
    }
}
