//! The messages between clients and the supervisor.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    time::Duration,
};

use sandbox::{
    Cause, CopyReport, Exit, Network, Protection, RefusedConnections, Skipped, Spec, Status,
    TerminalSize, Usage,
};
use serde::{Deserialize, Serialize};

use crate::{Name, error::Failure};

/// Version of the protocol: a supervisor and a client understand each other if it is the same.
pub(crate) const PROTOCOL: u32 = 3;

/// The first message of the supervisor. Its form is the same in every version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// Version of the protocol.
    pub(crate) protocol: u32,
    /// Version of the program.
    pub(crate) version: String,
    /// Process id of the supervisor.
    pub(crate) pid: u32,
    /// Number of its sandboxes.
    pub(crate) sandboxes: usize,
}

/// What a client asks for: the first and only message of a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Create a sandbox. Answered by `Created`.
    Create { name: Name, spec: Box<Spec>, idle_timeout: Option<Duration> },
    /// Run a program. Streams follow in both directions. Answered by `Exited`.
    Exec(Exec),
    /// Evaluate a script in the sandbox's shell. Its output follows. Answered by `Evaluated`.
    Shell { name: Name, script: String, timeout: Duration },
    /// Read a file. Answered by `Opened`, followed by its content and `Done`.
    Read { name: Name, path: WirePath },
    /// Write a file, whose content follows. Answered by `Done`.
    Write { name: Name, path: WirePath },
    /// Copy a file or tree of the host, named by an absolute path, into a sandbox. If `path` is a directory there, the copy
    /// gets the name `entry` in it. Answered by `Copied`.
    CopyIn { name: Name, host: WirePath, path: WirePath, entry: Option<WirePath> },
    /// Copy a file or tree of a sandbox to exactly this absolute path of the host. Answered by `Copied`.
    CopyOut { name: Name, path: WirePath, host: WirePath },
    /// Create a sandbox with the same specification and files. Answered by `Created`.
    Fork { name: Name, new: Name },
    /// Save the files as an image. Answered by `Done`.
    Save { name: Name, image: String },
    /// Remove a sandbox. Answered by `Done`.
    Remove { name: Name },
    /// List the sandboxes. Answered by `Sandboxes`.
    List,
    /// Remove every sandbox and end. Its form is the same in every version. Answered by `Done`.
    Stop,
}

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exec {
    pub(crate) name: Name,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) workdir: Option<WirePath>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) streams: ExecStreams,
}

/// The streams of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExecStreams {
    /// Separate output and errors, and no input.
    Output,
    /// Separate output and errors, with input.
    InputOutput,
    /// A terminal of this size.
    Terminal(TerminalSize),
}

/// The supervisor's answer to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    Created {
        id: String,
        protection: Protection,
    },
    Exited(Exited),
    Evaluated(Evaluated),
    /// With how long the content may make no progress.
    Opened {
        stall_timeout: Duration,
    },
    Copied(Copied),
    Sandboxes(Vec<Info>),
    Done,
    Failed(Failure),
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// How it ended.
    pub exit: Exit,
    /// Connections that the network policy refused while it ran, by any program of the sandbox.
    pub refused: Vec<RefusedConnections>,
    /// The network policy of the sandbox.
    pub network: Network,
}

/// The result of a script; the captured output precedes it as frames.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Evaluated {
    pub(crate) status: Status,
    pub(crate) cause: Option<Cause>,
    pub(crate) duration: Duration,
    pub(crate) shell_lost: bool,
    pub(crate) stdout: Extent,
    pub(crate) stderr: Extent,
}

/// How much of a stream was captured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Extent {
    /// Length of the captured head.
    pub(crate) head: usize,
    /// Length of the whole stream.
    pub(crate) total: u64,
}

/// A sandbox as listed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Info {
    /// Its name.
    pub name: Name,
    /// Its name at the runtime.
    pub id: String,
    /// The image it was created from.
    pub image: String,
    /// Time of its creation, in seconds since 1970.
    pub created: u64,
    /// What it does.
    pub state: State,
    /// Time since the last operation; zero while one is in progress.
    pub idle: Duration,
    /// Idle time after which it is removed.
    pub idle_timeout: Option<Duration>,
    /// What it uses.
    pub usage: Usage,
}

/// What a sandbox does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// An operation is in progress.
    Busy,
    /// No operation is in progress. Background processes may run.
    Idle,
    /// It was killed from outside.
    Gone,
}

/// A path, which need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum WirePath {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for WirePath {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<WirePath> for PathBuf {
    fn from(path: WirePath) -> Self {
        match path {
            WirePath::Text(text) => text.into(),
            WirePath::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

/// A [`CopyReport`] as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Copied {
    files: u64,
    bytes: u64,
    skipped: Vec<(WirePath, String)>,
    /// Skipped entries beyond those listed.
    more: u64,
    outward_links: Vec<WirePath>,
    /// Links beyond those listed.
    #[serde(default)]
    more_links: u64,
}

impl From<CopyReport> for Copied {
    fn from(report: CopyReport) -> Self {
        let CopyReport { files, bytes, skipped, more_skipped, outward_links, more_outward_links } =
            report;
        let entry = |entry: Skipped| (entry.path.as_path().into(), entry.why);
        let skipped = skipped.into_iter().map(entry).collect();
        let outward_links = outward_links.iter().map(|path| path.as_path().into()).collect();
        Self {
            files,
            bytes,
            skipped,
            more: more_skipped,
            outward_links,
            more_links: more_outward_links,
        }
    }
}

impl From<Copied> for CopyReport {
    fn from(copied: Copied) -> Self {
        let entry = |(path, why): (WirePath, String)| Skipped { path: path.into(), why };
        Self {
            files: copied.files,
            bytes: copied.bytes,
            skipped: copied.skipped.into_iter().map(entry).collect(),
            more_skipped: copied.more,
            outward_links: copied.outward_links.into_iter().map(Into::into).collect(),
            more_outward_links: copied.more_links,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_survives_the_journey() {
        for bytes in [&b"/a/b"[..], b"\xff\xfe", b"a\nb \"c\"", b""] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let text = serde_json::to_string(&WirePath::from(path.as_path())).unwrap();
            assert_eq!(PathBuf::from(serde_json::from_str::<WirePath>(&text).unwrap()), path);
        }
    }

    #[test]
    fn the_stable_messages_have_their_form() {
        assert_eq!(serde_json::to_string(&Request::Stop).unwrap(), "\"stop\"");
        let text = r#"{"protocol":9,"version":"3.0.0","pid":7,"sandboxes":2,"of":"the future"}"#;
        let welcome: Welcome = serde_json::from_str(text).unwrap();
        assert_eq!((welcome.protocol, welcome.pid, welcome.sandboxes), (9, 7, 2));
    }

    #[test]
    fn a_report_of_long_paths_fits_into_a_message() {
        // Control characters are the longest as JSON.
        let path = PathBuf::from("\u{1}".repeat(4000));
        let mut report = CopyReport { files: 1, ..CopyReport::default() };
        for _ in 0..9000 {
            report.skip(path.clone(), "y");
            report.note_outward_link(path.clone());
        }
        let copied = Copied::from(report.clone());
        assert!(serde_json::to_vec(&copied).unwrap().len() < 7 << 20);
        assert_eq!(CopyReport::from(copied), report);
        assert_eq!((report.skipped_count(), report.outward_link_count()), (9000, 9000));
    }
}
