//! The tools of one episode: the built-in ones and those of the library's user. Finds the tool of a call.

use std::{fmt, future::Future, pin::Pin};

use model::ToolSpec;
use sandbox::{Error, Sandbox};
use serde_json::{Map, Value};
use trajectory::{Arguments, ToolCall};

use super::{ToolOutcome, Tools, short_name};

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
    /// A bad argument or a failing command is an [`Observation`](super::Observation) for the model. An error means that the sandbox
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
