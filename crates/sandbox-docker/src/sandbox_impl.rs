//! [`DockerSandbox`]: a container, the connection to its first process, and the state its commands share.

use std::{path::Path, sync::Arc, time::Duration};

use bollard::{
    Docker,
    query_parameters::{RemoveContainerOptions, StatsOptions},
};
use futures_util::StreamExt;
use sandbox::{
    ByteSize, CopyReport, Entry, Error, ExecOutput, Exit, Feature, Input, Process, Protection,
    Sandbox, ShellCommand, Spec, StallGuard, Streams,
};
use tokio::sync::{Mutex, RwLock, oneshot};
use tracing::Instrument as _;

use crate::{
    daemon::Daemon,
    deadline::DAEMON_SHARE,
    disk::{self, DiskWatch},
    failure::{self, during},
    fork::{self, ForkImage},
    keeper::{Counters, Keeper, Programs},
    owner::Owner,
    process, shell,
    shell::ShellState,
};

/// A sandbox of the Docker runtime.
pub struct DockerSandbox {
    inner: Arc<Inner>,
    /// Whether it was destroyed already.
    end: End,
}

enum End {
    ToDo,
    Done,
}

/// How long the connection to the first process is waited for before the container is removed without.
const KEEPER_BUSY: Duration = Duration::from_millis(500);

/// State shared by the commands of a sandbox.
pub(crate) struct Inner {
    pub(crate) docker: Docker,
    pub(crate) id: String,
    pub(crate) spec: Spec,
    pub(crate) owner: Owner,
    pub(crate) daemon: Daemon,
    pub(crate) protection: Protection,
    /// Where the daemon has no quota and a limit is requested.
    pub(crate) disk: Option<Arc<DiskWatch>>,
    pub(crate) keeper: Mutex<Keeper>,
    pub(crate) programs: Programs,
    pub(crate) counters: Mutex<Counters>,
    pub(crate) shell: Mutex<ShellState>,
    /// Locked for writing while the container is paused.
    pub(crate) frozen: RwLock<()>,
    /// The image it was forked from.
    pub(crate) image: std::sync::Mutex<Option<Arc<ForkImage>>>,
    /// For clean-up when a sandbox is dropped outside of a task.
    pub(crate) tokio: tokio::runtime::Handle,
}

impl DockerSandbox {
    pub(crate) fn new(inner: Inner) -> Self {
        let inner = Arc::new(inner);
        if let Some(disk) = &inner.disk {
            tokio::spawn(disk::watch(Arc::downgrade(&inner), Arc::clone(disk)));
        }
        Self { inner, end: End::ToDo }
    }
}

impl Inner {
    /// Removes the container and returns when it is gone.
    pub(crate) async fn remove(&self) -> Result<(), Error> {
        // A daemon may wait for a command to start that others keep from it, unless all end.
        if let Ok(mut keeper) = tokio::time::timeout(KEEPER_BUSY, self.keeper.lock()).await {
            keeper.end().await;
        }
        remove_container(&self.docker, &self.id).await
    }

