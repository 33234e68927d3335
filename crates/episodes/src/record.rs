//! The files of an episode: what was requested, and its result.

use std::{collections::BTreeMap, fmt};

use agent::Limits;
use model::Sampling;
use serde::{Deserialize, Serialize};
use trajectory::{Ended, Outcome, Spent, Validity};

use crate::{FileEntry, Keep, Task};

/// The version of these files.
pub(crate) const VERSION: u32 = 1;

/// What was requested: `episode.json`, written once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of the format.
    pub v: u32,
    /// Its id. Ids sort by time.
    pub id: String,
    /// Whose it is.
    pub owner: String,
    /// Time of its creation, in milliseconds since 1970.
    pub created: u64,
    /// The name of the model.
    pub model: String,
    /// What the model has to do.
    pub task: Task,
    /// Its limits.
    pub limits: Limits,
    /// How the model is sampled, in place of what the operator chose for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// In place of the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// What is kept of its sandbox.
    pub keep: Keep,
    /// The client's own notes.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// The image its sandbox starts from, in place of the operator's: the files another episode ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The episode it is a fork of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
}

/// Where a fork comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The episode.
    pub id: String,
    /// The last turn they share.
    pub turn: u32,
}

/// How an episode ended: `result.json`, written last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpisodeResult {
    /// The version of the format.
    pub v: u32,
    /// Time of its end, in milliseconds since 1970.
    pub ended: u64,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Whether what it achieved says something about the model, and if not, whose fault that is.
    pub validity: Validity,
    /// What it used.
    pub spent: Spent,
    /// The text of `answer.txt` in the output directory.
    #[serde(default)]
    pub answer: Option<String>,
    /// The files it left, the first ones if there are very many.
    #[serde(default)]
    pub files: Vec<FileEntry>,
    /// Why no files could be collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_error: Option<String>,
    /// Whether another episode can start with its files.
    #[serde(default)]
    pub kept: bool,
}

impl EpisodeResult {
    /// The result of an episode that ended so, without files.
    pub(crate) fn new(ended: Ended, at: u64) -> Self {
        let validity = match &ended.outcome {
            Outcome::Cancelled => Validity::Cancelled,
            Outcome::Infrastructure { cause, fault } => {
                Validity::Invalid { fault: *fault, cause: cause.clone() }
            }
            _ => Validity::Valid,
        };
        Self {
            v: VERSION,
            ended: at,
            outcome: ended.outcome,
            validity,
            spent: ended.spent,
            answer: None,
            files: Vec::new(),
            files_error: None,
            kept: false,
        }
    }

    pub(crate) fn state(&self) -> State {
        match self.outcome {
            Outcome::Cancelled => State::Cancelled,
            Outcome::Infrastructure { .. } => State::Failed,
            _ => State::Finished,
        }
    }
}

/// Where an episode stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is being played, or its sandbox is being prepared.
    Running,
    /// Its server ended. It can be resumed.
    Interrupted,
    /// The model submitted, or a limit ended it.
    Finished,
    /// A client cancelled it. It can be resumed.
    Cancelled,
    /// Something other than the model failed. It can be resumed.
    Failed,
}

impl State {
    /// The name in files and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Finished => "finished",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// The state of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        let all = [Self::Running, Self::Interrupted, Self::Finished, Self::Cancelled, Self::Failed];
        all.into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An episode in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Its id.
    pub id: String,
    /// Whose it is.
    #[serde(skip)]
    pub owner: String,
    /// Time of its creation, in milliseconds since 1970.
    pub created: u64,
    /// Where it stands.
    pub state: State,
    /// The name of the model.
    pub model: String,
    /// The beginning of the task.
    pub task: String,
    /// The client's own notes.
    pub metadata: BTreeMap<String, String>,
    /// The name of its outcome, where it ended.
    pub outcome: Option<String>,
}

/// A part of a list, newest episodes first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Page {
    /// The episodes.
    pub episodes: Vec<Summary>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<String>,
}

/// All about an episode but its events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EpisodeInfo {
    /// What was requested.
    #[serde(flatten)]
    pub record: Record,
    /// Where it stands.
    pub state: State,
    /// How it ended.
    pub result: Option<EpisodeResult>,
}
