//! Whether the score of an attempt says something about the model, and how it was played.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Fault, Outcome};

/// How a problem is put to a model.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One plain response, without tools.
    Llm,
    /// A sandbox and tools.
    #[default]
    Sandbox,
}

impl Mode {
    /// The name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Sandbox => "sandbox",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether the score of an attempt says something about the model. Where it does not, there is no score.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "validity", rename_all = "snake_case")]
pub enum Validity {
    /// The attempt was played to its end and graded.
    Valid,
    /// The user cancelled it.
    Cancelled,
    /// Something other than the model failed.
    Invalid {
        /// What is at fault.
        fault: Fault,
        /// What failed.
        cause: String,
    },
}

impl Validity {
    /// An answer without a grade.
    pub fn ungraded(cause: impl Into<String>) -> Self {
        Self::Invalid { fault: Fault::Grader, cause: cause.into() }
    }

    /// The validity of an attempt that ended so and is not graded yet.
    pub fn before_grading(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Infrastructure { cause, fault } => {
                Self::Invalid { fault: *fault, cause: cause.clone() }
            }
            _ => Self::ungraded("not graded yet"),
        }
    }

    /// Whether the score counts.
    pub fn is_valid(&self) -> bool {
        *self == Self::Valid
    }
}
