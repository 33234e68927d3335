//! The two traits every runtime implements.

use std::{future::Future, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    ByteSize, CopyReport, Entry, Error, ExecOutput, Exit, Input, Process, Protection, ShellCommand,
    Spec, Streams,
};

/// Something that makes sandboxes.
pub trait Runtime: Send + Sync + 'static {
    /// What it makes.
    type Sandbox: Sandbox;

    /// A fresh sandbox, ready for commands. On an error nothing is left behind.
    fn create(&self, spec: &Spec) -> impl Future<Output = Result<Self::Sandbox, Error>> + Send;

    /// The sandboxes of this runtime on this machine, whichever process made them.
    fn list(&self) -> impl Future<Output = Result<Vec<SandboxInfo>, Error>> + Send;

    /// Removes what processes that died left behind, and says what it was.
    fn prune(&self) -> impl Future<Output = Result<Vec<SandboxInfo>, Error>> + Send;
}

/// A sandbox somebody made.
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
    /// When it was made, in seconds since 1970.
    pub created: u64,
}

/// A virtual Linux computer. Dropping it destroys it without waiting.
pub trait Sandbox: Send + Sync + Sized + 'static {
    /// Its name.
    fn id(&self) -> &str;

    /// What it enforces.
    fn protection(&self) -> &Protection;

    /// Evaluates a command in the sandbox's shell. Directory, variables and functions carry on to the
    /// next call; after a timeout or a lost shell they are what they were before the command.
    fn shell(
        &self,
        command: &ShellCommand,
    ) -> impl Future<Output = Result<ExecOutput, Error>> + Send;

    /// Runs one program apart from the shell, so that nothing a former command defined can change it.
    fn process(
        &self,
        process: &Process,
        streams: Streams,
    ) -> impl Future<Output = Result<Exit, Error>> + Send;

    /// Opens a regular file for reading. Links are followed inside the sandbox.
    fn read_file(&self, path: &Path) -> impl Future<Output = Result<Input, Error>> + Send;

    /// Writes a file whole or not at all, making missing directories. An existing file keeps its
    /// permissions; a new one gets 0644.
    fn write_file(
        &self,
        path: &Path,
        contents: &[u8],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// The entries of a directory, sorted by name.
    fn list(&self, path: &Path) -> impl Future<Output = Result<Vec<Entry>, Error>> + Send;

    /// Copies a file or tree of the host to exactly this path, making missing directories.
    fn copy_in(
        &self,
        host: &Path,
        path: &Path,
    ) -> impl Future<Output = Result<CopyReport, Error>> + Send;

    /// Copies a file or tree of the sandbox to exactly this path on the host. Links that lead out of the
    /// tree, devices, sockets and pipes are left out and reported.
    fn copy_out(
        &self,
        path: &Path,
        host: &Path,
    ) -> impl Future<Output = Result<CopyReport, Error>> + Send;

    /// A second sandbox with the same specification and files. Processes and shell state stay here.
    fn fork(&self) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Saves the files as an image of this name, from which further sandboxes can start.
    fn snapshot(&self, name: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Makes every file read-only, for good: from now on nothing in the sandbox, root included, can make,
    /// change or remove one, in any directory.
    ///
    /// Commands still run, and the shell keeps its state. [`Sandbox::write_file`] and [`Sandbox::copy_in`]
    /// fail with [`Error::Path`]. Processes that have a file open for writing could go on writing, so where
    /// there are any, all that commands left running ends. Memory that is no file, such as a `memfd` or
    /// shared memory of System V, stays usable. A fork or a snapshot has the same files and can be written
    /// to, until it is frozen itself. Freezing a second time changes nothing.
    fn freeze(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// The most memory that all its processes together had in use so far, files kept in memory included.
    /// `None` where nobody counts it.
    fn peak_memory(&self) -> impl Future<Output = Result<Option<ByteSize>, Error>> + Send;

    /// Ends everything in the sandbox and removes it; returns when it is gone.
    fn destroy(self) -> impl Future<Output = Result<(), Error>> + Send;
}
