//! What a run tells while it goes on, and the figures so far. Shows nothing itself.

use std::{collections::BTreeMap, time::Duration};

use results::{Attempt, Key, Mode, Tokens};
use serde::Serialize;
use trajectory::{Outcome, Usage};

use crate::Plan;

/// Somebody who wants to know how a run goes on.
pub trait Progress: Send + Sync {
    /// Something happened.
    fn tell(&self, news: &News<'_>);
}

/// What happened.
#[derive(Debug)]
pub enum News<'a> {
    /// The run begins.
    Begun {
        /// What was finished before.
        tally: &'a Tally,
        /// How many attempts are to be made or graded.
        due: usize,
    },
    /// Something of ours failed; the attempt is made again.
    Retried {
        /// Which attempt.
        key: &'a Key,
        /// How often it was tried.
        tries: u32,
        /// How long until the next time.
        wait: Duration,
        /// What failed.
        cause: &'a str,
    },
    /// An answer could not be graded for now.
    Ungraded {
        /// Which attempt.
        key: &'a Key,
        /// Why.
        cause: &'a str,
    },
    /// An attempt is finished and kept.
    Finished {
        /// What came of it.
        attempt: &'a Attempt,
        /// The figures with it.
        tally: &'a Tally,
    },
    /// Something else the user should know.
    Note(&'a str),
}

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Tally {
    /// One for each task and mode, in the plan's order.
    pub groups: Vec<Group>,
}

/// The figures of one task in one mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The task.
    pub task: String,
    /// The mode.
    pub mode: Mode,
    /// How many attempts it is to make.
    pub asked: usize,
    /// How many of them there are.
    pub finished: usize,
    /// Of these, those that have a score.
    pub graded: usize,
    /// Of these, those that have an answer and no score yet.
    pub ungraded: usize,
    /// Of these, those that failed on our side.
    pub infrastructure: usize,
    /// The mean over all that are finished; what failed or is not graded counts as 0, as in the reference.
    pub mean_score: f64,
    /// The mean over those that have a score.
    pub mean_of_graded: Option<f64>,
    /// How episodes ended.
    pub outcomes: BTreeMap<String, usize>,
    /// Replies of the model.
    pub turns: u64,
    /// Tokens as they were counted for payment.
    pub usage: Usage,
    /// Tokens by who wrote them.
    pub tokens: Tokens,
    /// Dollars, where the price is known.
    pub cost: Option<f64>,
    #[serde(skip)]
    scores: f64,
}

impl Tally {
    /// No figures yet for what a plan asks in these modes.
    pub fn new(plan: &Plan, modes: &[Mode]) -> Self {
        let groups = plan.tasks.iter().flat_map(|questions| {
            modes.iter().map(|mode| Group {
                task: questions.task.name.clone(),
                mode: *mode,
                asked: questions.attempts(),
                finished: 0,
                graded: 0,
                ungraded: 0,
                infrastructure: 0,
                mean_score: 0.0,
                mean_of_graded: None,
                outcomes: BTreeMap::new(),
                turns: 0,
                usage: Usage::default(),
                tokens: Tokens::default(),
                cost: None,
                scores: 0.0,
            })
        });
        Self { groups: groups.collect() }
    }

    /// Counts an attempt.
    pub fn add(&mut self, attempt: &Attempt) {
        let Key { task, mode, .. } = &attempt.key;
        let group = self.groups.iter_mut().find(|group| group.task == *task && group.mode == *mode);
        if let Some(group) = group {
            group.add(attempt);
        }
    }

    /// How many attempts are finished.
    pub fn finished(&self) -> usize {
        self.groups.iter().map(|group| group.finished).sum()
    }

    /// How many attempts there are to be.
    pub fn asked(&self) -> usize {
        self.groups.iter().map(|group| group.asked).sum()
    }

    /// How many attempts failed on our side.
    pub fn infrastructure(&self) -> usize {
        self.groups.iter().map(|group| group.infrastructure).sum()
    }

    /// How many answers are not graded.
    pub fn ungraded(&self) -> usize {
        self.groups.iter().map(|group| group.ungraded).sum()
    }

    /// The mean over everything that is finished.
    pub fn mean_score(&self) -> f64 {
        let scores: f64 = self.groups.iter().map(|group| group.scores).sum();
        mean(scores, self.finished()).unwrap_or(0.0)
    }

    /// Tokens of all attempts, as they were counted for payment.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.groups.iter().for_each(|group| usage += group.usage);
        usage
    }

    /// Dollars of all attempts, where prices are known.
    pub fn cost(&self) -> Option<f64> {
        self.groups.iter().filter_map(|group| group.cost).reduce(|a, b| a + b)
    }
}

impl Group {
    fn add(&mut self, attempt: &Attempt) {
        self.finished += 1;
        self.scores += attempt.counted();
        let failed = matches!(attempt.outcome, Outcome::Infrastructure { .. });
        match attempt.score {
            Some(_) => self.graded += 1,
            None if failed => self.infrastructure += 1,
            None => self.ungraded += 1,
        }
        self.mean_score = mean(self.scores, self.finished).unwrap_or(0.0);
        self.mean_of_graded = mean(self.scores, self.graded);
        *self.outcomes.entry(attempt.outcome.name().to_owned()).or_default() += 1;
        self.turns += u64::from(attempt.spent.turns);
        self.usage += attempt.spent.usage;
        // What failed on our side may have asked nothing of the model.
        let Tokens { prompt, model, environment } =
            if failed { Tokens::default() } else { attempt.tokens };
        self.tokens.prompt = self.tokens.prompt.saturating_add(prompt);
        self.tokens.model = self.tokens.model.saturating_add(model);
        self.tokens.environment = self.tokens.environment.saturating_add(environment);
        self.cost = match (self.cost, attempt.spent.cost) {
            (Some(sum), Some(cost)) => Some(sum + cost),
            (sum, cost) => sum.or(cost),
        };
    }
}

fn mean(sum: f64, count: usize) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}
