//! [`Faulty`]: a runtime whose operations can be delayed and made to fail.

use std::{collections::BTreeSet, io, path::Path, sync::Arc};

use sandbox::{
    ByteSize, Control, CopyReport, Entry, Error, ExecOutput, Exit, FileEvent, FileInfo,
    FileOperation, Identity, Input, Paused, Process, Protection, RefusedConnections, RemoteRuntime,
    RemoteSandbox, Runtime, Sandbox, SandboxInfo, ShellCommand, Spec, Streams, Usage, WatchDepth,
    Written,
};
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
};

/// Operations with faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`Runtime::create`].
    Create,
    /// [`Sandbox::destroy`].
    Destroy,
    /// [`Sandbox::snapshot`].
    Snapshot,
    /// [`RemoteSandbox::set_paused`].
    Pause,
}

/// The faults of a [`Faulty`] runtime. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<watch::Sender<State>>);

#[derive(Debug, Default)]
struct State {
    held: BTreeSet<Operation>,
    reached: BTreeSet<Operation>,
    full: BTreeSet<Operation>,
}

impl Faults {
    /// Delays the results of these operations until [`Self::release`]: what they do is done then.
    pub fn hold(&self, operation: Operation) {
        self.0.send_modify(|state| {
            state.held.insert(operation);
            state.reached.remove(&operation);
        });
    }

    /// Returns the results that are delayed.
    pub fn release(&self, operation: Operation) {
        self.0.send_if_modified(|state| state.held.remove(&operation));
    }

    /// Waits until such an operation is done and its result is delayed.
    pub async fn reached(&self, operation: Operation) {
        let _ = self.0.subscribe().wait_for(|state| state.reached.contains(&operation)).await;
    }

    /// Makes these operations fail as on a full disk, or no longer.
    pub fn set_disk_full(&self, operation: Operation, is_full: bool) {
        self.0.send_modify(|state| {
            match is_full {
                true => state.full.insert(operation),
                false => state.full.remove(&operation),
            };
        });
    }

    fn check(&self, operation: Operation) -> Result<(), Error> {
        match self.0.borrow().full.contains(&operation) {
            true => Err(Error::Io {
                what: "the test".into(),
                source: io::ErrorKind::StorageFull.into(),
            }),
            false => Ok(()),
        }
    }

    async fn delay(&self, operation: Operation) {
        let mut states = self.0.subscribe();
        if states.borrow().held.contains(&operation) {
            self.0.send_if_modified(|state| state.reached.insert(operation));
            let _ = states.wait_for(|state| !state.held.contains(&operation)).await;
        }
    }
}

/// A runtime with faults.
#[derive(Debug)]
pub struct Faulty<R> {
    inner: R,
    /// Its faults; none at first.
    pub faults: Faults,
}

/// A sandbox of a [`Faulty`] runtime.
#[derive(Debug)]
pub struct FaultySandbox<S> {
    inner: S,
    faults: Faults,
}

impl<R> Faulty<R> {
    /// A runtime without faults at first.
    pub fn new(inner: R) -> Self {
        Self { inner, faults: Faults::default() }
    }
}

impl<R: Runtime> Runtime for Faulty<R> {
    type Sandbox = FaultySandbox<R::Sandbox>;

    async fn create(&self, spec: &Spec) -> Result<Self::Sandbox, Error> {
        self.faults.check(Operation::Create)?;
        let inner = self.inner.create(spec).await?;
        self.faults.delay(Operation::Create).await;
        Ok(FaultySandbox { inner, faults: self.faults.clone() })
    }

    async fn list(&self) -> Result<Vec<SandboxInfo>, Error> {
        self.inner.list().await
    }

    async fn prune(&self) -> Result<Vec<SandboxInfo>, Error> {
        self.inner.prune().await
    }
}

impl<R: RemoteRuntime> RemoteRuntime for Faulty<R> {
    async fn has_image(&self, name: &str) -> Result<bool, Error> {
        self.inner.has_image(name).await
    }

