//! How an episode ends. Every end is one of these values, never an error.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How an episode ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The model declared its work done.
    Submitted,
    /// It took all its turns.
    MaxTurns,
    /// The conversation reached its limit of tokens.
    MaxTokens,
    /// The model cannot take in more.
    ContextFull,
    /// Its time was up.
    Deadline,
    /// Its money was spent.
    Cost,
    /// It kept talking without calling a tool, or calling none that could be understood.
    NoToolCalls,
    /// Somebody stopped it.
    Cancelled,
    /// Our side failed: the sandbox, the model's server, a disk. Says nothing about the model.
    Infrastructure {
        /// What failed.
        cause: String,
    },
}

impl Outcome {
    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::MaxTurns => "max_turns",
            Self::MaxTokens => "max_tokens",
            Self::ContextFull => "context_full",
            Self::Deadline => "deadline",
            Self::Cost => "cost",
            Self::NoToolCalls => "no_tool_calls",
            Self::Cancelled => "cancelled",
            Self::Infrastructure { .. } => "infrastructure",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Infrastructure { cause } => write!(f, "infrastructure: {cause}"),
            other => f.write_str(other.name()),
        }
    }
}