    fn take_image(&self) -> Option<Arc<ForkImage>> {
        self.image.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

/// Kills and removes a container, if it still exists.
pub(crate) async fn remove_container(docker: &Docker, id: &str) -> Result<(), Error> {
    let options = RemoveContainerOptions { v: true, force: true, link: false };
    let mut pause = Duration::from_millis(2);
    loop {
        match docker.remove_container(id, Some(options.clone())).await {
            Ok(()) => return Ok(()),
            Err(error) if failure::code(&error) == Some(404) => return Ok(()),
            // Docker is already removing it, because its first process has ended.
            Err(error) if failure::code(&error) == Some(409) && pause < Duration::from_secs(5) => {
                tokio::time::sleep(pause).await;
                pause = pause * 3 / 2;
            }
            Err(error) => return Err(during("removing a container")(error)),
        }
    }
}

impl Sandbox for DockerSandbox {
    fn id(&self) -> &str {
        &self.inner.id
    }

    fn protection(&self) -> &Protection {
        &self.inner.protection
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.inner.id))]
    async fn shell(&self, command: &ShellCommand) -> Result<ExecOutput, Error> {
        command.validate()?;
        // In a task of its own, so that a cancelled caller does not leave the command half done.
        let (_waiting, abandoned) = oneshot::channel();
        let run = shell::run(Arc::clone(&self.inner), command.clone(), abandoned);
        let ended = tokio::spawn(run.in_current_span()).await;
        ended.map_err(|e| Error::Gone(format!("the command's task ended: {e}")))?
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.inner.id))]
    async fn process(&self, process: &Process, streams: Streams) -> Result<Exit, Error> {
        process.validate()?;
        process::run(&self.inner, process, streams).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.inner.id, path = %path.display()))]
    async fn read_file(&self, path: &Path) -> Result<Input, Error> {
        let limit = self.inner.patience();
        let opened =
            self.inner.within("a file to be opened", limit, self.inner.read_file(path)).await?;
        Ok(Box::new(StallGuard::new(opened, limit)))
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.inner.id, path = %path.display()))]
    async fn write_file(&self, path: &Path, contents: &[u8]) -> Result<(), Error> {
        // Even a slow daemon takes a mebibyte in a second.
        let limit = self.inner.patience() + Duration::from_secs(contents.len() as u64 >> 20);
        let written = self.inner.write_file(path, contents);
        self.inner.within("a file to be written", limit, written).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.inner.id, path = %path.display()))]
    async fn list(&self, path: &Path) -> Result<Vec<Entry>, Error> {
        let limit = self.inner.patience();
        self.inner.within("the entries of a directory", limit, self.inner.list(path)).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.inner.id, path = %path.display()))]
    async fn copy_in(&self, host: &Path, path: &Path) -> Result<CopyReport, Error> {
        self.inner.copy_in(host, path).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.inner.id, path = %path.display()))]
    async fn copy_out(&self, path: &Path, host: &Path) -> Result<CopyReport, Error> {
        self.inner.copy_out(path, host).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.inner.id))]
    async fn fork(&self) -> Result<Self, Error> {
        // In a task of its own, so that a cancelled caller does not leave an unknown image.
        let forked = tokio::spawn(fork::fork(Arc::clone(&self.inner)).in_current_span()).await;
        forked.map_err(|e| Error::Gone(format!("the fork's task ended: {e}")))?
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.inner.id, image = name))]
    async fn snapshot(&self, name: &str) -> Result<(), Error> {
        self.inner.save_as(name).await
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.inner.id))]
    async fn freeze(&self) -> Result<(), Error> {
        Err(Error::Unsupported {
            feature: Feature::Freeze,
            reason: "a container's root file system cannot become read-only later, and the state of its shell \
                     lies in files of its own"
                .into(),
            remedy: "use the native runtime".into(),
        })
    }

    async fn peak_memory(&self) -> Result<Option<ByteSize>, Error> {
        // Without `one_shot` the daemon would wait a second for a second sample.
        let options = StatsOptions { stream: false, one_shot: true };
        let mut answers = std::pin::pin!(self.inner.docker.stats(&self.inner.id, Some(options)));
        let answer =
            async { answers.next().await.transpose().map_err(during("reading the memory use")) };
        let limit = self.inner.patience();
        let answer = self.inner.within("the memory use", limit, answer).await?;
        // Docker reports the maximum only for version 1 control groups.
        let most = answer.and_then(|answer| answer.memory_stats?.max_usage);
        Ok(most.map(ByteSize))
    }

    #[tracing::instrument(level = "debug", skip_all, fields(sandbox = self.inner.id))]
    async fn destroy(mut self) -> Result<(), Error> {
        self.end = End::Done;
        let limit = DAEMON_SHARE * self.inner.patience();
        self.inner.within("a container to be removed", limit, self.inner.remove()).await?;
        fork::release(&self.inner.docker, self.inner.take_image()).await
    }
}

impl Drop for DockerSandbox {
    fn drop(&mut self) {
        if matches!(self.end, End::Done) {
            return;
        }
        // If the task does not run, the container still ends when the connection to it is closed.
        let inner = Arc::clone(&self.inner);
        self.inner.tokio.spawn(async move {
            let _ = inner.remove().await;
            let _ = fork::release(&inner.docker, inner.take_image()).await;
        });
    }
}
