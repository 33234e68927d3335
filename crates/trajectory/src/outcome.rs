//! How an episode ends. Every ending is an [`Outcome`], never an error.

use std::{error::Error, fmt};

use serde::{Deserialize, Serialize};

/// How an episode ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The model declared its work done.
    Submitted,
    /// The turn limit was reached.
    MaxTurns,
    /// The conversation reached its token limit.
    MaxTokens,
    /// The conversation no longer fits into the model's context.
    ContextFull,
    /// The time limit was reached.
    Deadline,
    /// The cost limit was reached.
    Cost,
    /// The model repeatedly wrote no tool call, or none that could be parsed.
    NoToolCalls,
    /// The user cancelled the episode.
    Cancelled,
    /// The infrastructure failed: the sandbox, the model's server, a disk. Says nothing about the model.
    Infrastructure {
        /// What failed, with its chain of causes.
        cause: String,
        /// Which part failed.
        #[serde(default, skip_serializing_if = "Fault::is_unknown")]
        fault: Fault,
    },
}

impl Outcome {
    /// An infrastructure failure with the error's chain of causes.
    pub fn infrastructure(fault: Fault, error: &dyn Error) -> Self {
        Self::Infrastructure { cause: error_text::chain(error), fault }
    }

    /// Whether the episode came to an end that can be graded.
    pub fn is_answered(&self) -> bool {
        !matches!(self, Self::Infrastructure { .. } | Self::Cancelled)
    }

    /// The name used in files and reports.
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
            Self::Infrastructure { cause, .. } => write!(f, "infrastructure: {cause}"),
            other => f.write_str(other.name()),
        }
    }
}

/// Which part of the infrastructure is at fault for a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The model's server failed or could not be reached. It may recover.
    ModelServer,
    /// The model's server refused the request. Repeating it is useless.
    ModelRequest,
    /// The sandbox failed, or could not be created.
    Sandbox,
    /// A record could not be written, or the machine's disk is nearly full.
    Storage,
    /// What the problem asks for cannot be provided, such as its image.
    Problem,
    /// No grade could be computed.
    Grader,
    /// Not known, as in files of earlier versions, or a fault a later version names.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Fault {
    /// Whether a new try may succeed.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::ModelServer | Self::Sandbox | Self::Storage | Self::Unknown)
    }

    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_fault_is_not_written() {
        let outcome = |text: &str| serde_json::from_str::<Outcome>(text).unwrap();
        let old = r#"{"outcome":"infrastructure","cause":"no"}"#;
        assert_eq!(serde_json::to_string(&outcome(old)).unwrap(), old);
        let fault = |outcome| match outcome {
            Outcome::Infrastructure { fault, .. } => fault,
            other => panic!("{other}"),
        };
        let named = r#"{"outcome":"infrastructure","cause":"no","fault":"model_server"}"#;
        assert_eq!(fault(outcome(named)), Fault::ModelServer);
        assert_eq!(serde_json::to_string(&outcome(named)).unwrap(), named);
        let later = r#"{"outcome":"infrastructure","cause":"no","fault":"network"}"#;
        assert_eq!(fault(outcome(later)), Fault::Unknown);
    }
}
