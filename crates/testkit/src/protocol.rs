//! The two protocols: which one a path belongs to, and how responses are encoded.

use serde_json::{Value, json};
use trajectory::Usage;

use crate::{Answer, Turn, anthropic, openai};

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OpenAI's chat completions.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
}

/// Metadata of a response.
pub(crate) struct Context<'a> {
    /// Unique per server.
    pub(crate) number: u64,
    pub(crate) model: &'a str,
    /// Absent if the server sends no usage.
    pub(crate) usage: Option<Usage>,
    pub(crate) answer: &'a Answer,
}

/// A response as a stream of events.
pub(crate) struct Stream {
    pub(crate) events: Vec<String>,
    /// The index of an event that may be repeated.
    pub(crate) repeat: usize,
    /// The event that marks the end of the stream.
    pub(crate) done: String,
}

impl Protocol {
    pub(crate) fn of(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::OpenAi),
            "/v1/messages" => Some(Self::Anthropic),
            _ => None,
        }
    }

    /// Whether a stream for this request includes the token usage.
    pub(crate) fn counts(self, request: &Value) -> bool {
        self == Self::Anthropic || request["stream_options"]["include_usage"] == true
    }

    pub(crate) fn stream(self, turn: &Turn, context: &Context<'_>) -> Stream {
        match self {
            Self::OpenAi => openai::stream(turn, context),
            Self::Anthropic => anthropic::stream(turn, context),
        }
    }

    pub(crate) fn whole(self, turn: &Turn, context: &Context<'_>) -> Value {
        match self {
            Self::OpenAi => openai::whole(turn, context),
            Self::Anthropic => anthropic::whole(turn, context),
        }
    }

    /// The body of an error.
    pub(crate) fn error(self, status: u16, message: &str) -> Value {
        let kind = match status {
            400 | 413 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        match self {
            Self::OpenAi => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": status}})
            }
            Self::Anthropic => {
                json!({"type": "error", "error": {"type": kind, "message": message}})
            }
        }
    }

    /// An error within a stream.
    pub(crate) fn error_event(self, message: &str) -> String {
        let status = if self == Self::OpenAi { 500 } else { 529 };
        let error = self.error(status, message);
        match self {
            Self::OpenAi => event(None, &error),
            Self::Anthropic => event(Some("error"), &error),
        }
    }
}

/// One event of a stream.
pub(crate) fn event(name: Option<&str>, data: &Value) -> String {
    match name {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}
