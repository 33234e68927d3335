//! Bodies and queries of requests about episodes. Unknown fields are refused: a misspelt limit must not be ignored.

use std::{collections::BTreeMap, time::Duration};

use ::episodes::{EpisodeOptions, InputContent, InputFile, Keep, Task};
use base64::{Engine, prelude::BASE64_STANDARD};
use model::Sampling;
use serde::Deserialize;
use serde_json::{Map, Value};
use trajectory::Message;

use crate::error::ApiError;

/// A new episode.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewEpisode {
    task: Option<String>,
    messages: Option<Vec<Message>>,
    #[serde(default)]
    files: Vec<NewFile>,
    pub(super) model: Option<String>,
    pub(super) limits: Option<NewLimits>,
    sampling: Option<Map<String, Value>>,
    pub(super) system_prompt: Option<String>,
    pub(super) files_from: Option<String>,
    #[serde(default)]
    pub(super) keep: Keep,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
}

/// A file for the input directory, with its content as text or in base64.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewFile {
    path: String,
    text: Option<String>,
    base64: Option<String>,
}

/// Limits; what is absent stays as it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLimits {
    turns: Option<u32>,
    tokens: Option<u64>,
    tokens_per_call: Option<u64>,
    /// In seconds.
    time: Option<f64>,
    /// In dollars.
    cost: Option<f64>,
}

/// A fork of an episode.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkEpisode {
    pub(super) turn: Option<u32>,
    pub(super) model: Option<String>,
    pub(super) limits: Option<NewLimits>,
    pub(super) keep: Option<Keep>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ListQuery {
    pub(super) limit: Option<usize>,
    pub(super) after: Option<String>,
    pub(super) state: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct EventQuery {
    pub(super) after: Option<u64>,
}

impl NewEpisode {
    pub(super) fn task(&self) -> Result<Task, ApiError> {
        match (&self.task, &self.messages) {
            (Some(text), None) => Ok(Task::Text(text.clone())),
            (None, Some(messages)) => Ok(Task::Messages(messages.clone())),
            _ => Err(ApiError::invalid("give either `task` or `messages`")),
        }
    }

    pub(super) fn input(&self) -> Result<Vec<InputFile>, ApiError> {
        let file = |file: &NewFile| {
            let bytes = match (&file.text, &file.base64) {
                (Some(text), None) => text.clone().into_bytes(),
                (None, Some(encoded)) => BASE64_STANDARD.decode(encoded).map_err(|error| {
                    ApiError::invalid(format!("the file `{}` is not base64: {error}", file.path))
                })?,
                _ => {
                    let message =
                        format!("the file `{}` needs either `text` or `base64`", file.path);
                    return Err(ApiError::invalid(message));
                }
            };
            Ok(InputFile { path: (&file.path).into(), content: InputContent::Bytes(bytes) })
        };
        self.files.iter().map(file).collect()
    }

    /// What the request says about sampling, over what the operator chose for its model.
    pub(super) fn sampling(&self, options: &EpisodeOptions) -> Result<Option<Sampling>, ApiError> {
        let Some(given) = &self.sampling else { return Ok(None) };
        let bad = |error: serde_json::Error| ApiError::invalid(format!("`sampling`: {error}"));
        let named = |name: &str| options.models.iter().find(|model| model.name == name);
        let model = match self.model.as_deref() {
            Some(name) => named(name),
            None => options.models.first(),
        };
        let chosen = model.map(|model| model.sampling.clone()).unwrap_or_default();
        let mut merged = serde_json::to_value(chosen).map_err(bad)?;
        if let Value::Object(merged) = &mut merged {
            merged.extend(given.clone());
        }
        serde_json::from_value(merged).map(Some).map_err(bad)
    }
}

impl NewLimits {
    /// These limits over others.
    pub(super) fn over(&self, others: &agent::Limits) -> Result<agent::Limits, ApiError> {
        let seconds = |seconds| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|_| ApiError::invalid("`time` must be a number of seconds"))
        };
        Ok(agent::Limits {
            turns: self.turns.unwrap_or(others.turns),
            tokens: self.tokens.unwrap_or(others.tokens),
            tokens_per_call: self.tokens_per_call.unwrap_or(others.tokens_per_call),
            time: self.time.map(seconds).transpose()?.or(others.time),
            cost: self.cost.or(others.cost),
            misses: others.misses,
        })
    }
}
