//! Token usage and cost.

use serde::{Deserialize, Serialize};

/// The tokens of one call to a model, as counted by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens, cached ones included.
    #[serde(default)]
    pub input: u64,
    /// Of these, tokens read from the server's cache.
    #[serde(default)]
    pub cached: u64,
    /// Of these, tokens written to the server's cache.
    #[serde(default)]
    pub cache_writes: u64,
    /// Output tokens, thinking included.
    #[serde(default)]
    pub output: u64,
    /// Of these, thinking tokens.
    #[serde(default)]
    pub reasoning: u64,
    /// Whether the numbers are estimated from the length of the texts, because the server sent none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Usage {
    /// Input and output tokens.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        // The numbers come from a server: absurd ones must not overflow.
        self.input = self.input.saturating_add(other.input);
        self.cached = self.cached.saturating_add(other.cached);
        self.cache_writes = self.cache_writes.saturating_add(other.cache_writes);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.estimated = self.estimated || other.estimated;
    }
}

/// The resources an episode has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Turns: responses of the model.
    pub turns: u32,
    /// Tokens of all calls.
    pub usage: Usage,
    /// Tokens of the current conversation: input and output of the last call.
    pub context: u64,
    /// Cost in dollars, where the model's price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Milliseconds spent waiting for the model.
    pub model_ms: u64,
    /// Milliseconds spent in tools.
    pub tool_ms: u64,
}
