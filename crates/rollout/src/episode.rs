//! One episode: played, played again where our side failed, graded and counted.

use std::{path::PathBuf, sync::Arc, time::Instant};

use agent::{Compaction, Episode, Opening, Settings, Watch, prompt::Inputs, tools::Tools};
use model::{Formatted, ToolFormat};
use problems::{Answer, Grading, Problem};
use sandbox::{Runtime, Sandbox};
use serde_json::Value;
use trajectory::{Arguments, Ended, Event, Line, Message, Outcome, Started};

use crate::{
    Choice, Context, End, Loss, Mode, Played, PolicyModel, Reward, Sampler, Segment, computer,
    error::chain, journal::Record, policy::Fault, stage::Shared,
};

/// What is to be played.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) problem: Arc<Problem>,
    pub(crate) member: u32,
    pub(crate) choice: Choice,
    /// Where its events are kept.
    pub(crate) file: Option<PathBuf>,
    /// How often it is tried at most.
    pub(crate) tries: u32,
}

/// Somebody stopped it.
#[derive(Debug)]
pub(crate) struct Stopped;

/// An episode that says nothing about the policy, or perhaps nothing.
pub(crate) enum Trouble {
    Stopped,
    /// It may work next time.
    Passing(String),
    /// It would fail again.
    Lasting(String),
    /// Its sandbox broke after the policy had acted in it. The same seeds let it act the same way next time: if it breaks
    /// again and again, it was the policy, which must not escape its reward so.
    Broken(Box<Graded>),
}

impl Trouble {
    /// A call to the policy failed.
    pub(crate) fn of_call(fault: Option<Fault>, cause: String) -> Self {
        match fault {
            None | Some(Fault::Nobody) => Self::Passing(cause),
            Some(Fault::Policy | Fault::Ours) => Self::Lasting(cause),
        }
    }
}

/// What came of an episode.
pub(crate) struct Worked {
    pub(crate) outcome: Outcome,
    pub(crate) answer: String,
    /// What ended it, where that was neither a limit nor the policy's wish.
    pub(crate) why: Option<String>,
}

/// An episode with its reward.
pub(crate) struct Graded {
    worked: Worked,
    raw: f64,
    segments: Vec<Segment>,
    lines: Vec<Line>,
}

impl<R: Runtime> Shared<R> {
    /// Plays an episode until it says something about the policy, or our side has failed too often.
    pub(crate) async fn episode<S: Sampler>(
        &self,
        sampler: &Arc<S>,
        job: &Job,
        watch: Watch,
    ) -> Result<Played, Stopped> {
        let began = Instant::now();
        let mut tries = 1;
        let tried = loop {
            match self.attempt(sampler, job, &watch).await {
                Err(Trouble::Stopped) => return Err(Stopped),
                Err(Trouble::Passing(_) | Trouble::Broken(_)) if tries < job.tries => {
                    let wait = tokio::time::sleep(self.method.wait_after(tries));
                    unless_stopped(wait, &watch).await.map_err(|_| Stopped)?;
                    tries += 1;
                }
                tried => break tried,
            }
        };
        let mut played = match tried {
            Ok(graded) => self.played(job, graded),
            Err(Trouble::Broken(graded)) => self.played(job, *graded),
            Err(Trouble::Passing(why) | Trouble::Lasting(why)) => Played::lost(job, why),
            Err(Trouble::Stopped) => return Err(Stopped),
        };
        played.tries = tries;
        played.wall_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(played)
    }

    async fn attempt<S: Sampler>(
        &self,
        sampler: &Arc<S>,
        job: &Job,
        watch: &Watch,
    ) -> Result<Graded, Trouble> {
        let record = Record::new(job.file.as_deref()).map_err(unwritten)?;
        let format = match self.method.mode {
            Mode::Sandbox => self.method.format,
            Mode::Llm => ToolFormat::Native,
        };
        let (sampler, speech) = (Arc::clone(sampler), Arc::clone(&self.speech));
        let policy =
            Arc::new(PolicyModel::new(&self.method.name, sampler, speech, job.choice, format));
        let worked = match self.method.mode {
            Mode::Sandbox => self.sandboxed(job, &policy, &record, watch).await,
            Mode::Llm => self.plain(job, &*policy, &record, watch).await,
        };
        let (segments, fault) = (policy.segments(), policy.fault());
        // Its place in the sampler's memory is free while the answer is graded.
        drop(policy);
        let lines = record.lines();
        let worked = match worked {
            Err(Trouble::Passing(cause)) if fault.is_none() && Counts::of(&lines).turns > 0 => {
                return Err(Trouble::Broken(Box::new(Graded::broken(cause, segments, lines))));
            }
            worked => worked?,
        };
        let scored = self.score(&job.problem, &worked.answer, job.tries);
        Ok(match unless_stopped(scored, watch).await?? {
            Ok(raw) => Graded { worked, raw, segments, lines },
            Err(cause) => Graded::broken(cause, segments, lines),
        })
    }

