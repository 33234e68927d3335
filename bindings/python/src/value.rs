//! Results of operations, and how they become Python objects: plain tuples, from which the package makes its classes.

use std::{sync::Arc, time::Duration};

use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyBytes, PyTuple},
};
use rollout::Loss;
use sandbox::{Captured, Cause, CopyReport, Entry, EntryKind, Status};

use crate::{
    failure::Failure,
    pool::{PoolHandle, SharedPool},
    rollouts::Rollouts,
    sandbox_handle::{SandboxHandle, Shared},
};

/// The result of an operation.
pub(crate) enum Value {
    /// Nothing.
    None,
    /// How a command ended.
    Command(Box<CommandOutput>),
    /// The content of a file.
    Bytes(Vec<u8>),
    /// A text.
    Text(String),
    /// A directory.
    Entries(Vec<Entry>),
    /// A copy.
    Copied(CopyReport),
    /// A new sandbox.
    Sandbox(Arc<Shared>),
    /// A new pool of sandboxes.
    Pool(Arc<SharedPool>),
    /// Numbers.
    Numbers(Vec<f64>),
    /// Episodes for training.
    Rollouts(Box<Rollouts>),
    /// A kind, a number and JSON.
    Item(&'static str, u64, String),
}

/// How a command ended, and what it wrote.
pub(crate) struct CommandOutput {
    pub(crate) status: Status,
    pub(crate) cause: Option<Cause>,
    pub(crate) duration: Duration,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    pub(crate) shell_lost: bool,
}

impl Value {
    /// The Python object.
    pub(crate) fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::None => Ok(py.None()),
            Self::Command(output) => output.into_object(py),
            Self::Bytes(bytes) => Ok(PyBytes::new(py, &bytes).into_any().unbind()),
            Self::Text(text) => text.into_py_any(py),
            Self::Entries(entries) => {
                let entry = |entry: Entry| {
                    let kind = match entry.kind {
                        EntryKind::File => "file",
                        EntryKind::Directory => "directory",
                        EntryKind::Link => "link",
                        EntryKind::Other => "other",
                    };
                    (entry.name.into_os_string(), kind, entry.size, entry.mode)
                };
                entries.into_iter().map(entry).collect::<Vec<_>>().into_py_any(py)
            }
            Self::Copied(report) => {
                let skipped = report.skipped_count();
                let listed: Vec<_> = report
                    .skipped
                    .into_iter()
                    .map(|entry| (entry.path.into_os_string(), entry.why))
                    .collect();
                (report.files, report.bytes, skipped, listed).into_py_any(py)
            }
            Self::Rollouts(made) => rollouts(py, *made),
            Self::Item(kind, number, json) => (kind, number, json).into_py_any(py),
            Self::Sandbox(shared) => SandboxHandle::new(shared).into_py_any(py),
            Self::Pool(shared) => PoolHandle(shared).into_py_any(py),
            Self::Numbers(numbers) => numbers.into_py_any(py),
        }
    }
}

impl CommandOutput {
    fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let exit_code = match self.status {
            Status::TimedOut => None,
            status => Some(status.code()),
        };
        let (stdout, stdout_text) = stream(py, self.stdout)?;
        let (stderr, stderr_text) = stream(py, self.stderr)?;
        let fields = [
            exit_code.into_py_any(py)?,
            stdout,
            stderr,
            stdout_text,
            stderr_text,
            self.duration.as_secs_f64().into_py_any(py)?,
            self.cause.map(Cause::as_str).into_py_any(py)?,
            self.shell_lost.into_py_any(py)?,
        ];
        Ok(PyTuple::new(py, fields)?.into_any().unbind())
    }
}

/// The bytes of a stream, and its text where bytes are missing.
fn stream(py: Python<'_>, captured: Captured) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
    let text = match captured.omitted() {
        0 => py.None(),
        _ => captured.text().into_py_any(py)?,
    };
    let bytes = match captured.tail.is_empty() {
        true => PyBytes::new(py, &captured.head),
        false => PyBytes::new(py, &[captured.head, captured.tail].concat()),
    };
    Ok((bytes.into_any().unbind(), text))
}

/// Groups of rollouts: the record in JSON, the segments, the lines of events, and the problem in JSON. A segment has its
/// tokens, its mask, its log-probabilities and the length of its prompt.
fn rollouts(py: Python<'_>, made: Rollouts) -> PyResult<Py<PyAny>> {
    let json = |error: serde_json::Error| Failure::usage(error.to_string()).into_exception(py);
    let mut groups = Vec::new();
    for (group, problem) in made.groups.into_iter().zip(made.problems) {
        let row = serde_json::to_string(&*problem).map_err(json)?;
        let mut members = Vec::new();
        for mut rollout in group.members {
            let counted = rollout.loss == Loss::Counted;
            let segments: Vec<_> = std::mem::take(&mut rollout.segments)
                .into_iter()
                .map(|segment| {
                    let prompt = segment.prompt_tokens();
                    // A list of numbers, not `bytes`.
                    let mask: Vec<u32> = segment
                        .sampled
                        .into_iter()
                        .map(|sampled| u32::from(sampled && counted))
                        .collect();
                    (segment.tokens, mask, segment.logprobs, prompt)
                })
                .collect();
            let mut events = String::new();
            for line in &rollout.events {
                events.push_str(&serde_json::to_string(line).map_err(json)?);
                events.push('\n');
            }
            let record = serde_json::to_string(&rollout).map_err(json)?;
            members.push((record, segments, events, row.clone()).into_py_any(py)?);
        }
        groups.push(members);
    }
    groups.into_py_any(py)
}

/// The result of an operation, or why there is none.
pub(crate) type Outcome = Result<Value, Failure>;
