//! Episodes in formats of others, and as one HTML file.

mod atif;
mod html;
mod messages;

pub(crate) use self::html::of_run;

use serde_json::Value;
use trajectory::Line;

use crate::{Code, Library, Scope, ViewError, events::EventIndex};

/// Bytes of events that are exported at once.
const MAX_BYTES: u64 = 512 << 20;

/// What an attempt can be exported as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportFormat {
    /// The Agent Trajectory Interchange Format.
    Atif,
    /// Messages in OpenAI's chat format, with tools.
    Messages,
    /// The events as they are recorded.
    Events,
    /// One HTML file.
    Html,
}

impl ExportFormat {
    pub(crate) fn of_name(name: &str) -> Result<Self, ViewError> {
        match name {
            "atif" => Ok(Self::Atif),
            "messages" => Ok(Self::Messages),
            "events" => Ok(Self::Events),
            "html" => Ok(Self::Html),
            other => Err(ViewError::not_found("format", other)),
        }
    }

    /// The end of a file's name, and its type.
    pub(crate) fn file(self, several: bool) -> (&'static str, &'static str) {
        match (self, several) {
            (Self::Atif, false) => ("atif.json", "application/json"),
            (Self::Atif, true) => ("atif.jsonl", "application/jsonl"),
            (Self::Messages, _) => ("messages.jsonl", "application/jsonl"),
            (Self::Events, _) => ("events.jsonl", "application/jsonl"),
            (Self::Html, _) => ("html", "text/html; charset=utf-8"),
        }
    }
}

/// What is known of an attempt besides its events.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) score: Option<f64>,
    pub(crate) extra: Value,
}

/// The events of an index. Those that cannot be parsed are left out.
fn lines(index: &EventIndex) -> Result<Vec<Line>, ViewError> {
    if index.size() > MAX_BYTES {
        let message = format!("the episode has {} bytes, more than can be exported", index.size());
        return Err(ViewError::new(Code::TooLarge, message));
    }
    let all = (1..=index.total()).map(|n| index.raw(n));
    Ok(all.flatten().filter_map(|line| serde_json::from_slice(&line).ok()).collect())
}

impl Library {
    /// An attempt in a format, as the content of a file.
    pub(crate) fn export_attempt(
        &self,
        run: &str,
        id: &str,
        format: ExportFormat,
        scope: &Scope,
    ) -> Result<String, ViewError> {
        let (found, loaded) = self.run(run)?;
        let (_, attempt) = loaded.table.find(id, scope)?;
        let index = self.events(&found.id, attempt)?;
        let row = &attempt.row;
        let about = About {
            id: format!("{}/{}", found.shown, row.id),
            session: found.shown.clone(),
            score: row.score,
            extra: serde_json::json!({
                "task": row.task, "mode": row.mode, "problem": row.problem, "repeat": row.repeat,
                "step": row.step, "set": row.set, "expected": row.expected,
            }),
        };
        match format {
            ExportFormat::Atif => Ok(atif::export(&lines(&index)?, &about).to_string()),
            ExportFormat::Messages => {
                Ok(messages::export(&lines(&index)?, &about).to_string() + "\n")
            }
            ExportFormat::Events => {
                let mut text = String::new();
                for n in 1..=index.total() {
                    text.push_str(&String::from_utf8_lossy(&index.raw(n)?));
                    text.push('\n');
                }
                Ok(text)
            }
            ExportFormat::Html => {
                Err(ViewError::invalid("a page is exported with the options of its server"))
            }
        }
    }
}
