//! A sandbox as Python holds it: shared by threads, closed once.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use pyo3::{prelude::*, types::PyString};
use runtimes::AnySandbox;
use sandbox::{
    CaptureBuffer, Network, OutputCap, Process as Program, Protection, Sandbox, ShellCommand, Spec,
    Streams,
};
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{Process, leak},
    expose,
    failure::Failure,
    operation::Operation,
    owned::{Owned, Using},
    spec,
    value::{CommandOutput, Value},
};

/// The time limit of a command without one: a year.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// A sandbox, and what is known of it without asking it.
pub(crate) struct Shared {
    sandbox: Owned<AnySandbox>,
    number: u64,
    id: String,
    protection: Protection,
    spec: Spec,
}

impl Shared {
    /// Registers a new sandbox.
    pub(crate) fn new(process: &Arc<Process>, sandbox: AnySandbox, spec: Spec) -> Arc<Self> {
        let id = sandbox.id().to_owned();
        let protection = sandbox.protection().clone();
        let sandbox = Owned::new(process, sandbox, format!("the sandbox {id}"));
        process.register(|number| Arc::new(Self { sandbox, number, id, protection, spec }))
    }

    /// The process it belongs to.
    pub(crate) fn process(&self) -> &Arc<Process> {
        self.sandbox.process()
    }

    /// Its network.
    pub(crate) fn network(&self) -> &Network {
        &self.spec.network
    }

    /// Cancelled when it is closed.
    pub(crate) fn closed(&self) -> &CancellationToken {
        self.sandbox.closed()
    }

    /// Uses the sandbox, until the operation ends or the sandbox is closed.
    pub(crate) async fn using<T, F>(&self, operation: F) -> Result<T, Failure>
    where
        F: for<'a> FnOnce(&'a AnySandbox) -> Using<'a, T> + Send,
    {
        self.sandbox.using(operation).await
    }

    /// Ends what runs in the sandbox, and removes it. Closing it again does nothing.
    pub(crate) async fn close(self: Arc<Self>) -> Result<(), Failure> {
        let end = |sandbox: AnySandbox| async move {
            match sandbox.destroy().await {
                // It is to be gone.
                Err(error) if error.is_gone() => Ok(()),
                destroyed => destroyed,
            }
        };
        self.sandbox.close(end).await
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.process().forget(self.number);
    }
}

/// A sandbox.
#[pyclass(frozen, module = "llm_in_sandbox._native")]
pub(crate) struct SandboxHandle {
    shared: Arc<Shared>,
    protection: Mutex<Option<String>>,
}

impl Drop for SandboxHandle {
    fn drop(&mut self) {
        if !self.shared.process().is_own() {
            leak(&self.shared);
        }
    }
}

impl SandboxHandle {
    /// Gives a sandbox to Python.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, protection: Mutex::new(None) }
    }

    /// The sandbox.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// An operation on the sandbox, and what Python gets of its result.
    fn operation<T, F>(
        &self,
        operation: F,
        value: impl FnOnce(T) -> Value + Send + 'static,
    ) -> Operation
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a AnySandbox) -> Using<'a, T> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let work = async move { shared.using(operation).await.map(value) };
        Operation::new(self.shared.process(), work)
    }

    /// A path inside: relative ones start at the working directory.
    fn path(&self, path: PathBuf) -> PathBuf {
        self.shared.spec.workdir.join(path)
    }
}

/// Half of the bytes from each end of a stream.
fn output_cap(bytes: usize) -> OutputCap {
    OutputCap { head: bytes.div_ceil(2), tail: bytes / 2 }
}

/// A time limit from Python.
fn timeout(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(value) = value else { return Ok(None) };
    let wrong = |error| spec::invalid(value.py(), "timeout", &error);
    spec::seconds(value).map(Some).map_err(wrong)
}

