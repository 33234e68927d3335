//! How attempts are played: everything that may change a result, as plain data that is recorded with every episode.

use std::{collections::BTreeSet, fmt, str::FromStr, time::Duration};

use agent::{
    Compaction, EpisodeSettings, FileChanges, Limits,
    tools::{ToolSet, Tools, Vision},
};
use model::{Price, Sampling};
use problems::{AnswerLocation, Problem, Task};
use sandbox::{ImageRef, Network, Spec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Reuse;

/// The version of recorded settings.
const VERSION: u32 = 1;

/// How attempts are played. All of it may change a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The version of this record.
    pub v: u32,
    /// The sandbox. A task may name its own image, and its prompts name the working directory.
    pub sandbox: Spec,
    /// The limits of an attempt.
    pub limits: LimitSettings,
    /// The time limit of one command.
    pub command_timeout: Duration,
    /// Characters of each output stream of a command that the model sees.
    pub output_chars: usize,
    /// Whether the model accepts images.
    pub vision: Vision,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The model's price, where it is known.
    pub price: Option<Price>,
    /// Whether and when old tool results are shortened.
    pub compaction: Option<Compaction>,
    /// Where the documents of a problem are.
    pub documents: Documents,
    /// Capabilities that are taken away from the model.
    pub without: BTreeSet<Capability>,
    /// Whether the files that turns change are recorded. Changes no result, so it is not part of the record.
    #[serde(skip)]
    pub changes: FileChanges,
    /// The version of the program.
    pub program: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            v: VERSION,
            sandbox: Spec::default(),
            limits: LimitSettings::default(),
            command_timeout: Duration::from_secs(120),
            output_chars: Tools::default().shown,
            vision: Vision::default(),
            sampling: Sampling::default(),
            price: None,
            compaction: None,
            documents: Documents::default(),
            without: BTreeSet::new(),
            changes: FileChanges::default(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// The limits of an attempt. What is absent is the task's to choose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitSettings {
    /// Responses of the model.
    pub turns: Option<u32>,
    /// Tokens of the whole conversation.
    pub tokens: Option<u64>,
    /// Tokens of one response in a sandbox.
    pub tokens_per_call: u64,
    /// Tokens of a plain response.
    pub plain_tokens: u64,
    /// Wall-clock time, without waiting for a permit.
    pub time: Option<Duration>,
    /// Cost in dollars.
    pub cost: Option<f64>,
    /// Consecutive responses without a valid tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses: Option<u32>,
}

impl Default for LimitSettings {
    fn default() -> Self {
        let Limits { tokens_per_call, .. } = Limits::default();
        Self {
            turns: None,
            tokens: None,
            tokens_per_call,
            plain_tokens: tokens_per_call,
            time: None,
            cost: None,
            misses: None,
        }
    }
}

/// Where the documents of a problem are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Documents {
    /// In files of the sandbox. Mode `llm` has none, and puts them into the prompt.
    #[default]
    Files,
    /// In the prompt.
    Prompt,
}

impl Documents {
    /// The name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Prompt => "prompt",
        }
    }
}

/// Something a sandbox gives a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// The network.
    External,
    /// Files that can be written.
    Files,
    /// Commands.
    Execution,
}

impl Capability {
    /// The name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Files => "files",
            Self::Execution => "execution",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a capability that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCapability(pub String);

impl fmt::Display for UnknownCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown capability `{}`; choose from external, files and execution", self.0)
    }
}

impl std::error::Error for UnknownCapability {}

impl FromStr for Capability {
    type Err = UnknownCapability;

    fn from_str(text: &str) -> Result<Self, UnknownCapability> {
        let all = [Self::External, Self::Files, Self::Execution];
        let found = all.into_iter().find(|capability| capability.name() == text);
        found.ok_or_else(|| UnknownCapability(text.to_owned()))
    }
}

impl Settings {
    /// Whether the model has this capability.
    pub fn allows(&self, capability: Capability) -> bool {
        !self.without.contains(&capability)
    }

    /// The limits of an episode of this task.
    pub fn limits(&self, task: &Task) -> Limits {
        let LimitSettings { turns, tokens, tokens_per_call, time, cost, misses, .. } = self.limits;
        Limits {
            turns: turns.unwrap_or(task.turns),
            tokens: tokens.unwrap_or(task.tokens),
            tokens_per_call,
            time,
            cost,
            misses: misses.unwrap_or(Limits::default().misses),
        }
    }