    async fn remove_image(&self, name: &str) -> Result<bool, Error> {
        self.inner.remove_image(name).await
    }
}

impl<S: Sandbox> Sandbox for FaultySandbox<S> {
    fn id(&self) -> &str {
        self.inner.id()
    }

    fn protection(&self) -> &Protection {
        self.inner.protection()
    }

    async fn shell(&self, command: &ShellCommand) -> Result<ExecOutput, Error> {
        self.inner.shell(command).await
    }

    async fn process(&self, process: &Process, streams: Streams) -> Result<Exit, Error> {
        self.inner.process(process, streams).await
    }

    async fn read_file(&self, path: &Path) -> Result<Input, Error> {
        self.inner.read_file(path).await
    }

    async fn write_file(&self, path: &Path, contents: &[u8]) -> Result<(), Error> {
        self.inner.write_file(path, contents).await
    }

    async fn list(&self, path: &Path) -> Result<Vec<Entry>, Error> {
        self.inner.list(path).await
    }

    async fn copy_in(&self, host: &Path, path: &Path) -> Result<CopyReport, Error> {
        self.inner.copy_in(host, path).await
    }

    async fn copy_out(&self, path: &Path, host: &Path) -> Result<CopyReport, Error> {
        self.inner.copy_out(path, host).await
    }

    async fn fork(&self) -> Result<Self, Error> {
        let inner = self.inner.fork().await?;
        Ok(Self { inner, faults: self.faults.clone() })
    }

    async fn snapshot(&self, name: &str) -> Result<(), Error> {
        self.faults.check(Operation::Snapshot)?;
        self.inner.snapshot(name).await?;
        self.faults.delay(Operation::Snapshot).await;
        Ok(())
    }

    async fn freeze(&self) -> Result<(), Error> {
        self.inner.freeze().await
    }

    async fn peak_memory(&self) -> Result<Option<ByteSize>, Error> {
        self.inner.peak_memory().await
    }

    async fn usage(&self) -> Result<Usage, Error> {
        self.inner.usage().await
    }

    async fn written(&self, directory: &Path, since: u64) -> Result<Option<Written>, Error> {
        self.inner.written(directory, since).await
    }

    fn refused_connections(&self) -> Vec<RefusedConnections> {
        self.inner.refused_connections()
    }

    async fn destroy(self) -> Result<(), Error> {
        self.inner.destroy().await?;
        self.faults.delay(Operation::Destroy).await;
        Ok(())
    }
}

impl<S: RemoteSandbox> RemoteSandbox for FaultySandbox<S> {
    async fn controlled_process(
        &self,
        process: &Process,
        streams: Streams,
        control: Control,
    ) -> Result<Exit, Error> {
        self.inner.controlled_process(process, streams, control).await
    }

    async fn file_operation(
        &self,
        user: &Identity,
        operation: &FileOperation,
    ) -> Result<Vec<FileInfo>, Error> {
        self.inner.file_operation(user, operation).await
    }

    async fn read_file_as(&self, user: &Identity, path: &Path) -> Result<Input, Error> {
        self.inner.read_file_as(user, path).await
    }

    async fn write_file_as(
        &self,
        user: &Identity,
        path: &Path,
        content: Input,
        attributes: &[(String, String)],
    ) -> Result<FileInfo, Error> {
        self.inner.write_file_as(user, path, content, attributes).await
    }

    async fn watch(
        &self,
        user: &Identity,
        path: &Path,
        depth: WatchDepth,
    ) -> Result<mpsc::Receiver<FileEvent>, Error> {
        self.inner.watch(user, path, depth).await
    }

    async fn connect(&self, port: u16) -> Result<TcpStream, Error> {
        self.inner.connect(port).await
    }

    async fn set_paused(&self, paused: Paused) -> Result<(), Error> {
        self.inner.set_paused(paused).await?;
        self.faults.delay(Operation::Pause).await;
        Ok(())
    }
}
