//! Requests and answers of sessions as JSON.

use std::time::Duration;

use environment::{Failure, Given, Reset, RowChoice, Score, Served, Snapshot, ToolFormat};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    MAX_WAIT,
    message::{self, SentMessage},
};
use crate::error::ApiError;

/// How long a request waits for its result: for as long as the server allows, not at all, or some seconds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Wait {
    Flag(bool),
    Seconds(f64),
}

impl Default for Wait {
    fn default() -> Self {
        Self::Flag(true)
    }
}

impl Wait {
    pub(super) fn duration(self) -> Duration {
        match self {
            Self::Flag(true) => MAX_WAIT,
            Self::Flag(false) => Duration::ZERO,
            Self::Seconds(wanted) => seconds(wanted),
        }
    }
}

/// Seconds that a client wants to wait, within reason.
pub(super) fn seconds(wanted: f64) -> Duration {
    Duration::try_from_secs_f64(wanted.max(0.0)).unwrap_or(MAX_WAIT).min(MAX_WAIT)
}

/// The body of a request that only waits.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WaitBody {
    pub(super) wait: Wait,
}

/// The body of a reset.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ResetBody {
    pub(super) row: Option<SentRow>,
    pub(super) seed: Option<u64>,
    pub(super) tool_format: Option<String>,
    pub(super) limits: SentLimits,
    pub(super) wait: Wait,
}

/// A row by its place or its id.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum SentRow {
    Index(usize),
    Id(String),
}

/// Limits lower than the task's.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SentLimits {
    turns: Option<u32>,
    tokens: Option<u64>,
}

impl ResetBody {
    pub(super) fn into_reset(self, task: Option<String>) -> Result<Reset, ApiError> {
        let row = match (self.row, self.seed) {
            (Some(_), Some(_)) => {
                return Err(ApiError::invalid("give `row` or `seed`, not both"));
            }
            (Some(SentRow::Index(index)), None) => RowChoice::Index(index),
            (Some(SentRow::Id(id)), None) => RowChoice::Id(id),
            (None, Some(seed)) => RowChoice::Seed(seed),
            (None, None) => RowChoice::Any,
        };
        let format = match self.tool_format.as_deref() {
            None => ToolFormat::Native,
            Some(name) => name
                .parse()
                .map_err(|error| ApiError::invalid(format!("field `tool_format`: {error}")))?,
        };
        let SentLimits { turns, tokens } = self.limits;
        Ok(Reset { task, row, format, turns, tokens, ..Reset::default() })
    }
}

/// The body of a step.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StepBody {
    pub(super) step: Option<u32>,
    pub(super) message: Option<SentMessage>,
    pub(super) text: Option<String>,
    pub(super) finish_reason: Option<String>,
    pub(super) usage: Option<SentUsage>,
    pub(super) wait: Wait,
}

/// Tokens of a response, as servers of models count them.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SentUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl SentUsage {
    /// Input and output tokens.
    pub(super) fn counts(self) -> (u64, u64) {
        (self.prompt_tokens, self.completion_tokens)
    }
}

impl StepBody {
    pub(super) fn into_given(self) -> Result<Given, ApiError> {
        let message = match (self.message, self.text) {
            (Some(message), None) => message,
            (None, Some(text)) => SentMessage::text(text),
            _ => return Err(ApiError::invalid("give the response as `message` or as `text`")),
        };
        let cut_off = self.finish_reason.as_deref() == Some("length");
        let tokens = self.usage.map(SentUsage::counts);
        Ok(message.into_given(cut_off, tokens))
    }
}

/// A task that is served.
pub(super) fn task(served: &Served) -> Value {
    let (task, settings) = (served.task(), served.settings());
    let tools = settings.episode(task).tools.specs();
    json!({
        "name": task.name,
        "rows": served.rows(),
        "limits": limits(served),
        "tools": tools.iter().map(message::tool).collect::<Value>(),
    })
}

fn limits(served: &Served) -> Value {
    let limits = served.settings().limits(served.task());
    json!({
        "turns": limits.turns,
        "tokens": limits.tokens,
        "tokens_per_response": limits.tokens_per_call,
        "misses": limits.misses,
        "seconds": limits.time.map(|time| time.as_secs_f64()),
        "command_seconds": served.settings().command_timeout.as_secs_f64(),
    })
}

