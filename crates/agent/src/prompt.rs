//! What a model is told before it starts: a system prompt, the task around the problem, and where files lie.
//!
//! Prompts are data: YAML of the reference's shape, built in or the user's own. Knows no model, no sandbox and
//! no file on the host; it turns text into text.

mod builtin;
mod config;
mod inputs;
mod template;

#[cfg(test)]
#[path = "prompt/prompt_tests.rs"]
mod tests;

use std::path::{Component, Path, PathBuf};

pub use builtin::BUILTIN;
pub use inputs::Inputs;
use sandbox::Network;
use serde::{Deserialize, Serialize};
use trajectory::Message;

use template::{Template, Values};

/// A prompt config may be this long, in bytes.
pub const MAX_CONFIG: usize = 1 << 20;

/// A prompt with everything filled in may be this long, in bytes.
pub const MAX_RENDERED: usize = 64 << 20;

/// Prompt templates, and the directories of the sandbox that they speak of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompts {
    /// Template of the system prompt; key `system_prompt`.
    pub system: String,
    /// Template of the first user message; key `instance_prompt`. Empty: the problem statement itself.
    pub task: String,
    /// Where commands start.
    pub working_dir: PathBuf,
    /// Where the input files are put.
    pub input_dir: PathBuf,
    /// What comes back to the caller.
    pub output_dir: PathBuf,
    /// Keys of the config that mean nothing here, in its order. The reference's benchmark configs have some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// The two messages an episode starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The system prompt; may be empty.
    pub system: String,
    /// The first user message.
    pub user: String,
}

impl Rendered {
    /// The first messages of a conversation. A model without a system prompt is told none.
    pub fn messages(self) -> Vec<Message> {
        let system = (!self.system.is_empty()).then_some(Message::System { text: self.system });
        system.into_iter().chain([Message::user(self.user)]).collect()
    }
}

/// Why a prompt config cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    /// The config is too long to be one.
    #[error("a prompt config may have {MAX_CONFIG} bytes, this one has {size}")]
    TooLong {
        /// Its length in bytes.
        size: usize,
    },
    /// The config is not a YAML mapping of text.
    #[error("the prompt config must be a YAML mapping whose prompts and directories are text")]
    Yaml(#[source] Box<serde_saphyr::Error>),
    /// A directory that does not say where in the sandbox it is.
    #[error(
        "`{key}` must be an absolute path in the sandbox without `..`, such as /testbed; it is {value}"
    )]
    Directory {
        /// The key of the config.
        key: &'static str,
        /// Its value, quoted and cut.
        value: String,
    },
    /// A placeholder that nothing fills.
    #[error(
        "`{key}`, line {line}: nothing is known to put in for {placeholder}; \
         known are {known}; braces that are meant as such are doubled: {{{{ and }}}}"
    )]
    Placeholder {
        /// The key of the config.
        key: &'static str,
        /// The line within the prompt, from 1.
        line: usize,
        /// What stands there, quoted and cut.
        placeholder: String,
        /// The placeholders that would be filled.
        known: String,
    },
    /// A brace without its counterpart.
    #[error(
        "`{key}`, line {line}: a lone {brace}; double it where a brace is meant: {brace}{brace}"
    )]
    Brace {
        /// The key of the config.
        key: &'static str,
        /// The line within the prompt, from 1.
        line: usize,
        /// Which brace.
        brace: char,
    },
    /// The filled-in prompt would be absurdly long.
    #[error("`{key}` would be longer than {MAX_RENDERED} bytes once filled in")]
    Overflow {
        /// The key of the config.
        key: &'static str,
    },
}

impl Default for Prompts {
    fn default() -> Self {
        Self {
            system: String::new(),
            task: String::new(),
            working_dir: PathBuf::from("/testbed"),
            input_dir: PathBuf::from("/testbed/input"),
            output_dir: PathBuf::from("/testbed/output"),
            unknown: Vec::new(),
        }
    }
}

impl Prompts {
    /// Reads a prompt config and checks its templates, so that nothing is left to fail once a sandbox runs.
    pub fn parse(text: &str) -> Result<Self, PromptError> {
        let prompts = config::read(text)?;
        for (key, dir) in prompts.directories() {
            if !plain_absolute(dir) {
                return Err(PromptError::Directory {
                    key,
                    value: template::quoted(&dir.to_string_lossy()),
                });
            }
        }
        prompts.render("", &Network::None)?;
        Ok(prompts)
    }

    /// The built-in set of that name, one of [`BUILTIN`].
    pub fn builtin(name: &str) -> Option<Self> {
        Self::parse(builtin::text(name)?).ok()
    }

    /// The messages for one problem without input files, to be solved with this network. The statement goes in
    /// as it is: braces in it mean nothing.
    pub fn render(
        &self,
        problem_statement: &str,
        network: &Network,
    ) -> Result<Rendered, PromptError> {
        self.render_with(problem_statement, network, &Inputs::default())
    }

    /// The same for a problem with input files. They are told of where the prompt asks for it.
    pub fn render_with(
        &self,
        problem_statement: &str,
        network: &Network,
        inputs: &Inputs,
    ) -> Result<Rendered, PromptError> {
        let network = sentence(network);
        let inputs = inputs.told(&self.input_dir);
        let directories =
            self.directories().map(|(key, dir)| (key, dir.to_string_lossy().into_owned()));
        let system = Template::new("system_prompt", &self.system).fill(&Values {
            directories: &directories,
            // The reference fills these two with nothing, and configs written for it may hold them.
            own: &[("command_docs", ""), ("demo", ""), ("network", &network)],
        })?;
        if self.task.is_empty() {
            return Ok(Rendered { system, user: problem_statement.to_owned() });
        }
        let user = Template::new("instance_prompt", &self.task).fill(&Values {
            directories: &directories,
            own: &[("problem_statement", problem_statement), ("input_files", &inputs)],
        })?;
        Ok(Rendered { system, user })
    }

    fn directories(&self) -> [(&'static str, &Path); 3] {
        [
            ("working_dir", &self.working_dir),
            ("input_dir", &self.input_dir),
            ("output_dir", &self.output_dir),
        ]
    }
}

/// What a model is told of its network: it should neither wait for what cannot come nor do without what can.
fn sentence(network: &Network) -> String {
    match network {
        Network::None => "There is no network: nothing can be downloaded or installed.".into(),
        Network::Full => "The network is open: what is missing can be downloaded.".into(),
        Network::Allow(hosts) => {
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            let hosts = hosts.join(", ");
            format!("The network is open for HTTP and HTTPS to {hosts}, and to nothing else.")
        }
    }
}

fn plain_absolute(dir: &Path) -> bool {
    let printable = !dir.to_string_lossy().contains(char::is_control);
    printable && dir.is_absolute() && !dir.components().any(|part| part == Component::ParentDir)
}