    /// Plays one episode in a computer of its own.
    async fn sandboxed<S: Sampler>(
        &self,
        job: &Job,
        policy: &Arc<PolicyModel<S>>,
        record: &Record,
        watch: &Watch,
    ) -> Result<Worked, Trouble> {
        let Some(computers) = &self.computers else {
            return Err(Trouble::Lasting("there is no runtime that makes sandboxes".into()));
        };
        let _place = unless_stopped(computers.place(), watch).await?;
        let made = unless_stopped(computers.make(), watch).await?;
        let sandbox = made.map_err(|error| of_sandbox(&error))?;
        let worked = self.worked(job, policy, record, &sandbox, watch).await;
        // Its own failure to end says nothing about the policy, and dropping it ends it too.
        let _ = computer::destroy(sandbox).await;
        worked
    }

    async fn worked<S: Sampler>(
        &self,
        job: &Job,
        policy: &Arc<PolicyModel<S>>,
        record: &Record,
        sandbox: &R::Sandbox,
        watch: &Watch,
    ) -> Result<Worked, Trouble> {
        let (task, method) = (&self.task, &self.method);
        let filling = computer::fill(sandbox, task, &job.problem, method.context);
        let filled = unless_stopped(filling, watch).await?;
        filled.map_err(|error| of_sandbox(&error))?;
        let opening = self.opening(job, sandbox)?;
        let model = Formatted::new(Arc::clone(policy), method.format);
        let settings = self.settings();
        let episode = Episode::new(&model, sandbox, record, &settings, opening, watch.clone());
        let Ended { outcome, .. } = agent::run(episode).await;
        let (outcome, why) = match (outcome, policy.fault()) {
            (Outcome::Cancelled, _) => return Err(Trouble::Stopped),
            // What a policy says is no way out of its reward.
            (Outcome::Infrastructure { cause }, Some(Fault::Policy)) => {
                (Outcome::NoToolCalls, Some(cause))
            }
            (Outcome::Infrastructure { cause }, fault) => {
                return Err(Trouble::of_call(fault, cause));
            }
            (outcome, _) => (outcome, None),
        };
        let Answer::File(name) = task.answer_of() else {
            return Err(Trouble::Lasting("the task's answer is no file".into()));
        };
        let path = task.prompts.output_dir.join(name);
        let answer = unless_stopped(computer::answer(sandbox, &path), watch).await?;
        let answer = answer.map_err(|error| of_sandbox(&error))?;
        Ok(Worked { outcome, answer, why })
    }

    fn opening(&self, job: &Job, sandbox: &R::Sandbox) -> Result<Opening, Trouble> {
        let (task, problem) = (&self.task, &job.problem);
        let (statement, inputs) = match self.method.context {
            Context::Files => {
                let files = problem.files.iter();
                let sizes = files.map(|(name, text)| (name.clone(), text.len() as u64));
                (problem.statement.clone(), Inputs::new(sizes))
            }
            Context::Prompt => (task.with_documents_in_prompt(problem), Inputs::default()),
        };
        let network = self.computers.as_ref().map(|computers| computers.spec().network.clone());
        let rendered = task.prompts.render_with(&statement, &network.unwrap_or_default(), &inputs);
        let rendered = rendered.map_err(|error| Trouble::Lasting(chain(&error)))?;
        let protection = serde_json::to_value(sandbox.protection()).unwrap_or(Value::Null);
        let started = self.started(problem, rendered.messages(), protection);
        Ok(Opening::Fresh(Box::new(started)))
    }

    /// How an episode began.
    pub(crate) fn started(
        &self,
        problem: &Problem,
        messages: Vec<Message>,
        protection: Value,
    ) -> Started {
        Started {
            problem_statement: problem.statement.clone(),
            messages,
            model: self.method.name.clone(),
            settings: self.method.settings.clone(),
            protection,
            program: self.method.program.clone(),
        }
    }

    /// How episodes in a sandbox are played.
    pub(crate) fn settings(&self) -> Settings {
        let method = &self.method;
        let prompts = &self.task.prompts;
        Settings {
            limits: method.limits.clone(),
            tools: Tools {
                timeout: method.command_timeout,
                shown: method.shown,
                workdir: prompts.working_dir.clone(),
                ..Tools::default()
            },
            compaction: method.compaction.clone().map(|compaction| {
                let window = compaction.window.unwrap_or(u64::MAX).min(method.limits.tokens);
                Compaction { window: Some(window), ..compaction }
            }),
            deliver_to: Some(prompts.output_dir.clone()),
            ..Settings::default()
        }
    }

