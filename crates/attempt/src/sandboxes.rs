//! Sandboxes for attempts: a bounded number at once, some created ahead where many are alike; then filled with the
//! directories the prompt names, the problem's files and the task's set-up. Every wait has a limit.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use agent::{Prompts, prompt::Inputs};
use problems::{Problem, Task};
use sandbox::{CopyReport, Error, Feature, Pool, Process, Runtime, Sandbox, Spec, Streams};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

use crate::{Capability, Documents, Settings};

/// The time limit for creating, filling, reading or removing a sandbox. Images may have to be unpacked first.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// The time limit of a task's set-up script.
const SETUP: Duration = Duration::from_secs(600);

/// Input files beyond this number are not listed for the model.
const MAX_LISTED: usize = 10_000;

/// Creates sandboxes for attempts.
pub struct Sandboxes<R: Runtime> {
    runtime: Option<Arc<R>>,
    permits: Arc<Semaphore>,
    /// Sandboxes created ahead for each specification.
    warm: usize,
    pools: Mutex<Vec<(Spec, Arc<Pool<R>>)>>,
}

/// Whether a sandbox is one of many alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Others like it will be wanted: it may come from a warm pool.
    Many,
    /// It is created on demand.
    Once,
}

impl<R: Runtime> Sandboxes<R> {
    /// Allows `limit` sandboxes at once, besides `warm` ones created ahead for each specification. Without a runtime
    /// every creation fails, which is right where only plain calls are made.
    pub fn new(runtime: Option<Arc<R>>, limit: usize, warm: usize) -> Self {
        let permits = Arc::new(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS)));
        Self { runtime, permits, warm, pools: Mutex::default() }
    }

    /// Takes permits that others take too, such as a server whose clients create sandboxes of their own. None is created
    /// ahead.
    pub fn sharing(runtime: Arc<R>, permits: Arc<Semaphore>) -> Self {
        Self { runtime: Some(runtime), permits, warm: 0, pools: Mutex::default() }
    }

    /// Whether sandboxes can be created at all.
    pub fn has_runtime(&self) -> bool {
        self.runtime.is_some()
    }

    /// Waits until one more sandbox is allowed. Dropping the permit allows the next.
    pub async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    /// Creates a sandbox, or takes one from the warm pool of its specification.
    pub async fn create(&self, spec: &Spec, reuse: Reuse) -> Result<R::Sandbox, Error> {
        let runtime = self.runtime.as_ref().ok_or_else(|| Error::Unsupported {
            feature: Feature::Sandbox,
            reason: "no runtime was configured".into(),
            remedy: "choose a runtime".into(),
        })?;
        let created = async {
            match reuse {
                Reuse::Many if self.warm > 0 => self.pool(runtime, spec).await.take().await,
                _ => runtime.create(spec).await,
            }
        };
        within(PATIENCE, "creating a sandbox", created).await
    }

    async fn pool(&self, runtime: &Arc<R>, spec: &Spec) -> Arc<Pool<R>> {
        let mut pools = self.pools.lock().await;
        if let Some((_, pool)) = pools.iter().find(|(known, _)| known == spec) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(Pool::new(Arc::clone(runtime), spec.clone(), self.warm));
        pools.push((spec.clone(), Arc::clone(&pool)));
        pool
    }

    /// Removes the sandboxes that were created ahead and never used.
    pub async fn close(&self) -> Result<(), Error> {
        let pools = std::mem::take(&mut *self.pools.lock().await);
        for (_, pool) in pools {
            if let Some(pool) = Arc::into_inner(pool) {
                within(PATIENCE, "removing sandboxes", pool.close()).await?;
            }
        }
        Ok(())
    }
}

impl<R: Runtime> fmt::Debug for Sandboxes<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandboxes")
            .field("available", &self.permits.available_permits())
            .field("warm", &self.warm)
            .finish_non_exhaustive()
    }
}

/// Removes a sandbox.
pub(crate) async fn destroy<S: Sandbox>(sandbox: S) -> Result<(), Error> {
    within(PATIENCE, "removing a sandbox", sandbox.destroy()).await
}

/// Awaits an operation on a sandbox, and fails with a timeout after `limit`.
pub async fn within<T>(
    limit: Duration,
    operation: &str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Error::Io { what: operation.to_owned(), source: io::ErrorKind::TimedOut.into() })
    })
}