async fn run(
    sandbox: &AnySandbox,
    program: Program,
    stdin: Option<Vec<u8>>,
    cap: OutputCap,
) -> Result<CommandOutput, Failure> {
    let (stdout, stderr) = (CaptureBuffer::new(cap), CaptureBuffer::new(cap));
    let streams = Streams::Pipes {
        stdin: stdin.map(|bytes| Box::new(std::io::Cursor::new(bytes)) as sandbox::Input),
        stdout: stdout.writer(),
        stderr: stderr.writer(),
    };
    let exit = sandbox.process(&program, streams).await?;
    Ok(CommandOutput {
        status: exit.status,
        cause: exit.cause,
        duration: exit.duration,
        stdout: stdout.take(),
        stderr: stderr.take(),
        shell_lost: false,
    })
}

async fn read(sandbox: &AnySandbox, path: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    let reader = sandbox.read_file(path).await?;
    let mut bytes = Vec::new();
    let read = reader.take(limit.saturating_add(1)).read_to_end(&mut bytes).await;
    let source = match read {
        Ok(_) if bytes.len() as u64 <= limit => return Ok(bytes),
        Ok(_) => rustix::io::Errno::FBIG.into(),
        Err(error) => error,
    };
    Err(sandbox::Error::Path { path: path.to_owned(), source }.into())
}

/// Runs a program that changes files, and reports its error as one of the path.
async fn change(sandbox: &AnySandbox, argv: Vec<String>, path: PathBuf) -> Result<(), Failure> {
    let output = run(sandbox, Program::new(argv), None, output_cap(4096)).await?;
    if output.status.success() {
        return Ok(());
    }
    let text = output.stderr.text().trim().to_owned();
    Err(sandbox::Error::Path { path, source: std::io::Error::other(text) }.into())
}

/// A path as an argument of a program.
fn argument(py: Python<'_>, path: &Path) -> PyResult<String> {
    let refuse =
        || Failure::usage(format!("the path `{}` is not UTF-8", path.display())).into_exception(py);
    path.to_str().map(str::to_owned).ok_or_else(refuse)
}

#[pymethods]
impl SandboxHandle {
    #[getter]
    fn id(&self) -> &str {
        &self.shared.id
    }

    #[getter]
    fn workdir(&self) -> &Path {
        &self.shared.spec.workdir
    }

    #[getter]
    fn closed(&self) -> bool {
        self.shared.sandbox.is_closed()
    }

    /// The report of its protection, as JSON.
    fn protection(&self, py: Python<'_>) -> PyResult<Py<PyString>> {
        let mut kept = self.protection.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let text = kept.get_or_insert_with(|| {
            serde_json::to_string(&self.shared.protection).unwrap_or_default()
        });
        Ok(PyString::new(py, text).unbind())
    }

    fn run(
        &self,
        argv: Vec<String>,
        cwd: Option<PathBuf>,
        env: Vec<(String, String)>,
        stdin: Option<Vec<u8>>,
        timeout: Option<Bound<'_, PyAny>>,
        max_output: usize,
    ) -> PyResult<Operation> {
        let timeout = self::timeout(timeout.as_ref())?;
        let workdir = cwd.map(|cwd| self.path(cwd));
        let program = Program { argv, env, workdir, timeout };
        Ok(self.operation(
            move |sandbox| Box::pin(run(sandbox, program, stdin, output_cap(max_output))),
            |output| Value::Command(Box::new(output)),
        ))
    }

    /// Runs a program several times without Python in between; the result is the seconds of each, for `perf.py`.
    fn measure_runs(&self, argv: Vec<String>, rounds: u32) -> Operation {
        let shared = Arc::clone(&self.shared);
        let measuring = async move {
            let mut seconds = Vec::new();
            for _ in 0..rounds {
                let (start, program) = (Instant::now(), Program::new(argv.clone()));
                shared
                    .using(|sandbox| Box::pin(run(sandbox, program, None, OutputCap::default())))
                    .await?;
                seconds.push(start.elapsed().as_secs_f64());
            }
            Ok(Value::Numbers(seconds))
        };
        Operation::new(self.shared.process(), measuring)
    }

