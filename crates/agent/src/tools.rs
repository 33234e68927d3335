//! The tools of a model, built in or your own: finds the tool of a call and executes it.
//!
//! A failing command or a malformed call is an observation. An error means that the sandbox itself failed.
//!
//! | file | does |
//! |---|---|
//! | `specs` | names, descriptions and parameters, as the model reads them |
//! | `tool_set` | which built-in tools there are, and the answer given to `submit` |
//! | `arguments` | reads the arguments of a call |
//! | `bash` | `execute_bash` |
//! | `sanitize`, `truncate` | command output: control sequences removed, the middle of long output cut out |
//! | `edit`, `view` | `str_replace_editor` |
//! | `text_edit`, `mismatch` | replaces and inserts text; explains why a text was not found |
//! | `numbered_lines`, `directory_listing`, `file_kind` | how files, directories and images are shown |

mod arguments;
mod bash;
mod directory_listing;
mod edit;
mod file_kind;
mod mismatch;
mod numbered_lines;
mod sanitize;
mod specs;
mod text_edit;
mod tool_set;
mod truncate;
mod view;

use std::{fmt, future::Future, io, path::PathBuf, pin::Pin, time::Duration};

use model::ToolSpec;
use sandbox::{Error, Sandbox};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trajectory::{Arguments, Content, ToolCall};

use self::arguments::ToolArguments;
pub(crate) use self::arguments::short_name;
pub use self::tool_set::{MAX_ANSWER, ToolSet, submitted_answer};

/// Name of the tool that runs a command.
pub const EXECUTE: &str = "execute_bash";
/// Name of the tool that shows and changes files.
pub const EDIT: &str = "str_replace_editor";
/// Name of the tool that ends the episode.
pub const SUBMIT: &str = "submit";

/// Settings of the built-in tools.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Which tools there are.
    pub set: ToolSet,
    /// Time limit of a command; 120 s by default.
    pub timeout: Duration,
    /// The most characters of each output stream, or of a file, that the model sees; 12,000 by default. Longer
    /// output is saved to a file in `spill`.
    pub shown: usize,
    /// Directory for long output, inside the sandbox.
    pub spill: PathBuf,
    /// Directory that relative paths start from, inside the sandbox.
    pub workdir: PathBuf,
    /// Whether the model accepts images.
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

/// Whether a model accepts images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vision {
    /// It accepts images.
    Images,
    /// It accepts text only.
    #[default]
    TextOnly,
}

/// The result of a tool call, as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Text and images.
    pub content: Vec<Content>,
    /// Whether the call was at fault: an unknown tool, missing arguments, a path that does not exist.
    pub is_error: bool,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
}

impl Observation {
    /// A result that is text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], is_error: false, exit_code: None }
    }

    /// An explanation of what is wrong with a call.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }
}

/// What a tool call leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolOutcome {
    /// The call was executed; the model continues with this.
    Observed(Observation),
    /// The call was not executed: the tool does not exist, or its arguments cannot be used. A turn with no other
    /// calls counts towards [`Limits::misses`](crate::Limits::misses).
    Refused(Observation),
    /// The model declared its work done.
    Submitted,
}

impl ToolOutcome {
    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self::Refused(Observation::error(why))
    }
}

impl From<Observation> for ToolOutcome {
    fn from(observation: Observation) -> Self {
        Self::Observed(observation)
    }
}

impl Tools {
    /// The specs of the built-in tools.
    pub fn specs(&self) -> Vec<ToolSpec> {
        specs::specs(self.set, self.timeout)
    }

    /// Executes one call to a built-in tool. `number` is unique within the episode; it names the file of a long
    /// output.
    pub async fn call<S: Sandbox>(
        &self,
        call: &ToolCall,
        number: u32,
        sandbox: &S,
    ) -> Result<ToolOutcome, Error> {
        Toolbox::new(self).call(call, number, sandbox).await
    }

    /// Executes a call to a tool of the set.
    async fn execute<S: Sandbox>(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        number: u32,
        sandbox: &S,
    ) -> Result<ToolOutcome, Error> {
        let arguments = ToolArguments { tool, map: arguments };
        let observation = match tool {
            SUBMIT if self.set.submits_answer() => {
                return Ok(match tool_set::answer(arguments) {
                    Ok(_) => ToolOutcome::Submitted,
                    Err(why) => ToolOutcome::refused(why),
                });
            }
            SUBMIT => return Ok(ToolOutcome::Submitted),
            EXECUTE => match arguments.text("command") {
                Ok(command) => bash::execute(self, command, number, sandbox).await?,
                Err(why) => return Ok(ToolOutcome::refused(why)),
            },
            _ => match edit::Request::read(arguments) {
                Ok(request) => edit::execute(self, &request, sandbox).await?,
                Err(why) => return Ok(ToolOutcome::refused(why)),
            },
        };
        Ok(observation.into())
    }
}

