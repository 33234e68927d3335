//! The three tools, and what the model gets to see of their results.
//!
//! A failing command or a malformed call is an observation. `Err` means that the sandbox itself failed.

use std::{path::PathBuf, time::Duration};

use model::ToolSpec;
use sandbox::{Error, Sandbox};
use trajectory::{Content, ToolCall};

/// How the tools behave.
#[derive(Clone, Debug)]
pub struct Tools {
    /// A command may take this long.
    pub timeout: Duration,
    /// Characters of each stream, or of a file, that are shown; the rest is kept in a file.
    pub shown: usize,
    /// Where long output is kept, inside the sandbox.
    pub spill: PathBuf,
    /// Whether the model can look at pictures.
    pub vision: Vision,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(120),
            shown: 12_000,
            spill: PathBuf::from("/tmp/outputs"),
            vision: Vision::TextOnly,
        }
    }
}

/// Whether a model can look at pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vision {
    /// It accepts images.
    Images,
    /// Text alone.
    TextOnly,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// What the model gets to see.
    pub content: Vec<Content>,
    /// Whether the call itself was at fault: an unknown tool, missing arguments.
    pub is_error: bool,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
}

/// What a call leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// The model goes on with this.
    Observed(Observation),
    /// The model declared its work done.
    Submitted,
}

impl Tools {
    /// What the model is told of the tools.
    pub fn specs(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    /// Carries out one call. `number` is unique within the episode; it names the file of a long output.
    pub async fn call<S: Sandbox>(
        &self,
        _call: &ToolCall,
        _number: u32,
        _sandbox: &S,
    ) -> Result<Done, Error> {
        Ok(Done::Submitted)
    }
}
