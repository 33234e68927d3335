//! Prompts: the system prompt, the task prompt around a problem statement, and the directories they name.
//!
//! Prompts are data: YAML with the keys of the reference implementation, built in or the user's own. Knows no model, no
//! sandbox and no file of the host; it turns text into text.

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

/// The longest prompt config, in bytes.
pub const MAX_CONFIG: usize = 1 << 20;

/// The longest rendered prompt, in bytes.
pub const MAX_RENDERED: usize = 64 << 20;

/// Prompt templates, and the directories of the sandbox that they name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompts {
    /// Template of the system prompt; key `system_prompt`.
    pub system: String,
    /// Template of the first user message; key `instance_prompt`. Empty: the problem statement itself.
    pub task: String,
    /// The working directory of commands.
    pub working_dir: PathBuf,
    /// The directory of the input files.
    pub input_dir: PathBuf,
    /// The directory of the results.
    pub output_dir: PathBuf,
    /// Unknown keys of the config, in its order. Benchmark configs of the reference implementation have some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// The prompts of one episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The system prompt; may be empty.
    pub system: String,
    /// The first user message.
    pub user: String,
}

impl Rendered {
    /// The first messages of a conversation. An empty system prompt is left out.
    pub fn messages(self) -> Vec<Message> {
        let system = (!self.system.is_empty()).then_some(Message::System { text: self.system });
        system.into_iter().chain([Message::user(self.user)]).collect()
    }
}

/// Why a prompt config cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    /// The config is too long.
    #[error("the prompt config has {size} bytes; the limit is {MAX_CONFIG}")]
    TooLong {
        /// Its length, in bytes.
        size: usize,
    },
    /// The config is not a YAML mapping of text.
    #[error("the prompt config must be a YAML mapping whose prompts and directories are text")]
    Yaml(#[source] Box<serde_saphyr::Error>),
    /// A directory is not an absolute path.
    #[error(
        "`{key}` must be an absolute path in the sandbox without `..`, such as /testbed; it is {value}"
    )]
    Directory {
        /// The key of the config.
        key: &'static str,
        /// Its value, quoted and shortened.
        value: String,
    },
    /// A placeholder is not known.
    #[error(
        "`{key}`, line {line}: unknown placeholder {placeholder}; known are {known}; \
         write {{{{ and }}}} for literal braces"
    )]
    Placeholder {
        /// The key of the config.
        key: &'static str,
        /// The line within the prompt, from 1.
        line: usize,
        /// The placeholder, quoted and shortened.
        placeholder: String,
        /// The known placeholders.
        known: String,
    },
    /// A brace has no counterpart.
    #[error("`{key}`, line {line}: unmatched {brace}; write {brace}{brace} for a literal brace")]
    Brace {
        /// The key of the config.
        key: &'static str,
        /// The line within the prompt, from 1.
        line: usize,
        /// Which brace.
        brace: char,
    },
    /// The rendered prompt is too long.
    #[error("`{key}` has more than {MAX_RENDERED} bytes once its placeholders are filled")]
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
    /// Parses a prompt config and validates its templates, so that rendering cannot fail later but for size.
    pub fn parse(text: &str) -> Result<Self, PromptError> {
        let prompts = config::read(text)?;
        for (key, dir) in prompts.directories() {
            if !is_plain_absolute(dir) {
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

    /// Renders the prompts for a problem without input files, in a sandbox with this network. Braces in the statement
    /// are not placeholders.
    pub fn render(
        &self,
        problem_statement: &str,
        network: &Network,
    ) -> Result<Rendered, PromptError> {
        self.render_with(problem_statement, network, &Inputs::default())
    }

    /// Renders the prompts for a problem with input files, which are listed where the prompt has `{input_files}`.
    pub fn render_with(
        &self,
        problem_statement: &str,
        network: &Network,
        inputs: &Inputs,
    ) -> Result<Rendered, PromptError> {
        let network = describe_network(network);
        let inputs = inputs.describe(&self.input_dir);
        let directories =
            self.directories().map(|(key, dir)| (key, dir.to_string_lossy().into_owned()));
        let system = Template::new("system_prompt", &self.system).fill(&Values {
            directories: &directories,
            // The reference implementation fills these two with nothing, and configs written for it may have them.
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

/// A sentence for the model about its network.
fn describe_network(network: &Network) -> String {
    match network {
        Network::None => "There is no network: nothing can be downloaded or installed.".into(),
        Network::Internet => {
            "Public servers can be reached over TCP, through a proxy that is already configured: what is missing can be \
             downloaded. Private addresses, UDP and ICMP cannot be reached."
                .into()
        }
        Network::Full => "The network is open: what is missing can be downloaded.".into(),
        Network::Allow(hosts) => {
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            let hosts = hosts.join(", ");
            format!("The network is open for HTTP and HTTPS to {hosts}, and to nothing else.")
        }
    }
}

fn is_plain_absolute(dir: &Path) -> bool {
    let printable = !dir.to_string_lossy().contains(char::is_control);
    printable && dir.is_absolute() && !dir.components().any(|part| part == Component::ParentDir)
}
