//! Detects a model that makes the same call again and gets the same result, and makes its next response more random.

use std::borrow::Cow;

use model::Sampling;
use trajectory::{Content, ToolCall};

/// The temperature of a response after a repetition, where the usual one is lower.
const TEMPERATURE: f64 = 0.8;

/// The last tool call, and whether it repeated the one before.
#[derive(Debug, Default)]
pub(super) struct Repetition {
    last: Option<(ToolCall, Vec<Content>)>,
    /// Whether a call of the last turn was a repetition.
    repeated: bool,
}

impl Repetition {
    /// Whether a call and its result are those of the call before.
    pub(super) fn is_repeated(&mut self, call: &ToolCall, result: Vec<Content>) -> bool {
        let same = self.last.as_ref().is_some_and(|(last, before)| {
            last.name == call.name && last.arguments == call.arguments && *before == result
        });
        self.repeated |= same;
        self.last = Some((call.clone(), result));
        same
    }

    /// The sampling of the next response. A model that repeats itself at a low temperature would continue to.
    pub(super) fn sampling<'a>(&mut self, usual: &'a Sampling) -> Cow<'a, Sampling> {
        let repeated = std::mem::take(&mut self.repeated);
        match usual.temperature {
            Some(temperature) if repeated && temperature < TEMPERATURE => {
                Cow::Owned(Sampling { temperature: Some(TEMPERATURE), ..usual.clone() })
            }
            _ => Cow::Borrowed(usual),
        }
    }
}
