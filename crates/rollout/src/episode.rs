//! One rollout: an attempt played by a policy, repeated when the infrastructure failed, and rewarded.

use std::{
    fs::File,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use attempt::{Attempt, Cancelled, EventLog, Fault, Graded, Mode, Play};
use model::{Formatted, ToolFormat};
use problems::Problem;
use sandbox::Runtime;
use tokio_util::sync::CancellationToken;
use trajectory::{Arguments, Event, Line, Outcome};

use crate::{
    End, Loss, PolicyModel, Reward, Rollout, Sampler, SamplingParams, Segment, engine::Shared,
};

/// One rollout about to be played.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) problem: Arc<Problem>,
    /// The position in its group, from 0.
    pub(crate) number: u32,
    pub(crate) params: SamplingParams,
    /// The file of its events.
    pub(crate) file: Option<PathBuf>,
}

/// An attempt with its tokens and its raw reward.
struct Played {
    attempt: Attempt,
    segments: Vec<Segment>,
    reward: RawReward,
}

/// What an attempt is worth.
enum RawReward {
    /// This much.
    Known(f64),
    /// 0, if every try ends so: the policy broke its sandbox or the grader, which must not let it escape a reward.
    Broken(String),
    /// Unknown: something else failed.
    Missing { cause: String, is_transient: bool },
}

impl<R: Runtime> Shared<R> {
    /// Plays a rollout until it says something about the policy, or the infrastructure has failed too often.
    pub(crate) async fn rollout<S: Sampler>(
        &self,
        sampler: &Arc<S>,
        member: &Member,
        cancel: CancellationToken,
    ) -> Result<Rollout, Cancelled> {
        let start = Instant::now();
        let broken = AtomicU32::new(0);
        let playing = || async {
            let played = self.play(sampler, member, &cancel).await;
            broken.fetch_add(played.broke_its_sandbox().into(), Ordering::Relaxed);
            played
        };
        let (mut played, tries) =
            self.settings.retry.run(&cancel, Played::retry_cause, |_| {}, playing).await?;
        if played.attempt.outcome == Outcome::Cancelled {
            return Err(Cancelled);
        }
        // Once may be chance.
        if played.broke_its_sandbox() && broken.into_inner() < tries.max(2) {
            played.reward = played.reward.missing();
        }
        let wall_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(Rollout { tries, wall_ms, ..self.rewarded(member, played) })
    }

    async fn play<S: Sampler>(
        &self,
        sampler: &Arc<S>,
        member: &Member,
        cancel: &CancellationToken,
    ) -> Played {
        let settings = &self.settings;
        let format = match settings.mode {
            Mode::Sandbox => settings.format,
            Mode::Llm => ToolFormat::Native,
        };
        let (sampler, codec) = (Arc::clone(sampler), Arc::clone(&self.codec));
        let policy = PolicyModel::new(&settings.name, sampler, codec, member.params, format);
        let policy = Arc::new(policy);
        let model = Formatted::new(Arc::clone(&policy), format);
        let play = Play {
            problem: &member.problem,
            task: &self.task,
            mode: settings.mode,
            model: &model,
            sandboxes: &self.sandboxes,
            settings: &settings.attempt,
            seed: None,
            cancel: cancel.clone(),
        };
        let permit = self.permit(cancel).await;
        let mut attempt = match event_log(member.file.as_ref()) {
            Ok(events) => attempt::answer(&play, events).await,
            Err(error) => return Played::without_events(&error),
        };
        // A server that is slow, busy or dead says nothing about the policy.
        if attempt.outcome == Outcome::Deadline && policy.awaits_server() {
            let cause = "the time limit was reached while the inference server sampled".into();
            attempt.outcome = Outcome::Infrastructure { cause, fault: Fault::ModelServer };
        }
        let segments = policy.segments();
        // Its slot in the sampler's cache is free while the answer is graded.
        policy.release();
        drop(permit);
        let reward = match attempt.is_answered() {
            false => RawReward::of_failure(&attempt),
            true => {
                let graded = match &self.reward {
                    Reward::Grader => attempt::grade(&play, &attempt.answer).await,
                    Reward::Custom(reward) => tokio::select! {
                        () = cancel.cancelled() => Graded::Cancelled,
                        graded = custom(reward, &member.problem, &attempt.answer) => graded,
                    },
                };
                let reward = RawReward::of_grade(&graded);
                if matches!(graded, Graded::Cancelled) {
                    attempt.outcome = Outcome::Cancelled;
                }
                attempt.apply(graded);
                reward
            }
        };
        Played { attempt, segments, reward }
    }

    fn rewarded(&self, member: &Member, played: Played) -> Rollout {
        let Played { attempt, segments, reward } = played;
        let (raw, why) = match reward {
            RawReward::Missing { cause, .. } => return Rollout::lost(member, cause),
            RawReward::Known(raw) => (raw, None),
            RawReward::Broken(why) => (0.0, Some(why)),
        };
        let end = if why.is_some() { End::Infrastructure } else { End::of(&attempt.outcome) };
        let sum = |count: fn(&Segment) -> usize| segments.iter().map(count).sum();
        let CallCounts { turns, calls, valid_calls, silent_turns } =
            CallCounts::of(&attempt.events);
        let score = self.settings.overlong.reward(end, raw);
        Rollout {
            end,
            reward: Some(self.settings.shaping.reward(score, turns)),
            raw_reward: Some(raw),
            loss: self.settings.overlong.loss(end),
            answer: if why.is_some() { String::new() } else { attempt.answer },
            why,
            turns,
            calls,
            valid_calls,
            silent_turns,
            prompt_tokens: segments.first().map_or(0, Segment::prompt_tokens),
            response_tokens: sum(Segment::response_tokens),
            environment_tokens: sum(Segment::environment_tokens),
            segments,
            events: attempt.events,
            ..Rollout::blank(member)
        }
    }
}

