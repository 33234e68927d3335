//! [`Runtime`] and [`Sandbox`], the traits that every runtime implements.

use std::{future::Future, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    ByteSize, CopyReport, Entry, Error, ExecOutput, Exit, Input, Process, Protection,
    RefusedConnections, ShellCommand, Spec, Streams, Usage, Written,
};

/// Creates sandboxes.
pub trait Runtime: Send + Sync + 'static {
    /// Its kind of sandbox.
    type Sandbox: Sandbox;

    /// Creates a sandbox that is ready for commands. On an error nothing is left behind.
    fn create(&self, spec: &Spec) -> impl Future<Output = Result<Self::Sandbox, Error>> + Send;

    /// Lists the sandboxes of this runtime on this machine, including those of other processes.
    fn list(&self) -> impl Future<Output = Result<Vec<SandboxInfo>, Error>> + Send;

    /// Removes the sandboxes of processes that have died, and returns them.
    fn prune(&self) -> impl Future<Output = Result<Vec<SandboxInfo>, Error>> + Send;
}

/// A sandbox as listed by [`Runtime::list`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxInfo {
    /// Its name.
    pub id: String,
    /// The process it belongs to.
    pub owner_pid: u32,
    /// Whether that process is alive; if not, the sandbox is a leftover.
    pub alive: bool,
    /// The image it started from.
    pub image: String,
    /// Time of its creation, in seconds since 1970.
    pub created: u64,
}

/// An isolated Linux system with files, a shell and processes. Dropping it destroys it without waiting.
pub trait Sandbox: Send + Sync + Sized + 'static {
    /// Its name.
    fn id(&self) -> &str;

    /// Which layers of protection it enforces.
    fn protection(&self) -> &Protection;

    /// Evaluates a command in the sandbox's shell. Working directory, variables and functions persist; after a timeout or
    /// the death of the shell they are those from before the command.
    fn shell(
        &self,
        command: &ShellCommand,
    ) -> impl Future<Output = Result<ExecOutput, Error>> + Send;

    /// Runs a program apart from the shell, unaffected by what commands have defined there.
    fn process(
        &self,
        process: &Process,
        streams: Streams,
    ) -> impl Future<Output = Result<Exit, Error>> + Send;

    /// Opens a regular file for reading. Links are followed inside the sandbox.
    fn read_file(&self, path: &Path) -> impl Future<Output = Result<Input, Error>> + Send;

    /// Writes a file atomically, creating missing directories. An existing file keeps its permissions; a new one gets
    /// 0644.
    fn write_file(
        &self,
        path: &Path,
        contents: &[u8],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Lists a directory, sorted by name.
    fn list(&self, path: &Path) -> impl Future<Output = Result<Vec<Entry>, Error>> + Send;

    /// Copies a file or tree of the host to exactly this path, creating missing directories.
    fn copy_in(
        &self,
        host: &Path,
        path: &Path,
    ) -> impl Future<Output = Result<CopyReport, Error>> + Send;

    /// Copies a file or tree of the sandbox to exactly this path on the host. Links that lead out of
    /// the tree, devices, sockets and pipes are skipped and reported.
    fn copy_out(
        &self,
        path: &Path,
        host: &Path,
    ) -> impl Future<Output = Result<CopyReport, Error>> + Send;

    /// Creates a second sandbox with the same specification and files, but without processes and shell state.
    fn fork(&self) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Saves the files as an image of this name, from which sandboxes can be created.
    fn snapshot(&self, name: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Makes every file read-only, permanently: from now on nothing in the sandbox, including root, can create, change or
    /// remove a file in any directory.
    ///
    /// Commands still run, and the shell keeps its state. [`Sandbox::write_file`] and [`Sandbox::copy_in`] fail with
    /// [`Error::Path`]. If a process has a file open for writing, all background processes are killed. Memory that is not
    /// a file, such as a `memfd` or System V shared memory, stays usable. A fork or a snapshot has the same files and is
    /// writable. Freezing a second time changes nothing.
    fn freeze(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Peak memory use of all its processes together, including files in memory; `None` where it is not counted.
    fn peak_memory(&self) -> impl Future<Output = Result<Option<ByteSize>, Error>> + Send;

    /// What it uses at this moment. A runtime that does not count it reports nothing.
    fn usage(&self) -> impl Future<Output = Result<Usage, Error>> + Send {
        async { Ok(Usage::default()) }
    }

    /// The files below a directory that were written since the sandbox was created, with the content of small ones that
    /// changed at or after `since`, in nanoseconds since 1970 ([`WrittenFile::changed`](crate::WrittenFile::changed)).
    /// Takes milliseconds for any tree, and is incomplete where that is not enough. `None` where a runtime cannot tell.
    fn written(
        &self,
        _directory: &Path,
        _since: u64,
    ) -> impl Future<Output = Result<Option<Written>, Error>> + Send {
        async { Ok(None) }
    }

    /// Connections that the network policy refused so far, as far as the runtime sees them: those to hosts outside the
    /// list of [`Network::Allow`](crate::Network::Allow).
    fn refused_connections(&self) -> Vec<RefusedConnections> {
        Vec::new()
    }

    /// Kills everything in the sandbox and removes it; returns when it is gone.
    fn destroy(self) -> impl Future<Output = Result<(), Error>> + Send;
}