    /// What an answer is worth. A number that is none is a failure of ours: nobody could learn from it. The inner error is
    /// that of a command that fails with this answer, however often it is run.
    async fn score(
        &self,
        problem: &Arc<Problem>,
        answer: &str,
        tries: u32,
    ) -> Result<Result<f64, String>, Trouble> {
        let (task, reward) = (Arc::clone(&self.task), self.reward.clone());
        let (asked, given) = (Arc::clone(problem), answer.to_owned());
        // Graders compute, some of them for long.
        let grading = tokio::task::spawn_blocking(move || match reward {
            Reward::Grader => Ok(task.grading(&asked, &given)),
            Reward::Own(reward) => Err(reward(&asked, &given)),
        });
        let id = &problem.id;
        let score = match grading.await {
            Err(lost) => {
                return Err(Trouble::Lasting(format!("grading problem `{id}` broke off: {lost}")));
            }
            Ok(Err(score)) => score,
            Ok(Ok(Grading::Done(grade))) => grade.score,
            Ok(Ok(Grading::Judge(_))) => {
                return Err(Trouble::Lasting("there is no judge for rewards".into()));
            }
            Ok(Ok(Grading::InSandbox(check))) => {
                let Some(computers) = &self.computers else {
                    return Err(Trouble::Lasting("there is no runtime for the grader".into()));
                };
                let mut tried = 1;
                loop {
                    let checked = computers.check(&check).await;
                    match checked.map_err(|error| of_sandbox(&error))? {
                        Ok(grade) => break grade.score,
                        Err(why) if tried == tries => return Ok(Err(why)),
                        Err(_) => tried += 1,
                    }
                }
            }
        };
        match score.is_finite() {
            true => Ok(Ok(score)),
            false => Err(Trouble::Lasting(format!("the reward of problem `{id}` is {score}"))),
        }
    }

    fn played(&self, job: &Job, graded: Graded) -> Played {
        let Graded { worked, raw, segments, lines } = graded;
        let end = End::of(&worked.outcome);
        let sum = |count: fn(&Segment) -> usize| segments.iter().map(count).sum();
        let Counts { turns, calls, valid_calls, silent_turns } = Counts::of(&lines);
        Played {
            end,
            reward: Some(self.method.overlong.reward(end, raw)),
            raw_reward: Some(raw),
            loss: self.method.overlong.loss(end),
            why: worked.why,
            answer: worked.answer,
            turns,
            calls,
            valid_calls,
            silent_turns,
            prompt_tokens: segments.first().map_or(0, Segment::prompt_tokens),
            response_tokens: sum(Segment::response_tokens),
            environment_tokens: sum(Segment::environment_tokens),
            segments,
            events: lines,
            ..Played::blank(job)
        }
    }
}

impl Graded {
    /// An episode that broke what it was played or graded in: worth nothing.
    fn broken(cause: String, segments: Vec<Segment>, lines: Vec<Line>) -> Self {
        let (outcome, why) = (Outcome::Infrastructure { cause: cause.clone() }, Some(cause));
        Self { worked: Worked { outcome, answer: String::new(), why }, raw: 0.0, segments, lines }
    }
}

impl Played {
    /// An episode that leaves its group.
    pub(crate) fn lost(job: &Job, why: String) -> Self {
        Self { why: Some(why), ..Self::blank(job) }
    }

    fn blank(job: &Job) -> Self {
        Self {
            problem: job.problem.id.clone(),
            member: job.member,
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
            file: job.file.clone(),
        }
    }
}

/// What is counted in the events of an episode.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    turns: u32,
    calls: u32,
    valid_calls: u32,
    silent_turns: u32,
}

impl Counts {
    fn of(lines: &[Line]) -> Self {
        let mut counts = Self::default();
        for line in lines {
            let Event::Replied(replied) = &line.event else { continue };
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

/// Waits for something, unless it is time to stop.
pub(crate) async fn unless_stopped<T>(
    work: impl Future<Output = T>,
    watch: &Watch,
) -> Result<T, Trouble> {
    let mut watch = watch.clone();
    tokio::select! {
        biased;
        () = watch.stopped() => Err(Trouble::Stopped),
        done = work => Ok(done),
    }
}

pub(crate) fn unwritten(error: std::io::Error) -> Trouble {
    Trouble::Passing(format!("cannot write the record: {error}"))
}

/// A sandbox that could not be made or used. Where the row or the settings are at fault, trying again is no use.
fn of_sandbox(error: &sandbox::Error) -> Trouble {
    match error.is_usage() {
        true => Trouble::Lasting(chain(error)),
        false => Trouble::Passing(chain(error)),
    }
}
