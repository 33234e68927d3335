//! One turn of a model, as a test writes it.

use std::time::Duration;

use serde_json::{Value, json};
use trajectory::{Arguments, Stop, Usage};

/// One turn of a model: text, thinking and tool calls, any of them empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// The visible text.
    pub text: String,
    /// The thinking before the text.
    pub reasoning: String,
    /// The tool calls, in order.
    pub calls: Vec<Call>,
    /// Why generation stops. Default: derived from the calls.
    pub stop: Option<Stop>,
    /// The token usage. Default: estimated from the lengths.
    pub usage: Option<Usage>,
    /// Delay before the first piece.
    pub delay: Duration,
    /// The number of streamed pieces of each text. Default: small pieces.
    pub pieces: Option<usize>,
}

/// A tool call whose arguments may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The call's id. Default: generated.
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model writes them, JSON or not.
    pub arguments: String,
}

/// Text without a call.
pub fn say(text: impl Into<String>) -> Turn {
    Turn { text: text.into(), ..Turn::default() }
}

/// A call of `execute_bash`.
pub fn bash(command: impl AsRef<str>) -> Turn {
    calls([Call::bash(command)])
}

/// A call of `str_replace_editor`.
pub fn edit(arguments: Value) -> Turn {
    calls([Call::new("str_replace_editor", arguments)])
}

/// A call of `submit`, which ends the episode.
pub fn submit() -> Turn {
    calls([Call::submit()])
}

/// Several calls in one turn.
pub fn calls(calls: impl IntoIterator<Item = Call>) -> Turn {
    Turn { calls: calls.into_iter().collect(), ..Turn::default() }
}

impl Turn {
    /// Sets the text before the calls.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Sets the thinking before the text.
    #[must_use]
    pub fn reasoning(mut self, reasoning: impl Into<String>) -> Self {
        self.reasoning = reasoning.into();
        self
    }

    /// Sets why generation stops.
    #[must_use]
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Sets the token usage.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Sets the input and output tokens.
    #[must_use]
    pub fn tokens(self, input: u64, output: u64) -> Self {
        self.usage(Usage { input, output, ..Usage::default() })
    }

    /// Sets a delay before the first piece.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the number of streamed pieces of each text, where it has as many characters.
    #[must_use]
    pub fn pieces(mut self, pieces: usize) -> Self {
        self.pieces = Some(pieces);
        self
    }

    /// Why generation stops.
    pub(crate) fn stop_reason(&self) -> Stop {
        let usual = if self.calls.is_empty() { Stop::End } else { Stop::ToolCalls };
        self.stop.clone().unwrap_or(usual)
    }

    /// The token usage after `read` bytes of conversation.
    pub(crate) fn usage_after(&self, read: usize) -> Usage {
        let calls: usize =
            self.calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
        self.usage.unwrap_or_else(|| Usage {
            input: tokens(read),
            output: tokens(self.text.len() + self.reasoning.len() + calls).max(1),
            reasoning: tokens(self.reasoning.len()),
            ..Usage::default()
        })
    }

    /// Splits a text into the pieces that are streamed.
    pub(crate) fn cut<'a>(&self, text: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
        // Long texts in larger pieces, instead of a million tiny events.
        let usual = 12.max(text.len() / 1024);
        let size = self.pieces.map_or(usual, |pieces| text.len().div_ceil(pieces.max(1)));
        cut(text, size.max(1))
    }
}

impl Call {
    /// A call with these arguments.
    pub fn new(name: impl Into<String>, arguments: Value) -> Self {
        Self::raw(name, arguments.to_string())
    }

    /// A call with any text as arguments, JSON or not.
    pub fn raw(name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self { id: None, name: name.into(), arguments: arguments.into() }
    }

    /// A call of `execute_bash`.
    pub fn bash(command: impl AsRef<str>) -> Self {
        Self::new("execute_bash", json!({"command": command.as_ref()}))
    }

    /// A call of `submit`.
    pub fn submit() -> Self {
        Self::new("submit", json!({}))
    }

    /// Sets the id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The arguments as a client parses them.
    pub(crate) fn parsed(&self) -> Arguments {
        match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(map)) => Arguments::Object(map),
            Ok(_) => self.malformed("the arguments are no JSON object".into()),
            Err(error) => self.malformed(error.to_string()),
        }
    }

    fn malformed(&self, why: String) -> Arguments {
        Arguments::Malformed { malformed: self.arguments.clone(), why }
    }
}

/// Four bytes make a token, roughly.
fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

/// Pieces of about `size` bytes, never splitting a character.
fn cut(mut text: &str, size: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let end = (size.min(text.len())..=text.len()).find(|at| text.is_char_boundary(*at))?;
        let (piece, rest) = text.split_at(end);
        text = rest;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_is_the_same_text_in_small_pieces() {
        let text = "sum = Σ primes below 1000, größer als nichts; 素数の和は 76127";
        let pieces: Vec<_> = say(text).cut(text).collect();
        assert_eq!(pieces.concat(), text);
        assert!(pieces.len() > 3);
        let three: Vec<_> = say(text).pieces(3).cut(text).collect();
        assert_eq!(three.concat(), text);
        assert_eq!(three.len(), 3);
        assert_eq!(say("").cut("").count(), 0);
    }

    #[test]
    fn broken_arguments_are_called_so() {
        assert!(matches!(Call::submit().parsed(), Arguments::Object(map) if map.is_empty()));
        let half = Call::raw("execute_bash", r#"{"command": "rm -rf /tm"#);
        assert!(
            matches!(half.parsed(), Arguments::Malformed { malformed, .. } if malformed == half.arguments)
        );
        assert!(matches!(Call::raw("submit", "[]").parsed(), Arguments::Malformed { .. }));
    }

    #[test]
    fn the_reason_to_stop_follows_from_the_calls() {
        assert_eq!(say("hello").stop_reason(), Stop::End);
        assert_eq!(bash("ls").stop_reason(), Stop::ToolCalls);
        assert_eq!(bash("ls").stop(Stop::Length).stop_reason(), Stop::Length);
    }
}
