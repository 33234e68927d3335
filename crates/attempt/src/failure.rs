//! Why an attempt has no answer: it was cancelled, or something other than the model failed.

use trajectory::{Fault, Outcome, Spent, error_chain};

/// Why an attempt has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The caller cancelled it.
    Cancelled,
    /// The infrastructure failed.
    Infrastructure {
        fault: Fault,
        cause: String,
        /// What the attempt had spent until then.
        usage: Box<Spent>,
    },
}

impl Failure {
    /// A failure before the model was queried.
    pub(crate) fn new(fault: Fault, error: &dyn std::error::Error) -> Self {
        Self::Infrastructure { fault, cause: error_chain(error), usage: Box::default() }
    }

    /// A sandbox that could not be created or used. Where the request is at fault, an image that does not exist for
    /// instance, the problem cannot be played at all.
    pub(crate) fn sandbox(error: &sandbox::Error, usage: Spent) -> Self {
        let fault = if error.is_usage() { Fault::Problem } else { Fault::Sandbox };
        Self::Infrastructure { fault, cause: error_chain(error), usage: Box::new(usage) }
    }

    /// A sandbox that failed after the episode: whatever the error, the problem is not at fault.
    pub(crate) fn collecting(error: &sandbox::Error, usage: Spent) -> Self {
        let (fault, cause) = (Fault::Sandbox, error_chain(error));
        Self::Infrastructure { fault, cause, usage: Box::new(usage) }
    }

    /// Whether the end of an episode is a failure.
    pub(crate) fn check(outcome: &Outcome, usage: Spent) -> Result<(), Self> {
        match outcome {
            Outcome::Cancelled => Err(Self::Cancelled),
            Outcome::Infrastructure { cause, fault } => Err(Self::Infrastructure {
                fault: *fault,
                cause: cause.clone(),
                usage: Box::new(usage),
            }),
            _ => Ok(()),
        }
    }

    /// The outcome of the attempt, and what it had spent.
    pub(crate) fn into_outcome(self) -> (Outcome, Spent) {
        match self {
            Self::Cancelled => (Outcome::Cancelled, Spent::default()),
            Self::Infrastructure { fault, cause, usage } => {
                (Outcome::Infrastructure { cause, fault }, *usage)
            }
        }
    }
}