impl Played {
    /// An attempt that was not played, because its events cannot be recorded.
    fn without_events(error: &io::Error) -> Self {
        let attempt = Attempt::failed(Fault::Storage, error);
        let reward = RawReward::of_failure(&attempt);
        Self { attempt, segments: Vec::new(), reward }
    }

    /// Why another try is needed.
    fn retry_cause(&self) -> Option<&str> {
        match &self.reward {
            RawReward::Missing { cause, is_transient: true } => Some(cause),
            // The same seeds make the policy act the same way: if its sandbox breaks every time, it was the policy.
            RawReward::Broken(why) if self.broke_its_sandbox() => Some(why),
            _ => None,
        }
    }

    /// Whether its sandbox failed after the policy had acted. If not, but the reward is broken, the grader failed.
    fn broke_its_sandbox(&self) -> bool {
        matches!(self.reward, RawReward::Broken(_)) && !self.attempt.is_answered()
    }
}

impl RawReward {
    /// The same failure, without saying that it was the policy's.
    fn missing(self) -> Self {
        match self {
            Self::Broken(cause) => Self::Missing { cause, is_transient: true },
            other => other,
        }
    }

    fn of_failure(attempt: &Attempt) -> Self {
        let Outcome::Infrastructure { cause, fault } = &attempt.outcome else {
            return Self::Missing { cause: "cancelled".into(), is_transient: false };
        };
        match attempt.broke_its_sandbox() {
            true => Self::Broken(cause.clone()),
            false => Self::Missing { cause: cause.clone(), is_transient: fault.is_transient() },
        }
    }

    fn of_grade(graded: &Graded) -> Self {
        let missing =
            |cause: &str, is_transient| Self::Missing { cause: cause.into(), is_transient };
        match graded {
            Graded::Done(grade) => Self::Known(grade.score),
            Graded::Failed { fault: Fault::Grader, cause } => Self::Broken(cause.clone()),
            Graded::Failed { fault, cause } => missing(cause, fault.is_transient()),
            Graded::Judge(_) => missing("a judge cannot give rewards", false),
            Graded::Cancelled => missing("cancelled", false),
        }
    }
}

/// Calls a reward function on a thread of its own. A reward that is not finite is a failure: nothing could be learned.
async fn custom(reward: &crate::CustomReward, problem: &Arc<Problem>, answer: &str) -> Graded {
    let (reward, problem, answer) = (Arc::clone(reward), Arc::clone(problem), answer.to_owned());
    let id = problem.id.clone();
    let computed = tokio::task::spawn_blocking(move || reward(&problem, &answer)).await;
    let failed = |cause| Graded::Failed { fault: Fault::Problem, cause };
    match computed {
        Ok(score) if score.is_finite() => {
            Graded::Done(problems::Grade { score, details: serde_json::Value::Null })
        }
        Ok(score) => failed(format!("the reward of problem `{id}` is {score}")),
        Err(panic) => failed(format!("the reward function panicked on problem `{id}`: {panic}")),
    }
}

fn event_log(file: Option<&PathBuf>) -> io::Result<EventLog> {
    match file {
        Some(path) => EventLog::to_file(File::create(path)?),
        None => Ok(EventLog::in_memory()),
    }
}

impl Rollout {
    /// A rollout without a reward, which leaves its group.
    pub(crate) fn lost(member: &Member, why: String) -> Self {
        Self { why: Some(why), ..Self::blank(member) }
    }

    fn blank(member: &Member) -> Self {
        Self {
            problem: member.problem.id.clone(),
            member: member.number,
            segments: Vec::new(),
            end: End::Infrastructure,
            reward: None,
            raw_reward: None,
            loss: Loss::Counted,
            why: None,
            answer: String::new(),
            turns: 0,
            calls: 0,
            valid_calls: 0,
            silent_turns: 0,
            prompt_tokens: 0,
            response_tokens: 0,
            environment_tokens: 0,
            tries: 1,
            wall_ms: 0,
            events: Vec::new(),
            file: member.file.clone(),
        }
    }
}

/// Counts of turns and tool calls.
#[derive(Debug, Default, PartialEq, Eq)]
struct CallCounts {
    turns: u32,
    calls: u32,
    valid_calls: u32,
    silent_turns: u32,
}

impl CallCounts {
    fn of(lines: &[Line]) -> Self {
        let mut counts = Self::default();
        for line in lines {
            let Event::Responded(replied) = &line.event else { continue };
            let calls = &replied.message.calls;
            let valid = calls.iter().filter(|call| matches!(call.arguments, Arguments::Object(_)));
            let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            counts.turns = counts.turns.saturating_add(1);
            counts.calls = counts.calls.saturating_add(number(calls.len()));
            counts.valid_calls = counts.valid_calls.saturating_add(number(valid.count()));
            counts.silent_turns = counts.silent_turns.saturating_add(calls.is_empty().into());
        }
        counts
    }
}
