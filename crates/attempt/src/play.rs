//! The entry point: plays one attempt, again where the infrastructure failed, and grades it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use agent::{
    Episode, Opening,
    prompt::{Inputs, PromptError},
};
use model::{Model, Sampling};
use problems::{Problem, Task};
use sandbox::{Network, Runtime, Sandbox};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use trajectory::{
    Ended, Fault, Line, Message, Mode, Outcome, Spent, Started, Validity, error_chain,
};

use crate::{
    Documents, EventLog, Graded, Sandboxes, Settings, collect,
    failure::Failure,
    grade::grade,
    now_ms, plain,
    sandboxes::{destroy, prepare},
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
            Mode::Sandbox => answer_in_sandbox(play, &events, &mut warnings).await,
        }
    };
    let answered = answered.instrument(span).await;
    Attempt { warnings, ..Attempt::new(answered, events.into_lines()) }
}

/// Plays one episode in a sandbox of its own.
async fn answer_in_sandbox<M: Model, R: Runtime>(
    play: &Play<'_, M, R>,
    events: &EventLog,
    warnings: &mut Vec<String>,
) -> Result<Answered, Failure> {
    let (spec, reuse) = play.settings.sandbox_for(play.task, play.problem);
    let messages = play.opening_messages(&spec.network)?;
    let _permit = play.unless_cancelled(play.sandboxes.permit()).await?;
    let (started_ms, start) = (now_ms(), Instant::now());
    let created = play.unless_cancelled(play.sandboxes.create(&spec, reuse)).await?;
    let sandbox = created.map_err(|error| Failure::sandbox(&error, Default::default()))?;
    let answered = play_episode(play, events, &sandbox, messages).await;
    if let Err(error) = destroy(sandbox).await {
        let warning = format!("a sandbox may not have been removed: {}", error_chain(&error));
        tracing::warn!("{warning}");
        warnings.push(warning);
    }
    Ok(Answered { started_ms, wall_ms: ms_since(start), ..answered? })
}

async fn play_episode<M: Model, R: Runtime>(
    play: &Play<'_, M, R>,
    events: &EventLog,
    sandbox: &R::Sandbox,
    messages: Vec<Message>,
) -> Result<Answered, Failure> {
    let preparing = prepare(sandbox, play.task, play.problem, play.settings);
    let prepared = play.unless_cancelled(preparing).await?;
    prepared.map_err(|error| Failure::sandbox(&error, Default::default()))?;
    let protection = serde_json::to_value(sandbox.protection()).unwrap_or_default();
    let opening = Opening::Fresh(Box::new(play.started(messages, protection)));
    let mut settings = play.settings.episode(play.task);
    settings.sampling = play.sampling();
    let cancel = play.cancel.clone();
    let episode = Episode::new(play.model, sandbox, events, &settings, opening, cancel);
    let Ended { outcome, spent } = agent::run(episode).await;
    Failure::check(&outcome, spent)?;
    let collecting = async {
        let answer = collect::answer(sandbox, play.task, settings.tools.set, events).await?;
        let peak_memory = sandbox.peak_memory().await.ok().flatten();
        Ok((answer, peak_memory))
    };
    let collected = play.unless_cancelled(collecting).await?;
    let (answer, peak_memory) = collected.map_err(|error| Failure::collecting(&error, spent))?;
    Ok(Answered {
        answer,
        outcome,
        usage: spent,
        started_ms: 0,
        wall_ms: 0,
        peak_memory: peak_memory.map(|size| size.0),
    })
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
        self.outcome.is_answered()
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

    /// The messages an episode starts with: the task's templates, filled with the problem and its documents.
    fn opening_messages(&self, network: &Network) -> Result<Vec<Message>, Failure> {
        let messages = messages_in_sandbox(self.task, self.problem, self.settings, network);
        messages.map_err(|error| Failure::new(Fault::Problem, &error))
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

/// The messages an attempt at a problem starts with.
///
/// # Errors
/// If the task's prompts cannot be filled with the problem.
pub fn first_messages(
    task: &Task,
    problem: &Problem,
    settings: &Settings,
    mode: Mode,
) -> Result<Vec<Message>, PromptError> {
    match mode {
        Mode::Llm => Ok(vec![Message::user(task.plain_prompt(problem))]),
        Mode::Sandbox => {
            let (spec, _) = settings.sandbox_for(task, problem);
            messages_in_sandbox(task, problem, settings, &spec.network)
        }
    }
}

fn messages_in_sandbox(
    task: &Task,
    problem: &Problem,
    settings: &Settings,
    network: &Network,
) -> Result<Vec<Message>, PromptError> {
    let (statement, inputs) = match settings.documents {
        Documents::Files => {
            let files = problem.files.iter();
            let sizes = files.map(|(name, text)| (name.clone(), text.len() as u64));
            (problem.statement.clone(), Inputs::new(sizes))
        }
        Documents::Prompt => (task.with_documents_in_prompt(problem), Inputs::default()),
    };
    Ok(task.prompts.render_with(&statement, network, &inputs)?.messages())
}

/// Milliseconds since an instant.
pub(crate) fn ms_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// How often an attempt is played before it counts as failed, and how long to wait in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The number of tries, at least 1.
    pub tries: u32,
    /// The wait before the second try; each later one is twice as long.
    pub first_wait: Duration,
}

/// The longest wait between two tries.
const MAX_WAIT: Duration = Duration::from_secs(60);

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { tries: 3, first_wait: Duration::from_secs(1) }
    }
}

