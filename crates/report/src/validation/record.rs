//! What is stored of a validation: an episode per line, and a description of the set.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The format version.
pub const VERSION: u32 = 1;

/// The name of the files of a set without a name.
pub const UNNAMED: &str = "validation";

/// The largest stored part of an answer, in bytes.
pub const MAX_ANSWER_BYTES: usize = 4096;

/// The longest stored text besides, in bytes.
const MAX_TEXT_BYTES: usize = 512;

/// One episode of a validation set: a line of `NAME.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodeRecord {
    /// The id of the problem.
    pub id: String,
    /// The kind of problem, where the row has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its level, where the row has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// A digest of the problem's text, so that only equal problems are compared.
    #[serde(default)]
    pub digest: String,
    /// The number of the episode among those of the problem, from 0.
    pub member: u32,
    /// The answer, at most [`MAX_ANSWER_BYTES`] of it.
    pub answer: String,
    /// The size of the whole answer, in bytes.
    #[serde(default)]
    pub answer_bytes: u64,
    /// The score of the answer, from 0 to 1, however the episode ended; none where the infrastructure failed.
    pub score: Option<f64>,
    /// The reward: the score, but 0 where training penalizes the end of the episode.
    pub reward: Option<f64>,
    /// Whether the score is 1.
    pub success: bool,
    /// Responses of the model.
    pub turns: u32,
    /// Tokens the model sampled.
    pub response_tokens: u64,
    /// Tokens of the environment in between.
    pub environment_tokens: u64,
    /// Tokens of the first prompt.
    pub prompt_tokens: u64,
    /// How the episode ended.
    pub end: String,
    /// What failed, where something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Seconds from the start of the episode, waiting included, to its grade.
    #[serde(default)]
    pub seconds: f64,
    /// The file of its events, relative to the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<String>,
}

impl EpisodeRecord {
    /// The record with its texts bounded: they come from models and data.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.answer_bytes = self.answer.len() as u64;
        truncate(&mut self.answer, MAX_ANSWER_BYTES);
        for text in [&mut self.kind, &mut self.level, &mut self.why].into_iter().flatten() {
            truncate(text, MAX_TEXT_BYTES);
        }
        self
    }

    /// Whether it ended at a limit: of turns, tokens or time.
    pub fn reached_limit(&self) -> bool {
        matches!(self.end.as_str(), "max_turns" | "truncated" | "timeout")
    }
}

fn truncate(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
}

/// A measured set: `NAME.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetInfo {
    /// The format version.
    pub version: u32,
    /// The name of the set; none for the set of `[validation]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The step after which it was measured.
    pub step: u64,
    /// Task, data, limits and sampling.
    pub settings: Map<String, Value>,
    /// Metrics by name, without the prefix `validation/`.
    pub metrics: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded_at_characters() {
        let answer = "é".repeat(MAX_ANSWER_BYTES);
        let why = Some("x".repeat(5000));
        let record = EpisodeRecord { answer, why, ..EpisodeRecord::default() }.bounded();
        assert_eq!(record.answer.len(), MAX_ANSWER_BYTES);
        assert_eq!(record.answer_bytes, 2 * MAX_ANSWER_BYTES as u64);
        assert_eq!(record.why.unwrap().len(), MAX_TEXT_BYTES);
    }

    #[test]
    fn records_of_other_versions_are_read() {
        let line = "{\"id\":\"a\",\"member\":0,\"answer\":\"x\",\"score\":null,\"reward\":null,\"success\":false,\
                    \"turns\":1,\"response_tokens\":2,\"environment_tokens\":3,\"prompt_tokens\":4,\"end\":\"timeout\",\
                    \"later\":true}";
        let record: EpisodeRecord = serde_json::from_str(line).unwrap();
        assert_eq!((record.id.as_str(), record.score, record.kind), ("a", None, None));
    }
}
