//! Sandboxes for attempts: so many at once and no more, made ahead where many are alike, and what is done in
//! them apart from episodes.

use std::{io, path::Path, sync::Arc, time::Duration};

use sandbox::{
    Captured, Error, Kept, OutputCap, Pool, Process, Runtime, Sandbox, Spec, Status, Streams,
};
use tokio::{
    io::AsyncReadExt,
    sync::{Mutex as AsyncMutex, Semaphore, SemaphorePermit},
};

/// A sandbox that takes longer to make, fill, read or remove than this has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// So much of a command's output is kept, from its beginning and from its end.
const CAP: OutputCap = OutputCap { head: 8 << 20, tail: 8 << 20 };

/// Makes sandboxes for attempts.
pub(crate) struct Computers<R: Runtime> {
    runtime: Option<Arc<R>>,
    places: Semaphore,
    /// How many are made ahead for each specification.
    ahead: usize,
    pools: AsyncMutex<Vec<(Spec, Arc<Pool<R>>)>>,
}

/// Whether a sandbox is one of many alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alike {
    /// It may be made ahead.
    Many,
    /// It is made when it is wanted.
    Few,
}

impl<R: Runtime> Computers<R> {
    /// Allows so many at once, besides those made ahead.
    pub(crate) fn new(runtime: Option<Arc<R>>, places: usize, ahead: usize) -> Self {
        let places = Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS));
        Self { runtime, places, ahead, pools: AsyncMutex::default() }
    }

    /// Waits until there may be one more.
    pub(crate) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.acquire().await.ok()
    }

    /// A fresh sandbox.
    pub(crate) async fn make(&self, spec: &Spec, alike: Alike) -> Result<R::Sandbox, Error> {
        let runtime = self.runtime.as_ref().ok_or_else(|| Error::Unsupported {
            what: "a sandbox".into(),
            why: "this run was begun without a runtime".into(),
            remedy: "choose one".into(),
        })?;
        let made = async {
            match alike {
                Alike::Many if self.ahead > 0 => self.pool(runtime, spec).await.take().await,
                _ => runtime.create(spec).await,
            }
        };
        within(PATIENCE, "making a sandbox", made).await
    }

    async fn pool(&self, runtime: &Arc<R>, spec: &Spec) -> Arc<Pool<R>> {
        let mut pools = self.pools.lock().await;
        if let Some((_, pool)) = pools.iter().find(|(known, _)| known == spec) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(Pool::new(Arc::clone(runtime), spec.clone(), self.ahead));
        pools.push((spec.clone(), Arc::clone(&pool)));
        pool
    }

    /// Removes what was made ahead and never used.
    pub(crate) async fn close(&self) -> Result<(), Error> {
        let pools = std::mem::take(&mut *self.pools.lock().await);
        for (_, pool) in pools {
            if let Some(pool) = Arc::into_inner(pool) {
                within(PATIENCE, "removing sandboxes", pool.close()).await?;
            }
        }
        Ok(())
    }
}

/// Removes a sandbox.
pub(crate) async fn destroy<S: Sandbox>(sandbox: S) -> Result<(), Error> {
    within(PATIENCE, "removing a sandbox", sandbox.destroy()).await
}

/// A file of a sandbox, up to so many bytes; nothing where there is none, or no file.
pub(crate) async fn read<S: Sandbox>(
    sandbox: &S,
    path: &Path,
    most: u64,
) -> Result<Vec<u8>, Error> {
    let reading = async {
        let mut bytes = Vec::new();
        let file = sandbox.read_file(path).await?;
        let read = file.take(most).read_to_end(&mut bytes).await;
        read.map_err(Error::io(format!("reading {}", path.display())))?;
        Ok(bytes)
    };
    match within(PATIENCE, "reading a file", reading).await {
        Err(error) if error.is_usage() => Ok(Vec::new()),
        read => read,
    }
}

/// Runs a command apart from the shell, so that nothing a model defined there can change it; its standard
/// output, and how it ended.
pub(crate) async fn command<S: Sandbox>(
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

/// Waits for something that could take for ever.
pub(crate) async fn within<T>(
    patience: Duration,
    doing: &str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(patience, work).await.unwrap_or_else(|_| {
        Err(Error::Io { what: doing.to_owned(), source: io::ErrorKind::TimedOut.into() })
    })
}