    /// The settings of an episode of this task.
    pub fn episode(&self, task: &Task) -> EpisodeSettings {
        let limits = self.limits(task);
        let file = match task.answer_location() {
            AnswerLocation::File(name) if self.allows(Capability::Files) => Some(name),
            _ => None,
        };
        EpisodeSettings {
            compaction: self.compaction.clone().map(|compaction| {
                let window = compaction.window.unwrap_or(u64::MAX).min(limits.tokens);
                Compaction { window: Some(window), ..compaction }
            }),
            limits,
            tools: Tools {
                set: self.tool_set(),
                timeout: self.command_timeout,
                shown: self.output_chars,
                vision: self.vision,
                workdir: task.prompts.working_dir.clone(),
                ..Tools::default()
            },
            sampling: self.sampling.clone(),
            price: self.price,
            output_dir: file.as_ref().map(|_| task.prompts.output_dir.clone()),
            answer_file: file.map(|name| task.prompts.output_dir.join(name)),
            changes: self.changes,
        }
    }

    /// The sandbox of an attempt at this problem, and whether many attempts want the same.
    pub(crate) fn sandbox_for(&self, task: &Task, problem: &Problem) -> (Spec, Reuse) {
        let image = task.image(problem);
        let reuse = if image == task.image { Reuse::Many } else { Reuse::Once };
        let network = match self.allows(Capability::External) {
            true => self.sandbox.network.clone(),
            false => Network::None,
        };
        let spec = Spec {
            image: image.map_or_else(|| self.sandbox.image.clone(), ImageRef::Name),
            network,
            workdir: task.prompts.working_dir.clone(),
            ..self.sandbox.clone()
        };
        (spec, reuse)
    }

    /// The tools the model has.
    pub(crate) fn tool_set(&self) -> ToolSet {
        match (self.allows(Capability::Files), self.allows(Capability::Execution)) {
            (false, _) => ToolSet::WithoutFiles,
            (true, false) => ToolSet::WithoutExecution,
            (true, true) => ToolSet::All,
        }
    }

    /// These settings as they are recorded: without the values of environment variables, which may be secrets.
    pub(crate) fn record(&self) -> Value {
        let mut settings = self.clone();
        for (_, value) in &mut settings.sandbox.env {
            value.clear();
        }
        serde_json::to_value(settings).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_limits_win_over_the_tasks() {
        let task = Task::builtin("math").unwrap();
        let limits = LimitSettings { tokens: Some(7), ..LimitSettings::default() };
        let settings = Settings { limits, ..Settings::default() };
        assert_eq!((settings.limits(&task).tokens, settings.limits(&task).turns), (7, task.turns));
    }

    #[test]
    fn capabilities_decide_the_tools_and_the_network() {
        let task = Task::builtin("math").unwrap();
        let row = serde_json::json!({"id": "a", "problem_statement": "?", "ground_truth": "1"});
        let problem = Problem::from_row(row).unwrap();
        let with = |without: &[Capability]| Settings {
            without: without.iter().copied().collect(),
            sandbox: Spec { network: Network::Full, ..Spec::default() },
            ..Settings::default()
        };
        let network = |settings: Settings| settings.sandbox_for(&task, &problem).0.network;
        assert_eq!(network(with(&[])), Network::Full);
        assert_eq!(network(with(&[Capability::External])), Network::None);
        assert_eq!(with(&[Capability::Files]).tool_set(), ToolSet::WithoutFiles);
        assert_eq!(with(&[Capability::Execution]).tool_set(), ToolSet::WithoutExecution);
        assert_eq!(with(&[Capability::Files]).episode(&task).output_dir, None);
    }

    #[test]
    fn records_hold_no_values_of_variables_and_can_be_read_back() {
        let env = vec![("KEY".to_owned(), "secret".to_owned())];
        let sandbox = Spec { env, ..Spec::default() };
        let settings = Settings { sandbox, ..Settings::default() };
        let record = settings.record();
        assert!(!record.to_string().contains("secret"), "{record}");
        let mut read: Settings = serde_json::from_value(record).unwrap();
        read.sandbox.env.clone_from(&settings.sandbox.env);
        assert_eq!(read, settings);
    }
}
