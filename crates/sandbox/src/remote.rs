//! [`RemoteSandbox`]: what clients of a server do in a sandbox beyond [`Sandbox`]: programs of other users, signals, single
//! operations on files, connections to ports.

use std::{
    future::Future,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
};

use crate::{EntryKind, Error, Exit, Input, Process, Runtime, Sandbox, Streams};

/// A sandbox whose programs and files can be controlled one by one, by a program that speaks for remote clients.
pub trait RemoteSandbox: Sandbox {
    /// Runs a program like [`Sandbox::process`], and controls it while it runs.
    fn controlled_process(
        &self,
        process: &Process,
        streams: Streams,
        control: Control,
    ) -> impl Future<Output = Result<Exit, Error>> + Send;

    /// Performs one operation on files with the rights of a user, and returns the entries it concerns.
    fn file_operation(
        &self,
        user: &Identity,
        operation: &FileOperation,
    ) -> impl Future<Output = Result<Vec<FileInfo>, Error>> + Send;

    /// Opens a regular file for reading with the rights of a user.
    fn read_file_as(
        &self,
        user: &Identity,
        path: &Path,
    ) -> impl Future<Output = Result<Input, Error>> + Send;

    /// Writes a file atomically with the rights of a user, creating missing directories, and returns its description. An
    /// existing file keeps its permissions; a new one gets 0644. The attributes replace those it has.
    fn write_file_as(
        &self,
        user: &Identity,
        path: &Path,
        content: Input,
        attributes: &[(String, String)],
    ) -> impl Future<Output = Result<FileInfo, Error>> + Send;

    /// Reports changes below a directory until the receiver is dropped. The directory is watched when this returns.
    fn watch(
        &self,
        user: &Identity,
        path: &Path,
        depth: WatchDepth,
    ) -> impl Future<Output = Result<mpsc::Receiver<FileEvent>, Error>> + Send;

    /// Connects to a port on the sandbox's own loopback address.
    fn connect(&self, port: u16) -> impl Future<Output = Result<TcpStream, Error>> + Send;

    /// Stops all its processes where they are, or lets them continue. They keep their memory.
    fn set_paused(&self, paused: Paused) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A runtime whose stored images can be managed by clients of a server.
pub trait RemoteRuntime: Runtime<Sandbox: RemoteSandbox> {
    /// Whether an image of this name is stored.
    fn has_image(&self, name: &str) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Removes a stored image. Whether there was one.
    fn remove_image(&self, name: &str) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// Whether processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Paused {
    /// They are stopped.
    Yes,
    /// They run.
    No,
}

/// Whose rights are used: numbers, as known inside the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The user.
    pub uid: u32,
    /// The user's main group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// Control of a program beyond its streams.
#[derive(Debug, Default)]
pub struct Control {
    /// Whose rights it has; root's when absent.
    pub user: Option<Identity>,
    /// Gets the number of the program's first process, as known inside the sandbox, once it runs.
    pub started: Option<oneshot::Sender<u32>>,
    /// Signals for the program, by number. They reach its process group.
    pub signals: Option<mpsc::Receiver<i32>>,
}

/// One operation on files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// Describes a file. Links are followed as long as they lead to something.
    Describe(PathBuf),
    /// Lists a directory and the directories in it, down to this depth; 1 is the directory itself.
    List {
        /// The directory.
        path: PathBuf,
        /// How deep.
        depth: u32,
    },
    /// Creates a directory and those above it. Fails if it exists.
    CreateDirectory(PathBuf),
    /// Moves a file or directory, replacing a file.
    Move {
        /// The present path.
        from: PathBuf,
        /// The new path; missing directories are created.
        to: PathBuf,
    },
    /// Removes a file, or a directory with all it contains. It is no error if there is none.
    Remove(PathBuf),
    /// Adds a user with a group of the same name and number, and a home directory. Changes nothing if the user exists.
    AddUser {
        /// The user's name.
        name: String,
        /// The user's number.
        uid: u32,
        /// The home directory.
        home: PathBuf,
    },
}

/// What the names of attributes begin with where a file's [`FileInfo::attributes`] are stored as extended attributes: the
/// namespace of the protocol whose clients read and write them.
pub const STORED_ATTRIBUTES: &str = "user.e2b.";

/// Description of a file inside a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its path.
    pub path: PathBuf,
    /// Its kind.
    pub kind: EntryKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change, in seconds and nanoseconds since 1970.
    pub modified: (i64, u32),
    /// Where a link leads in the end; its own text where that does not exist.
    pub target: Option<PathBuf>,
    /// Attributes set with [`RemoteSandbox::write_file_as`].
    pub attributes: Vec<(String, String)>,
}

/// How deep changes are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchDepth {
    /// Entries of the directory itself.
    Directory,
    /// Also entries of directories in it.
    Recursive,
}

/// A change below a watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEvent {
    /// The path below the watched directory.
    pub name: PathBuf,
    /// What happened.
    pub kind: FileEventKind,
}

/// Kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileEventKind {
    /// It was created, or moved here.
    Created,
    /// Its content changed.
    Written,
    /// It was removed.
    Removed,
    /// It was moved away.
    Renamed,
    /// Its owner, permissions or times changed.
    AttributesChanged,
}