    fn shell(
        &self,
        command: String,
        timeout: Option<Bound<'_, PyAny>>,
        max_output: usize,
    ) -> PyResult<Operation> {
        let timeout = self::timeout(timeout.as_ref())?.unwrap_or(NO_TIMEOUT);
        let command = ShellCommand { script: command.into(), timeout, cap: output_cap(max_output) };
        Ok(self.operation(
            move |sandbox| {
                Box::pin(async move {
                    let ended = sandbox.shell(&command).await?;
                    Ok(CommandOutput {
                        status: ended.status,
                        cause: ended.cause,
                        duration: ended.duration,
                        stdout: ended.stdout,
                        stderr: ended.stderr,
                        shell_lost: ended.shell_lost,
                    })
                })
            },
            |output| Value::Command(Box::new(output)),
        ))
    }

    fn read(&self, path: PathBuf, limit: u64) -> Operation {
        let path = self.path(path);
        self.operation(
            move |sandbox| Box::pin(async move { read(sandbox, &path, limit).await }),
            Value::Bytes,
        )
    }

    fn write(
        &self,
        py: Python<'_>,
        path: PathBuf,
        data: Vec<u8>,
        mode: Option<u32>,
    ) -> PyResult<Operation> {
        let path = self.path(path);
        let name = argument(py, &path)?;
        Ok(self.operation(
            move |sandbox| {
                Box::pin(async move {
                    sandbox.write_file(&path, &data).await?;
                    let Some(mode) = mode else { return Ok(()) };
                    let chmod = vec!["chmod".into(), format!("{mode:04o}"), "--".into(), name];
                    change(sandbox, chmod, path).await
                })
            },
            |()| Value::None,
        ))
    }

    fn mkdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Operation> {
        let path = self.path(path);
        let argv = vec!["mkdir".into(), "-p".into(), "--".into(), argument(py, &path)?];
        Ok(self.operation(move |sandbox| Box::pin(change(sandbox, argv, path)), |()| Value::None))
    }

    fn list(&self, path: PathBuf) -> Operation {
        let path = self.path(path);
        self.operation(
            move |sandbox| Box::pin(async move { Ok(sandbox.list(&path).await?) }),
            Value::Entries,
        )
    }

    fn upload(&self, host_path: PathBuf, path: PathBuf) -> Operation {
        let path = self.path(path);
        self.operation(
            move |sandbox| Box::pin(async move { Ok(sandbox.copy_in(&host_path, &path).await?) }),
            Value::Copied,
        )
    }

    fn download(&self, path: PathBuf, host_path: PathBuf) -> Operation {
        let path = self.path(path);
        self.operation(
            move |sandbox| Box::pin(async move { Ok(sandbox.copy_out(&path, &host_path).await?) }),
            Value::Copied,
        )
    }

    fn fork(&self) -> Operation {
        let shared = Arc::clone(&self.shared);
        self.operation(
            move |sandbox| Box::pin(async move { Ok(sandbox.fork().await?) }),
            move |fork| Value::Sandbox(Shared::new(shared.process(), fork, shared.spec.clone())),
        )
    }

    fn snapshot(&self, name: String) -> Operation {
        self.operation(
            move |sandbox| Box::pin(async move { Ok(sandbox.snapshot(&name).await?) }),
            |()| Value::None,
        )
    }

    fn expose(&self, port: u16) -> Operation {
        let shared = Arc::clone(&self.shared);
        let exposing = async move { expose::expose(shared, port).await.map(Value::Text) };
        Operation::new(self.shared.process(), exposing)
    }

    fn close(&self) -> Operation {
        let shared = Arc::clone(&self.shared);
        if shared.sandbox.is_left_alone() {
            return Operation::nothing(shared.process());
        }
        let closing = async move { shared.close().await.map(|()| Value::None) };
        Operation::new(self.shared.process(), closing)
    }
}