/// Prepares a sandbox for a problem, then takes away the capabilities the model has to do without.
pub(crate) async fn prepare<S: Sandbox>(
    sandbox: &S,
    task: &Task,
    problem: &Problem,
    settings: &Settings,
) -> Result<(), Error> {
    let preparing = async {
        let dirs = missing_directories(task, problem, settings.documents);
        if !dirs.is_empty() {
            make_directories(sandbox, &dirs).await?;
        }
        if settings.documents == Documents::Files {
            for (name, text) in &problem.files {
                let path = task.prompts.input_dir.join(name);
                sandbox.write_file(&path, text.as_bytes()).await?;
            }
        }
        if let Some(script) = task.setup(problem) {
            let setup = Process { timeout: Some(SETUP), ..Process::new(["bash", "-c", &script]) };
            run(sandbox, &setup).await?;
        }
        if !settings.allows(Capability::Files) {
            sandbox.freeze().await?;
        }
        Ok(())
    };
    within(SETUP + PATIENCE, "preparing a sandbox", preparing).await
}

/// Creates a sandbox for a problem, prepares it as for an attempt, and removes it: to find out whether that works.
///
/// # Errors
/// If the sandbox cannot be created, filled or set up.
pub async fn try_sandbox<R: Runtime>(
    runtime: &R,
    task: &Task,
    problem: &Problem,
    settings: &Settings,
) -> Result<(), Error> {
    let (spec, _) = settings.sandbox_for(task, problem);
    let sandbox = within(PATIENCE, "creating a sandbox", runtime.create(&spec)).await?;
    let prepared = prepare(&sandbox, task, problem, settings).await;
    let destroyed = destroy(sandbox).await;
    prepared.and(destroyed)
}

/// Creates the directories a prompt names: a model must be able to rely on what it reads there.
pub async fn create_directories<S: Sandbox>(sandbox: &S, prompts: &Prompts) -> Result<(), Error> {
    let dirs = [&prompts.working_dir, &prompts.input_dir, &prompts.output_dir];
    make_directories(sandbox, &dirs).await
}

/// The directories of a task's prompt that would not exist otherwise: the runtime creates the working directory, writing a
/// file creates its parent, and every process in a new sandbox costs time.
fn missing_directories<'a>(
    task: &'a Task,
    problem: &Problem,
    documents: Documents,
) -> Vec<&'a PathBuf> {
    let Prompts { working_dir, input_dir, output_dir, .. } = &task.prompts;
    // With the documents in the prompt, it says that the input directory is empty.
    let is_mentioned = documents == Documents::Prompt && !problem.files.is_empty();
    let input_dir = Some(input_dir).filter(|_| is_mentioned);
    let dirs = [output_dir].into_iter().chain(input_dir);
    dirs.filter(|dir| *dir != working_dir).collect()
}

async fn make_directories<S: Sandbox>(sandbox: &S, dirs: &[&PathBuf]) -> Result<(), Error> {
    let dirs = dirs.iter().map(|dir| dir.to_string_lossy().into_owned());
    let mkdir = ["mkdir", "-p", "--"].map(str::to_owned).into_iter().chain(dirs);
    run(sandbox, &Process::new(mkdir)).await
}

/// Copies a file or directory of the host into the input directory.
pub async fn copy_input<S: Sandbox>(
    sandbox: &S,
    prompts: &Prompts,
    input: &Path,
) -> Result<CopyReport, Error> {
    let to = match input.is_dir() {
        true => prompts.input_dir.clone(),
        false => prompts.input_dir.join(input.file_name().unwrap_or_default()),
    };
    sandbox.copy_in(input, &to).await
}

/// Lists the files of an input directory, or the one input file, for the prompt. Entries that cannot be read are left
/// out: copying them reports the error.
pub fn input_listing(input: &Path) -> Inputs {
    let base = if input.is_dir() { input } else { input.parent().unwrap_or(input) };
    let mut open: Vec<PathBuf> = vec![input.to_owned()];
    let mut files = Vec::new();
    while let Some(path) = open.pop().filter(|_| files.len() < MAX_LISTED) {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        } else if metadata.is_file() {
            let name = path.strip_prefix(base).unwrap_or(&path).to_string_lossy().into_owned();
            files.push((name, metadata.len()));
        }
    }
    Inputs::new(files)
}

/// Runs a program of ours, which has to succeed.
async fn run<S: Sandbox>(sandbox: &S, process: &Process) -> Result<(), Error> {
    let exit = sandbox.process(process, Streams::discard()).await?;
    match exit.status.success() {
        true => Ok(()),
        false => Err(Error::Command { command: process.argv.join(" "), status: exit.status }),
    }
}