/// The caller cancelled an attempt that needed another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// A try failed and another follows.
#[derive(Clone, Copy, Debug)]
pub struct Retrying<'a> {
    /// The number of tries so far.
    pub tries: u32,
    /// The wait until the next one.
    pub wait: Duration,
    /// What failed.
    pub cause: &'a str,
}

impl RetryPolicy {
    /// Calls `play` until its result needs no other try. `retry_cause` says why a result needs one. Returns the last result
    /// and the number of tries, or [`Cancelled`] where a result needs another try and the caller cancelled it.
    pub async fn run<T, F: Future<Output = T>>(
        self,
        cancel: &CancellationToken,
        retry_cause: impl Fn(&T) -> Option<&str>,
        on_retry: impl Fn(Retrying<'_>),
        mut play: impl FnMut() -> F,
    ) -> Result<(T, u32), Cancelled> {
        let mut tries = 1;
        loop {
            let played = play().await;
            let Some(cause) = retry_cause(&played).filter(|_| tries < self.tries) else {
                return Ok((played, tries));
            };
            let wait = self.wait_after(tries);
            if !cancel.is_cancelled() {
                on_retry(Retrying { tries, wait, cause });
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(Cancelled),
                () = tokio::time::sleep(wait) => {}
            }
            tries += 1;
        }
    }

    fn wait_after(self, tries: u32) -> Duration {
        self.first_wait.saturating_mul(1 << (tries - 1).min(16)).min(MAX_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn run(results: &[Option<&'static str>], tries: u32) -> (u32, Vec<u32>) {
        let policy = RetryPolicy { tries, first_wait: Duration::ZERO };
        let retries = RefCell::new(Vec::new());
        let mut left = results.iter().copied();
        let cancel = CancellationToken::new();
        let running = policy.run(
            &cancel,
            |played: &Option<&'static str>| *played,
            |retrying| retries.borrow_mut().push(retrying.tries),
            || std::future::ready(left.next().flatten()),
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (_, tries) = runtime.block_on(running).unwrap();
        (tries, retries.into_inner())
    }

    #[test]
    fn only_failures_that_may_pass_are_tried_again() {
        assert_eq!(run(&[None], 3), (1, vec![]));
        assert_eq!(run(&[Some("down"), None], 3), (2, vec![1]));
        assert_eq!(run(&[Some("down"); 5], 3), (3, vec![1, 2]));
    }

    #[test]
    fn a_cancelled_attempt_is_not_taken_for_a_failed_one() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let run = |result: Option<&'static str>| {
            let play = || std::future::ready(result);
            let running = RetryPolicy::default().run(&cancel, |played| *played, |_| {}, play);
            runtime.block_on(running)
        };
        assert_eq!(run(Some("down")), Err(Cancelled));
        assert_eq!(run(None), Ok((None, 1)), "a finished attempt counts");
    }

    #[test]
    fn waits_double_up_to_a_minute() {
        let policy = RetryPolicy::default();
        let waits = [1, 2, 3, 30].map(|tries| policy.wait_after(tries).as_secs());
        assert_eq!(waits, [1, 2, 4, 60]);
    }
}
