//! What a client asks for: an episode, or a fork of one.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use agent::Limits;
use model::{Permit, Sampling};
use serde::{Deserialize, Serialize};
use trajectory::{Content, Message};

use crate::Error;

/// Most bytes of metadata.
const MAX_METADATA: usize = 2 << 10;

/// A request for an episode.
#[derive(Debug, Default)]
pub struct EpisodeRequest {
    /// What the model has to do.
    pub task: Task,
    /// Files for the sandbox's input directory.
    pub input: Vec<InputFile>,
    /// The model; the first served one where absent.
    pub model: Option<String>,
    /// Its limits; the operator's where absent, and at most those.
    pub limits: Option<Limits>,
    /// How the model is sampled, in place of what the operator chose for it.
    pub sampling: Option<Sampling>,
    /// In place of the system prompt. Taken as it is, without placeholders.
    pub system_prompt: Option<String>,
    /// The files the sandbox starts with.
    pub files: FilesFrom,
    /// What is kept of the sandbox.
    pub keep: Keep,
    /// The client's own notes.
    pub metadata: BTreeMap<String, String>,
    /// Whose episode it is. Not interpreted here.
    pub owner: String,
    /// The limits of its sandbox; the operator's where absent.
    pub sandbox: Option<sandbox::Limits>,
    /// Held until the episode's sandbox is gone.
    pub permit: Permit,
    /// Learns what the episode uses.
    pub meter: Option<Arc<dyn Meter>>,
}

/// What the model has to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// A text, which the prompts are rendered around.
    Text(String),
    /// A conversation whose last message is the user's. The prompts are rendered around the text of the last message. A system
    /// message at the start is used in place of the system prompt.
    Messages(Vec<Message>),
}

impl Default for Task {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// The files a sandbox starts with, besides the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FilesFrom {
    /// Those of the image.
    #[default]
    Image,
    /// Those another episode ended with; it must have been started with [`Keep::End`] or [`Keep::EveryTurn`].
    EndOf(String),
}

/// What is kept of an episode's sandbox. The more is kept, the more disk it takes until the episode is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// What is needed to resume it.
    #[default]
    ForResume,
    /// The files at its end, for another episode.
    End,
    /// The files after every turn and at its end, for forks.
    EveryTurn,
}

/// A file for the input directory.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Its path below the input directory: relative and without `..`.
    pub path: PathBuf,
    /// Its content.
    pub content: InputContent,
}

/// The content of an input file.
#[derive(Clone)]
pub enum InputContent {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A file of the host, which is copied. The caller vouches for it.
    Host(PathBuf),
    /// A file of the host that nobody changes any more: it is linked where that is possible, and copied elsewhere.
    Stored(PathBuf),
}

impl fmt::Debug for InputContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Host(path) | Self::Stored(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A request for a fork: a new episode that continues another one after a turn.
#[derive(Debug, Default)]
pub struct Fork {
    /// The last turn of the conversation that is kept; 0 keeps the task alone. The last kept one where absent.
    pub turn: Option<u32>,
    /// The model; that of the episode where absent.
    pub model: Option<String>,
    /// The limits; those of the episode where absent.
    pub limits: Option<Limits>,
    /// What is kept of the new sandbox; as in the episode where absent.
    pub keep: Option<Keep>,
    /// As in [`EpisodeRequest`].
    pub metadata: BTreeMap<String, String>,
    /// As in [`EpisodeRequest`].
    pub owner: String,
    /// As in [`EpisodeRequest`].
    pub sandbox: Option<sandbox::Limits>,
    /// As in [`EpisodeRequest`].
    pub permit: Permit,
    /// As in [`EpisodeRequest`].
    pub meter: Option<Arc<dyn Meter>>,
}

/// What an episode needs to be resumed.
#[derive(Debug, Default)]
pub struct Resume {
    /// As in [`EpisodeRequest`].
    pub sandbox: Option<sandbox::Limits>,
    /// As in [`EpisodeRequest`].
    pub permit: Permit,
    /// As in [`EpisodeRequest`].
    pub meter: Option<Arc<dyn Meter>>,
}

/// Learns what an episode uses, and decides whether it may use more.
pub trait Meter: Send + Sync + fmt::Debug {
    /// Called before each call to the model. An error says why there may be none; the episode then fails, and can be resumed.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Called after each response of the model.
    fn on_response(&self, tokens: u64, dollars: Option<f64>);
}

impl Task {
    /// The text of the task: what the user wrote last.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Messages(messages) => match messages.last() {
                Some(Message::User { content }) => {
                    let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
                    texts.join("\n")
                }
                _ => String::new(),
            },
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Self::Messages(messages) = self {
            if !matches!(messages.last(), Some(Message::User { .. })) {
                return Err(Error::Invalid("the last message must be the user's".into()));
            }
            let is_system = |message: &Message| matches!(message, Message::System { .. });
            if messages.iter().skip(1).any(is_system) {
                let text = "a system message may only be the first";
                return Err(Error::Invalid(text.into()));
            }
        }
        match self.text().trim().is_empty() {
            true => {
                Err(Error::Invalid("the task is empty; describe what the model should do".into()))
            }
            false => Ok(()),
        }
    }
}

/// Checks the client's notes.
pub(crate) fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), Error> {
    let size: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    match size > MAX_METADATA {
        true => {
            let text = format!("the metadata has {size} bytes; the limit is {MAX_METADATA}");
            Err(Error::Invalid(text))
        }
        false => Ok(()),
    }
}

/// Checks requested limits against the highest allowed ones.
pub(crate) fn check_limits(limits: &Limits, most: &Limits) -> Result<(), Error> {
    let above = |name: &str, most: String| {
        Err(Error::Invalid(format!("`{name}` is above what this server allows, {most}")))
    };
    if limits.turns == 0 || limits.tokens == 0 || limits.tokens_per_call == 0 || limits.misses == 0
    {
        return Err(Error::Invalid("a limit of 0 lets nothing happen".into()));
    }
    if limits.cost.is_some_and(|cost| !cost.is_finite() || cost <= 0.0) {
        return Err(Error::Invalid("`cost` must be a positive number of dollars".into()));
    }
    if limits.turns > most.turns {
        return above("turns", most.turns.to_string());
    }
    if limits.tokens > most.tokens {
        return above("tokens", most.tokens.to_string());
    }
    if limits.tokens_per_call > most.tokens_per_call {
        return above("tokens_per_call", most.tokens_per_call.to_string());
    }
    if let Some(most) = most.time
        && limits.time.is_none_or(|time| time > most)
    {
        return above("time", format!("{} s", most.as_secs_f64()));
    }
    if let Some(most) = most.cost
        && limits.cost.is_none_or(|cost| cost > most)
    {
        return above("cost", format!("${most}"));
    }
    Ok(())
}
