//! The tools, and what the model gets to see of their results.
//!
//! A failing command or a malformed call is an observation. `Err` means that the sandbox itself failed.

mod arguments;
mod bash;
mod change;
mod clip;
mod edit;
mod hint;
mod page;
mod picture;
mod screen;
mod set;
mod specs;
mod tree;
mod view;

use std::{io, path::PathBuf, time::Duration};

use model::ToolSpec;
use sandbox::{Error, Sandbox};
use trajectory::{Arguments, Content, ToolCall};

use self::arguments::{Given, short};
pub use self::set::{MAX_ANSWER, ToolSet, submitted_answer};

/// Runs a command.
pub const EXECUTE: &str = "execute_bash";
/// Looks at files and changes them.
pub const EDIT: &str = "str_replace_editor";
/// Ends the episode.
pub const SUBMIT: &str = "submit";

/// How the tools behave.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Which of them there are.
    pub set: ToolSet,
    /// A command may take this long.
    pub timeout: Duration,
    /// Characters of each stream, or of a file, that are shown; the rest is kept in a file.
    pub shown: usize,
    /// Where long output is kept, inside the sandbox.
    pub spill: PathBuf,
    /// Where relative paths of files start, inside the sandbox.
    pub workdir: PathBuf,
    /// Whether the model can look at pictures.
    pub vision: Vision,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            set: ToolSet::All,
            timeout: Duration::from_secs(120),
            shown: 12_000,
            spill: PathBuf::from("/tmp/outputs"),
            workdir: PathBuf::from("/testbed"),
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
    /// Whether the call was at fault: an unknown tool, missing arguments, a path that is not there.
    pub is_error: bool,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
}

impl Observation {
    /// Something to read.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], is_error: false, exit_code: None }
    }

    /// What is wrong with a call.
    pub(crate) fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }
}

/// What a call leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// The model goes on with this.
    Observed(Observation),
    /// The call makes no sense: there is no such tool, or its arguments cannot be used. Nothing was done.
    Refused(Observation),
    /// The model declared its work done.
    Submitted,
}

impl Tools {
    /// What the model is told of the tools.
    pub fn specs(&self) -> Vec<ToolSpec> {
        specs::specs(self.set, self.timeout)
    }

    /// Carries out one call. `number` is unique within the episode; it names the file of a long output.
    pub async fn call<S: Sandbox>(
        &self,
        call: &ToolCall,
        number: u32,
        sandbox: &S,
    ) -> Result<Done, Error> {
        let wrong = |why: String| Ok(Done::Refused(Observation::error(why)));
        let tool = call.name.as_str();
        if !self.set.names().contains(&tool) {
            let (tool, names) = (short(tool), self.set.names().join(" and "));
            let names = names.replacen(" and ", ", ", self.set.names().len().saturating_sub(2));
            return wrong(format!("There is no tool `{tool}` here. The tools are {names}."));
        }
        let map = match &call.arguments {
            Arguments::Object(map) => map,
            Arguments::Malformed { why, .. } => {
                return wrong(format!(
                    "Nothing was done: the arguments of {tool} cannot be read: {why}"
                ));
            }
        };
        let given = Given { tool, map };
        let observation = match tool {
            SUBMIT if self.set.submits_answer() => match set::answer(given) {
                Ok(_) => return Ok(Done::Submitted),
                Err(why) => return wrong(why),
            },
            SUBMIT => return Ok(Done::Submitted),
            EXECUTE => match given.text("command") {
                Ok(command) => bash::execute(self, command, number, sandbox).await?,
                Err(why) => return wrong(why),
            },
            _ => match edit::Request::read(given) {
                Ok(request) => edit::carry_out(self, &request, sandbox).await?,
                Err(why) => return wrong(why),
            },
        };
        Ok(Done::Observed(observation))
    }
}

/// Words for the model about an error that is of its own making: its paths, or its full disk. `None` for a
/// failure of the sandbox.
fn refused(error: &Error) -> Option<String> {
    match error {
        Error::Path { why, .. } => {
            // The system's numbers mean nothing to a reader.
            Some(why.split(" (os error").next().unwrap_or(why).to_owned())
        }
        Error::Io { source, .. } if disk_full(source) => {
            Some("the computer's disk is full; delete what is not needed any more".into())
        }
        error if error.is_usage() => Some(error.to_string()),
        _ => None,
    }
}

fn disk_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
        || error.to_string().contains("No space left on device")
}
