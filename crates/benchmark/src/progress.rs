//! What a run reports while it is running, and its counts so far. Shows nothing itself.

use std::collections::BTreeMap;

use attempt::Retrying;
use results::{AttemptKey, AttemptRecord, Mode, Tokens};
use serde::Serialize;
use trajectory::{Outcome, Usage};

use crate::Plan;

/// Receives the progress of a run.
pub trait Progress: Send + Sync {
    /// Receives one event.
    fn on_event(&self, event: &ProgressEvent<'_>);
}

/// Something happened in a run.
#[derive(Debug)]
pub enum ProgressEvent<'a> {
    /// The run starts.
    Started {
        /// The attempts that were finished before.
        tally: &'a Tally,
        /// The number of attempts to play or grade.
        due: usize,
    },
    /// The infrastructure failed; the attempt is played again.
    Retrying {
        /// The attempt.
        key: &'a AttemptKey,
        /// The tries so far, the wait and the cause.
        retrying: Retrying<'a>,
    },
    /// An answer could not be graded for now.
    Ungraded {
        /// The attempt.
        key: &'a AttemptKey,
        /// Why.
        cause: &'a str,
    },
    /// An attempt is finished and stored.
    Finished {
        /// The attempt.
        attempt: &'a AttemptRecord,
        /// The counts with it.
        tally: &'a Tally,
    },
    /// Something else the user should know.
    Warning(&'a str),
}

/// The counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Tally {
    /// One for each task and mode, in the plan's order.
    pub groups: Vec<TaskTally>,
}

/// The counts of one task in one mode.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskTally {
    /// The task.
    pub task: String,
    /// The mode.
    pub mode: Mode,
    /// Planned attempts.
    #[serde(rename = "asked")]
    pub planned: usize,
    /// Finished attempts.
    pub finished: usize,
    /// Of these, those with a score.
    pub graded: usize,
    /// Of these, those with an answer and no score.
    pub ungraded: usize,
    /// Of these, those that failed because of the infrastructure.
    pub infrastructure: usize,
    /// The mean over problems of the mean score of their graded attempts; none where there are none. A failure of the
    /// infrastructure is not a score.
    pub mean_score: Option<f64>,
    /// The same, under the name that earlier versions used.
    pub mean_of_graded: Option<f64>,
    /// Attempts by outcome.
    pub outcomes: BTreeMap<String, usize>,
    /// Responses of the model.
    pub turns: u64,
    /// Billed tokens.
    pub usage: Usage,
    /// Tokens by origin.
    pub tokens: Tokens,
    /// Cost in dollars, where the price is known.
    pub cost: Option<f64>,
    /// Seconds of all attempts together.
    #[serde(skip)]
    pub seconds: f64,
    /// The scores by problem.
    #[serde(skip)]
    scores: BTreeMap<String, Scores>,
}

/// The graded attempts at one problem.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Scores {
    sum: f64,
    count: usize,
}

/// The mean over problems of the means of their attempts.
fn mean_of_problems<'a>(problems: impl Iterator<Item = &'a Scores>) -> Option<f64> {
    let (sum, count) = problems.fold((0.0, 0_usize), |(sum, count), scores| {
        (sum + scores.sum / scores.count as f64, count + 1)
    });
    (count > 0).then(|| sum / count as f64)
}

impl Tally {
    /// An empty tally of a plan in these modes.
    pub fn new(plan: &Plan, modes: &[Mode]) -> Self {
        let mut tally = Self::default();
        for task in &plan.tasks {
            tally.add_task(&task.task.name, modes, task.attempts());
        }
        tally
    }