/// A session.
pub(super) fn view(snapshot: &Snapshot) -> Value {
    let mut view = json!({
        "session": snapshot.id,
        "task": snapshot.task,
        "row": { "index": snapshot.row.index, "id": snapshot.row.id },
        "state": if snapshot.is_scoring { "scoring" } else { snapshot.phase.name() },
        "step": snapshot.step,
        "done": snapshot.outcome.is_some(),
        "reason": snapshot.outcome.as_ref().map(trajectory::Outcome::name),
        "lease_seconds": snapshot.lease.as_secs_f64(),
    });
    if let Some(turn) = &snapshot.turn {
        let mut observation = json!({
            "messages": turn.messages.iter().map(message::message).collect::<Value>(),
        });
        if snapshot.step == 0 {
            observation["tools"] = turn.tools.iter().map(message::tool).collect();
        }
        if turn.outcome.is_none() {
            observation["max_tokens"] = json!(turn.max_tokens);
        }
        view["observation"] = observation;
        if let Some(message) = &turn.message {
            view["message"] = message::assistant(message);
        }
    }
    if let Some(failed) = snapshot.failure() {
        view["failure"] = failure(&failed);
    }
    if let Some(scored) = &snapshot.score {
        view["score"] = score(scored);
    }
    view
}

/// A score. Where it is not valid there is none, rather than a 0.
pub(super) fn score(score: &Score) -> Value {
    json!({
        "valid": score.failure.is_none(),
        "score": score.score,
        "failure": score.failure.as_ref().map(failure),
        "grade": score.grade,
        "reason": score.outcome.name(),
        "turns": score.spent.turns,
        "tokens": { "input": score.spent.usage.input, "output": score.spent.usage.output },
        "tool_seconds": Duration::from_millis(score.spent.tool_ms).as_secs_f64(),
    })
}

fn failure(failure: &Failure) -> Value {
    json!({
        "fault": failure.fault,
        "cause": failure.cause,
        "retry": failure.retry,
        "policy_may_be_at_fault": failure.policy_may_be_at_fault,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_bounded_whatever_is_sent() {
        for wanted in [f64::INFINITY, f64::NAN, 1e300, 601.0] {
            assert!(seconds(wanted) <= MAX_WAIT, "{wanted}");
        }
        assert_eq!(seconds(-1.0), Duration::ZERO);
        let wait = |text: &str| {
            serde_json::from_str::<WaitBody>(text).map(|body| body.wait.duration()).ok()
        };
        assert_eq!(wait("{}"), Some(MAX_WAIT));
        assert_eq!(wait(r#"{"wait": false}"#), Some(Duration::ZERO));
        assert_eq!(wait(r#"{"wait": 1.5}"#), Some(Duration::from_millis(1500)));
        assert_eq!(wait(r#"{"wait": "long"}"#), None);
    }

    #[test]
    fn contradictions_are_refused() {
        let reset = |text: &str| {
            let body: ResetBody = serde_json::from_str(text).unwrap();
            body.into_reset(None).map(|reset| (reset.row, reset.format)).map_err(|e| e.message)
        };
        assert_eq!(reset(r#"{"row": 3}"#), Ok((RowChoice::Index(3), ToolFormat::Native)));
        let fenced = reset(r#"{"seed": 3, "tool_format": "fenced"}"#);
        assert_eq!(fenced, Ok((RowChoice::Seed(3), ToolFormat::Fenced)));
        assert!(reset(r#"{"row": "a", "seed": 3}"#).is_err());
        assert!(reset(r#"{"tool_format": "json"}"#).unwrap_err().contains("hermes"));
        assert!(serde_json::from_str::<ResetBody>(r#"{"rows": 3}"#).is_err());
        for step in ["{}", r#"{"text": "a", "message": {}}"#] {
            let body: StepBody = serde_json::from_str(step).unwrap();
            assert!(body.into_given().is_err(), "{step}");
        }
    }
}