/// A tool of your own, for [`Episode::with_tools`](crate::Episode::with_tools).
///
/// ```
/// # extern crate model as lis_model;
/// # extern crate sandbox as lis_sandbox;
/// use lis_agent::{Observation, Tool, ToolFuture};
/// use lis_model::ToolSpec;
/// use lis_sandbox::Sandbox;
/// use serde_json::{Map, Value, json};
///
/// /// Counts the entries of a directory in the sandbox.
/// struct CountEntries;
///
/// impl<S: Sandbox> Tool<S> for CountEntries {
///     fn spec(&self) -> ToolSpec {
///         ToolSpec {
///             name: "count_entries".into(),
///             description: "Count the entries of a directory.".into(),
///             parameters: json!({
///                 "type": "object",
///                 "properties": {"path": {"type": "string"}},
///                 "required": ["path"],
///             }),
///         }
///     }
///
///     fn call<'a>(&'a self, arguments: &'a Map<String, Value>, sandbox: &'a S) -> ToolFuture<'a> {
///         Box::pin(async move {
///             let Some(path) = arguments.get("path").and_then(Value::as_str) else {
///                 return Ok(Observation::error("the argument `path` is missing").into());
///             };
///             let entries = sandbox.list(path.as_ref()).await?;
///             Ok(Observation::text(entries.len().to_string()).into())
///         })
///     }
/// }
/// ```
pub trait Tool<S>: Send + Sync {
    /// The name, the description and the parameters the model gets to see.
    fn spec(&self) -> ToolSpec;

    /// Executes one call. The arguments are a JSON object, not checked against the schema.
    ///
    /// A bad argument or a failing command is an [`Observation`] for the model. An error means that the sandbox
    /// failed, and ends the episode with [`Fault::Sandbox`](trajectory::Fault::Sandbox).
    fn call<'a>(&'a self, arguments: &'a Map<String, Value>, sandbox: &'a S) -> ToolFuture<'a>;
}

/// The future of a call to a [`Tool`].
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<ToolOutcome, Error>> + Send + 'a>>;

/// The tools of one episode.
pub(crate) struct Toolbox<'a, S> {
    builtin: &'a Tools,
    custom: Vec<(String, &'a dyn Tool<S>)>,
    specs: Vec<ToolSpec>,
}

impl<S> fmt::Debug for Toolbox<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.specs.iter().map(|spec| &spec.name)).finish()
    }
}

impl<'a, S> Toolbox<'a, S> {
    /// The built-in tools.
    pub(crate) fn new(builtin: &'a Tools) -> Self {
        Self { builtin, custom: Vec::new(), specs: builtin.specs() }
    }

    /// Adds tools. Each replaces the one of the same name.
    pub(crate) fn add(&mut self, tools: &[&'a dyn Tool<S>]) {
        for tool in tools {
            let spec = tool.spec();
            self.specs.retain(|known| known.name != spec.name);
            self.custom.retain(|(name, _)| *name != spec.name);
            self.custom.push((spec.name.clone(), *tool));
            self.specs.push(spec);
        }
    }

    /// The specs the model gets.
    pub(crate) fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// Executes one call. `number` is unique within the episode; it names the file of a long output.
    pub(crate) async fn call(
        &self,
        call: &ToolCall,
        number: u32,
        sandbox: &S,
    ) -> Result<ToolOutcome, Error>
    where
        S: Sandbox,
    {
        let tool = call.name.as_str();
        if !self.specs.iter().any(|spec| spec.name == tool) {
            return Ok(self.unknown(tool));
        }
        let arguments = match &call.arguments {
            Arguments::Object(arguments) => arguments,
            Arguments::Malformed { why, .. } => {
                let why =
                    format!("Nothing was done: the arguments of {tool} cannot be read: {why}");
                return Ok(ToolOutcome::refused(why));
            }
        };
        match self.custom.iter().find(|(name, _)| name == tool) {
            Some((_, custom)) => custom.call(arguments, sandbox).await,
            None => self.builtin.execute(tool, arguments, number, sandbox).await,
        }
    }

    fn unknown(&self, tool: &str) -> ToolOutcome {
        let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
        let commas = names.len().saturating_sub(2);
        let (tool, names) = (short_name(tool), names.join(" and ").replacen(" and ", ", ", commas));
        ToolOutcome::refused(format!("There is no tool `{tool}` here. The tools are {names}."))
    }
}

/// An explanation for the model of an error it caused: a wrong path, a full disk. `None` for a failure of the
/// sandbox.
fn model_error(error: &Error) -> Option<String> {
    match error {
        Error::Path { source, .. } | Error::HostPath { source, .. } => {
            // The number of an operating system error says nothing to a model.
            let why = source.to_string();
            Some(why.split(" (os error").next().unwrap_or(&why).to_owned())
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
}
