//! The entry point: plays one attempt and grades it.

use std::{sync::Arc, time::Instant};

use model::{Model, Sampling};
use problems::{Problem, Task};
use sandbox::Runtime;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use trajectory::{Fault, Line, Message, Mode, Outcome, Spent, Started, Validity};

use crate::{
    EventLog, Graded, Sandboxes, Settings, episode, failure::Failure, grade::grade, now_ms, plain,
};

/// One attempt about to be played.
pub struct Play<'a, M, R: Runtime> {
    /// The problem.
    pub problem: &'a Arc<Problem>,
    /// The task it belongs to: prompts, default limits, grader.
    pub task: &'a Arc<Task>,
    /// Whether the model has a sandbox.
    pub mode: Mode,
    /// The model.
    pub model: &'a M,
    /// Creates sandboxes for the episode and for graders that need one.
    pub sandboxes: &'a Sandboxes<R>,
    /// How the attempt is played.
    pub settings: &'a Settings,
    /// The seed of this attempt, in place of the one in the settings.
    pub seed: Option<u64>,
    /// Ends the attempt early.
    pub cancel: CancellationToken,
}

/// A finished attempt.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The answer: the file the model left, its patch, or its plain response. Empty where there is none.
    pub answer: String,
    /// How the episode ended. A plain response that is complete counts as submitted.
    pub outcome: Outcome,
    /// Turns, tokens, time and cost.
    pub usage: Spent,
    /// The recorded events.
    pub events: Vec<Line>,
    /// The score, from 0 to 1. Present exactly where [`Self::validity`] is valid.
    pub score: Option<f64>,
    /// Details of the grade, by grader.
    pub grade: Value,
    /// Whether the score says something about the model, and if not, whose fault that is.
    pub validity: Validity,
    /// The start, in milliseconds since 1970.
    pub started_ms: u64,
    /// The duration in milliseconds, from the start until the sandbox is removed. Waiting for the first permit comes before.
    pub wall_ms: u64,
    /// The peak memory of the sandbox in bytes, where the runtime can tell.
    pub peak_memory: Option<u64>,
    /// Problems that did not affect the attempt, such as a sandbox that could not be removed.
    pub warnings: Vec<String>,
}

/// Plays an attempt and grades it. An answer that needs a judge stays ungraded: see [`Graded::Judge`].
pub async fn play<M: Model, R: Runtime>(play: &Play<'_, M, R>, events: EventLog) -> Attempt {
    let mut attempt = answer(play, events).await;
    if attempt.is_answered() {
        let graded = grade(play, &attempt.answer).await;
        attempt.apply(graded);
    }
    attempt
}

/// Plays an attempt up to its answer, without grading it: for callers that store the answer before grading.
pub async fn answer<M: Model, R: Runtime>(play: &Play<'_, M, R>, events: EventLog) -> Attempt {
    let span = tracing::debug_span!("attempt", problem = %play.problem.id, mode = %play.mode);
    let mut warnings = Vec::new();
    let answered = async {
        match play.mode {
            Mode::Llm => plain::answer(play, &events).await,
            Mode::Sandbox => episode::answer(play, &events, &mut warnings).await,
        }
    };
    let answered = answered.instrument(span).await;
    Attempt { warnings, ..Attempt::new(answered, events.into_lines()) }
}

/// What an attempt came to before grading.
pub(crate) struct Answered {
    pub(crate) answer: String,
    pub(crate) outcome: Outcome,
    pub(crate) usage: Spent,
    pub(crate) started_ms: u64,
    pub(crate) wall_ms: u64,
    pub(crate) peak_memory: Option<u64>,
}

impl Attempt {
    fn new(answered: Result<Answered, Failure>, events: Vec<Line>) -> Self {
        let answered = answered.unwrap_or_else(|failure| {
            let (outcome, usage) = failure.into_outcome();
            Answered {
                answer: String::new(),
                outcome,
                usage,
                started_ms: now_ms(),
                wall_ms: 0,
                peak_memory: None,
            }
        });
        let Answered { answer, outcome, usage, started_ms, wall_ms, peak_memory } = answered;
        let validity = Validity::before_grading(&outcome);
        Self {
            answer,
            outcome,
            usage,
            events,
            score: None,
            grade: Value::Null,
            validity,
            started_ms,
            wall_ms,
            peak_memory,
            warnings: Vec::new(),
        }
    }

    /// An attempt that could not be played.
    pub fn failed(fault: Fault, error: &dyn std::error::Error) -> Self {
        Self::new(Err(Failure::new(fault, error)), Vec::new())
    }

    /// Whether the episode came to an end that can be graded.
    pub fn is_answered(&self) -> bool {
        !matches!(self.outcome, Outcome::Infrastructure { .. } | Outcome::Cancelled)
    }

    /// Adds the result of grading.
    pub fn apply(&mut self, graded: Graded) {
        match graded {
            Graded::Done(grade) => {
                self.score = Some(grade.score);
                self.grade = grade.details;
                self.validity = Validity::Valid;
            }
            Graded::Judge(_) => self.validity = Validity::ungraded("no judge was asked"),
            Graded::Failed { fault, cause } => self.validity = Validity::Invalid { fault, cause },
            Graded::Cancelled => self.validity = Validity::ungraded("grading was cancelled"),
        }
    }

    /// Why the attempt should be played again: a failure of the infrastructure that may not happen again.
    pub fn retry_cause(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Infrastructure { cause, fault } if fault.is_transient() => Some(cause),
            _ => None,
        }
    }

    /// Whether the sandbox failed after the model had acted in it, so that the model may have caused it.
    pub fn broke_its_sandbox(&self) -> bool {
        let fault_of = |fault: &Fault| *fault == Fault::Sandbox && self.usage.turns > 0;
        matches!(&self.outcome, Outcome::Infrastructure { fault, .. } if fault_of(fault))
    }
}

impl<M: Model, R: Runtime> Play<'_, M, R> {
    /// The sampling of this attempt.
    pub(crate) fn sampling(&self) -> Sampling {
        let sampling = self.settings.sampling.clone();
        Sampling { seed: self.seed.or(sampling.seed), ..sampling }
    }

    /// The first event of the episode.
    pub(crate) fn started(&self, messages: Vec<Message>, protection: Value) -> Started {
        Started {
            problem_statement: self.problem.statement.clone(),
            messages,
            model: self.model.name().to_owned(),
            settings: self.settings.record(),
            protection,
            program: self.settings.program.clone(),
        }
    }

    /// Awaits something, unless the attempt is cancelled first.
    pub(crate) async fn unless_cancelled<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Failure::Cancelled),
            done = work => Ok(done),
        }
    }
}

/// Milliseconds since an instant.
pub(crate) fn ms_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
