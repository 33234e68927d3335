//! Sandboxes for episodes: so many at once, some made ahead, filled with what a problem comes with, and read when the
//! policy is done.
//!
//! Knows no model. Everything that could take for ever has a bound.

use std::{io, path::Path, sync::Arc, time::Duration};

use problems::{Check, Grade, Problem, Task};
use sandbox::{
    Captured, Error, ImageRef, Kept, OutputCap, Pool, Process, Runtime, Sandbox, Spec, Status,
    Streams,
};
use tokio::{
    io::AsyncReadExt,
    sync::{Semaphore, SemaphorePermit},
};

use crate::Context;

/// A sandbox that takes longer to make, fill, read or remove than this has failed.
const PATIENCE: Duration = Duration::from_secs(300);

/// No answer is longer.
const LONGEST_ANSWER: u64 = 1 << 20;

/// So much of a grader's output is kept, from its beginning and from its end.
const CAP: OutputCap = OutputCap { head: 1 << 20, tail: 1 << 20 };

/// Makes sandboxes, all alike.
pub(crate) struct Computers<R: Runtime> {
    runtime: Arc<R>,
    spec: Spec,
    places: Semaphore,
    pool: Option<Pool<R>>,
}

impl<R: Runtime> Computers<R> {
    /// Allows so many at once, besides those made ahead.
    pub(crate) fn new(runtime: Arc<R>, spec: Spec, places: usize, ahead: usize) -> Self {
        let pool = (ahead > 0).then(|| Pool::new(Arc::clone(&runtime), spec.clone(), ahead));
        let places = Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS));
        Self { runtime, spec, places, pool }
    }

    /// Waits until there may be one more.
    pub(crate) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.acquire().await.ok()
    }

    /// What they are like.
    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// A fresh sandbox.
    pub(crate) async fn make(&self) -> Result<R::Sandbox, Error> {
        let made = async {
            match &self.pool {
                Some(pool) => pool.take().await,
                None => self.runtime.create(&self.spec).await,
            }
        };
        within(PATIENCE, "making a sandbox", made).await
    }

    /// Checks an answer in a sandbox that no policy has touched. The inner error is the check's own failure.
    pub(crate) async fn check(&self, check: &Check) -> Result<Result<Grade, String>, Error> {
        let _place = self.place().await;
        let image = check.image.clone().map_or_else(|| self.spec.image.clone(), ImageRef::Name);
        let spec = Spec { image, ..self.spec.clone() };
        let made = self.runtime.create(&spec);
        let sandbox = within(PATIENCE, "making a sandbox", made).await?;
        let graded = checked(check, &sandbox).await;
        // Whether it is gone for good does not change the grade, and dropping it would end it too.
        let _ = destroy(sandbox).await;
        graded
    }

    /// Removes what was made ahead and never used.
    pub(crate) async fn close(self) -> Result<(), Error> {
        match self.pool {
            Some(pool) => within(PATIENCE, "removing sandboxes", pool.close()).await,
            None => Ok(()),
        }
    }
}

/// Puts in what a problem comes with.
pub(crate) async fn fill<S: Sandbox>(
    sandbox: &S,
    task: &Task,
    problem: &Problem,
    context: Context,
) -> Result<(), Error> {
    let prompts = &task.prompts;
    let filling = async {
        let files = match context {
            Context::Files => Some(&problem.files),
            Context::Prompt => None,
        };
        for (name, text) in files.into_iter().flatten() {
            sandbox.write_file(&prompts.input_dir.join(name), text.as_bytes()).await?;
        }
        if prompts.output_dir != prompts.working_dir {
            let dir = prompts.output_dir.to_string_lossy().into_owned();
            let mkdir = Process::new(["mkdir", "-p", "--", &dir]);
            let exit = sandbox.process(&mkdir, Streams::discard()).await?;
            if !exit.status.success() {
                let why = format!("mkdir ended with {}", exit.status.code());
                return Err(Error::Path { path: prompts.output_dir.clone(), why });
            }
        }
        Ok(())
    };
    within(PATIENCE, "filling a sandbox", filling).await
}

/// The answer a policy left; empty where there is none.
pub(crate) async fn answer<S: Sandbox>(sandbox: &S, path: &Path) -> Result<String, Error> {
    let reading = async {
        let mut bytes = Vec::new();
        let file = sandbox.read_file(path).await?;
        let read = file.take(LONGEST_ANSWER).read_to_end(&mut bytes).await;
        read.map_err(Error::io(format!("reading {}", path.display())))?;
        Ok(bytes)
    };
    match within(PATIENCE, "reading the answer", reading).await {
        Err(error) if error.is_usage() => Ok(String::new()),
        read => Ok(problems::clean_answer(&read?)),
    }
}

/// Removes a sandbox.
pub(crate) async fn destroy<S: Sandbox>(sandbox: S) -> Result<(), Error> {
    within(PATIENCE, "removing a sandbox", sandbox.destroy()).await
}

async fn checked<S: Sandbox>(check: &Check, sandbox: &S) -> Result<Result<Grade, String>, Error> {
    let filling = async {
        for (path, bytes) in &check.files {
            sandbox.write_file(path, bytes).await?;
        }
        Ok(())
    };
    within(PATIENCE, "filling a sandbox", filling).await?;
    let (stdout, status) = command(sandbox, &check.command, check.timeout).await?;
    let code = match status {
        Status::TimedOut => None,
        status => Some(status.code()),
    };
    Ok(check.grade(&stdout.text(), code))
}

async fn command<S: Sandbox>(
    sandbox: &S,
    command: &str,
    timeout: Duration,
) -> Result<(Captured, Status), Error> {
    let process = Process { timeout: Some(timeout), ..Process::new(["bash", "-c", command]) };
    let kept = Kept::new(CAP);
    let streams =
        Streams::Pipes { stdin: None, stdout: kept.writer(), stderr: Box::new(tokio::io::sink()) };
    let exit = sandbox.process(&process, streams);
    let exit = within(timeout.saturating_add(PATIENCE), "running a command", exit).await?;
    Ok((kept.take(), exit.status))
}

async fn within<T>(
    patience: Duration,
    doing: &str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(patience, work).await.unwrap_or_else(|_| {
        Err(Error::Io { what: doing.to_owned(), source: io::ErrorKind::TimedOut.into() })
    })
}
