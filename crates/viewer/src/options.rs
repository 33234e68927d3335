//! What the page is told about where it runs.

use serde::Serialize;

use crate::row::Kind;

/// Options of the page.
#[derive(Clone, Debug, Default)]
pub struct PageOptions {
    /// The version of the program.
    pub program: String,
    /// What the page calls itself.
    pub title: String,
    /// Where it runs.
    pub mode: PageMode,
    /// What can be done besides reading.
    pub can: Abilities,
    /// The models that play episodes.
    pub models: Vec<String>,
    /// The limits of new episodes.
    pub limits: serde_json::Value,
    /// Command lines to copy.
    pub command_lines: Vec<CommandLine>,
}

/// Where the page runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PageMode {
    /// A directory is viewed.
    #[default]
    View,
    /// It is the page of a server.
    Serve,
    /// It is a file of its own.
    Export,
}

/// What the page can do besides reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Abilities {
    /// Start episodes.
    pub start: bool,
    /// Cancel them.
    pub cancel: bool,
    /// Resume them.
    pub resume: bool,
    /// Fork them.
    pub fork: bool,
    /// Open a terminal.
    pub terminal: bool,
}

/// A command line, with `{path}` for the run or the file of the attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// What it does.
    pub label: String,
    /// The command.
    pub template: String,
    /// For which runs.
    pub kinds: Vec<Kind>,
    /// Whether it is about an attempt.
    pub of_attempt: bool,
}
