//! Tokens and money.

use serde::{Deserialize, Serialize};

/// The tokens of one call to a model, as its server counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, those from a cache included.
    #[serde(default)]
    pub input: u64,
    /// Of these, tokens the server had in its cache.
    #[serde(default)]
    pub cached: u64,
    /// Of these, tokens the server was paid to put into its cache.
    #[serde(default)]
    pub cache_writes: u64,
    /// Tokens written, thinking included.
    #[serde(default)]
    pub output: u64,
    /// Of these, tokens of thinking.
    #[serde(default)]
    pub reasoning: u64,
    /// The server counted nothing: the figures are estimated from the length of the texts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Usage {
    /// Tokens read and written.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        // The figures are a server's word: absurd ones must not end the program.
        self.input = self.input.saturating_add(other.input);
        self.cached = self.cached.saturating_add(other.cached);
        self.cache_writes = self.cache_writes.saturating_add(other.cache_writes);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.estimated = self.estimated || other.estimated;
    }
}

/// What an episode has used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Replies of the model.
    pub turns: u32,
    /// Tokens of all calls together.
    pub usage: Usage,
    /// Tokens of the conversation as it stands: those of the last call, read and written.
    pub context: u64,
    /// Dollars, where the model's price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Milliseconds spent waiting for the model.
    pub model_ms: u64,
    /// Milliseconds spent in tools.
    pub tool_ms: u64,
}