    /// Adds a task with so many planned attempts in each of these modes.
    pub(crate) fn add_task(&mut self, task: &str, modes: &[Mode], planned: usize) {
        self.groups.extend(modes.iter().map(|mode| TaskTally {
            task: task.to_owned(),
            mode: *mode,
            planned,
            finished: 0,
            graded: 0,
            ungraded: 0,
            infrastructure: 0,
            mean_score: None,
            mean_of_graded: None,
            outcomes: BTreeMap::new(),
            turns: 0,
            usage: Usage::default(),
            tokens: Tokens::default(),
            cost: None,
            seconds: 0.0,
            scores: BTreeMap::new(),
        }));
    }

    /// Counts an attempt.
    pub fn add(&mut self, attempt: &AttemptRecord) {
        let AttemptKey { task, mode, .. } = &attempt.key;
        let group = self.groups.iter_mut().find(|group| group.task == *task && group.mode == *mode);
        if let Some(group) = group {
            group.add(attempt);
        }
    }

    /// Finished attempts.
    pub fn finished(&self) -> usize {
        self.groups.iter().map(|group| group.finished).sum()
    }

    /// Planned attempts.
    pub fn planned(&self) -> usize {
        self.groups.iter().map(|group| group.planned).sum()
    }

    /// Attempts that failed because of the infrastructure.
    pub fn infrastructure(&self) -> usize {
        self.groups.iter().map(|group| group.infrastructure).sum()
    }

    /// Answers without a grade.
    pub fn ungraded(&self) -> usize {
        self.groups.iter().map(|group| group.ungraded).sum()
    }

    /// The mean score over the problems of all tasks and modes; none where no attempt is graded.
    pub fn mean_score(&self) -> Option<f64> {
        mean_of_problems(self.groups.iter().flat_map(|group| group.scores.values()))
    }

    /// Billed tokens of all attempts.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.groups.iter().for_each(|group| usage += group.usage);
        usage
    }

    /// Cost of all attempts in dollars, where prices are known.
    pub fn cost(&self) -> Option<f64> {
        self.groups.iter().filter_map(|group| group.cost).reduce(|a, b| a + b)
    }
}

impl TaskTally {
    fn add(&mut self, attempt: &AttemptRecord) {
        self.finished += 1;
        if let Some(score) = attempt.score {
            let scores = self.scores.entry(attempt.key.id.clone()).or_default();
            scores.sum += score;
            scores.count += 1;
        }
        let failed = matches!(attempt.outcome, Outcome::Infrastructure { .. });
        match attempt.score {
            Some(_) => self.graded += 1,
            None if failed => self.infrastructure += 1,
            None => self.ungraded += 1,
        }
        self.mean_score = mean_of_problems(self.scores.values());
        self.mean_of_graded = self.mean_score;
        *self.outcomes.entry(attempt.outcome.name().to_owned()).or_default() += 1;
        self.seconds += attempt.wall_ms as f64 / 1e3;
        self.turns += u64::from(attempt.spent.turns);
        self.usage += attempt.spent.usage;
        // A failed attempt may not have queried the model.
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

#[cfg(test)]
mod tests {
    use trajectory::Spent;

    use super::*;

    fn attempt(id: &str, score: Option<f64>) -> AttemptRecord {
        let recorded = serde_json::json!({
            "v": 1, "task": "math", "mode": "llm", "id": id, "score": score, "outcome": "submitted",
            "spent": Spent::default(),
        });
        serde_json::from_value(recorded).unwrap()
    }

    #[test]
    fn a_problem_counts_once_however_often_it_was_attempted() {
        let mut tally = Tally::default();
        tally.add_task("math", &[Mode::Llm], 6);
        assert_eq!(tally.mean_score(), None);
        for score in [Some(1.0), Some(1.0), Some(1.0), None] {
            tally.add(&attempt("easy", score));
        }
        tally.add(&attempt("hard", Some(0.0)));
        tally.add(&attempt("broken", None));
        let group = &tally.groups[0];
        assert_eq!((group.graded, group.ungraded), (4, 2));
        assert_eq!((group.mean_score, tally.mean_score()), (Some(0.5), Some(0.5)));
    }
}
