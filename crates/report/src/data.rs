//! The report as data: the content of `report.json`, from which Markdown and HTML are rendered.
//!
//! Texts are bounded and safe to show. There are no timestamps: the same results give the same report.

mod comparison;

use std::collections::BTreeMap;

use results::AttemptKey;
use serde::{Deserialize, Serialize};

use crate::{
    analysis::{Capabilities, Memory, StyleSummary},
    stats::{Estimate, Paired, PassAt},
};

pub use comparison::{Change, Comparison, LeftOut, Passes, SettingRow, SettingsReport, Side};

/// Version of this format.
pub const VERSION: u32 = 1;

/// Everything a report contains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this format.
    pub v: u32,
    /// Version of the program that wrote the report.
    pub program: String,
    /// Parameters of the statistics.
    pub method: Method,
    /// Runs the report is about.
    pub runs: Vec<RunInfo>,
    /// Tasks, in the order of the tables.
    pub tasks: Vec<String>,
    /// Systems under test: a model under one set of conditions each.
    pub systems: Vec<System>,
    /// Settings of the systems: those that differ, and those that are the same.
    #[serde(default)]
    pub settings: SettingsReport,
    /// The system the others are compared with; absent with fewer than two systems.
    #[serde(default)]
    pub baseline: Option<usize>,
    /// Comparisons of the other systems with the baseline, by task and over all tasks.
    #[serde(default)]
    pub comparisons: Vec<Comparison>,
    /// Turns that may have retrieved the answer.
    pub leaks: Listed<Leak>,
    /// Attempts that did not pass, the most informative first.
    pub failures: Listed<Failure>,
    /// Caveats.
    pub notes: Vec<String>,
}

impl Report {
    /// Every attempt the report lists, some of them several times.
    pub fn listed_attempts(&self) -> impl Iterator<Item = &AttemptRef> {
        let tasks = self.systems.iter().flat_map(|system| &system.tasks);
        let lists = tasks.flat_map(|task| [&task.gained, &task.lost]);
        let lists = lists.chain(self.comparisons.iter().flat_map(|row| [&row.gained, &row.lost]));
        let changes = lists.flat_map(|list| &list.items);
        let changes = changes.flat_map(|change| [&change.baseline, &change.other]);
        let leaks = self.leaks.items.iter().map(|leak| &leak.attempt);
        leaks.chain(self.failures.items.iter().map(|failure| &failure.attempt)).chain(changes)
    }
}

/// Parameters of the statistics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// Confidence level of every interval.
    pub confidence: f64,
    /// Seed of the bootstrap and the permutation test.
    pub seed: u64,
    /// Score from which an attempt passes.
    pub pass: f64,
}

/// The first of many items, and their total number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listed<T> {
    /// Number of all items.
    pub total: usize,
    /// The items listed.
    pub items: Vec<T>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { total: 0, items: Vec::new() }
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Name of its directory.
    pub name: String,
    /// Relative path from the report to its directory.
    pub link: String,
    /// Model.
    pub model: String,
    /// Version of the program that ran it.
    pub program: String,
    /// Judge model; empty where there is none.
    #[serde(default)]
    pub judge: String,
    /// First start, in milliseconds since 1970.
    pub started: u64,
    /// Attempts planned.
    #[serde(rename = "asked")]
    pub planned: usize,
    /// Attempts read.
    pub read: usize,
    /// Attempts planned but not recorded yet.
    pub missing: usize,
    /// Sandbox attempts without a trajectory.
    pub without_events: usize,
    /// Files that could not be read.
    pub damaged: Listed<String>,
}

/// A model under one set of conditions: a row of the main table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct System {
    /// Label in this report, unique.
    pub label: String,
    /// Model.
    pub model: String,
    /// Capabilities removed in an ablation.
    pub without: Vec<String>,
    /// Where documents were given: in files or in the prompt.
    pub context: String,
    /// Its runs, as indices into the report's list.
    pub runs: Vec<usize>,
    /// Results by task.
    pub tasks: Vec<TaskReport>,
    /// Macro-average over tasks.
    pub average: Average,
    /// Use of the sandbox by domain.
    pub domains: Vec<Domain>,
}

/// Macro-average over tasks; absent unless every task of the report has a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Average {
    /// Without a sandbox.
    pub llm: Option<Mean>,
    /// With a sandbox.
    pub sandbox: Option<Mean>,
    /// Paired difference.
    pub difference: Option<Mean>,
}

/// A mean over independent tasks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// Mean.
    pub mean: f64,
    /// Standard error, where every task has one.
    pub se: Option<f64>,
}

/// One task of a system. All scores and differences are over valid attempts: those with a score that did not fail because
/// of the infrastructure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Name of the task.
    pub task: String,
    /// Name of its grader.
    pub grader: String,
    /// Without a sandbox.
    pub llm: Option<ModeReport>,
    /// With a sandbox.
    pub sandbox: Option<ModeReport>,
    /// Paired difference, with minus without a sandbox.
    pub difference: Option<Paired>,
    /// Equal to `difference` where an attempt is invalid, else absent. For readers of earlier reports, whose `difference`
    /// counted invalid attempts as 0.
    pub difference_graded: Option<Paired>,
    /// p-value of the difference, Holm-corrected for the number of such differences in the report.
    pub p_holm: Option<f64>,
    /// Problems solved only with the sandbox.
    #[serde(default)]
    pub gained: Listed<Change>,
    /// Problems solved only without the sandbox.
    #[serde(default)]
    pub lost: Listed<Change>,
    /// Ratio of tokens with and without a sandbox, over problems attempted in both modes.
    pub token_ratio: Option<f64>,
    /// Style of the answers without a sandbox.
    pub answers: Option<StyleSummary>,
}

/// One task in one mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModeReport {
    /// Attempts planned but not recorded yet.
    pub missing: usize,
    /// Attempts that failed because of the infrastructure, or were cancelled.
    pub infrastructure: usize,
    /// Other attempts without a score.
    pub ungraded: usize,
    /// Invalid attempts by what was at fault, such as `sandbox` or `grader`.
    #[serde(default)]
    pub faults: BTreeMap<String, usize>,
    /// Valid attempts: the sample size of `score`.
    #[serde(default)]
    pub valid: usize,
    /// Attempts that passed.
    pub passed: usize,
    /// Attempts started more than once.
    pub retried: usize,
    /// Problems with at least one attempt.
    pub problems: usize,
    /// Attempts recorded.
    pub attempts: usize,
    /// Mean score of the valid attempts; absent where there are none.
    pub score: Option<Estimate>,
    /// Equal to `score`. For readers of earlier reports, whose `score` counted invalid attempts as 0.
    pub graded: Option<Estimate>,
    /// pass@k over the valid attempts.
    pub pass_at: Vec<PassAt>,
    /// Attempts by outcome.
    pub outcomes: BTreeMap<String, usize>,
    /// Turns; absent, like the next two, where the infrastructure failed every attempt.
    pub turns: Option<Turns>,
    /// Mean tokens per attempt.
    pub tokens: Option<TokenMeans>,
    /// Time per attempt.
    pub time: Option<Times>,
    /// Peak memory of the sandboxes, where measured.
    pub memory: Option<Memory>,
    /// Cost, where prices are known.
    pub cost: Option<Cost>,
}

/// Turns per attempt: one per response of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turns {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Maximum.
    pub most: u32,
    /// Attempts by number of turns.
    pub histogram: Vec<Bin>,
}

/// A bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// First number of turns.
    pub from: u32,
    /// Last number of turns.
    pub to: u32,
    /// Attempts.
    pub count: usize,
}

/// Mean tokens per attempt, by origin. Each token counts once, however often it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenMeans {
    /// First messages.
    pub prompt: f64,
    /// Responses of the model.
    pub model: f64,
    /// Observations.
    pub environment: f64,
    /// Total.
    pub total: f64,
    /// Share of observations in all tokens.
    pub environment_share: Option<f64>,
}

/// Time per attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Mean seconds in the model and in tools, without queueing.
    pub mean_s: f64,
    /// Median, likewise.
    pub median_s: f64,
    /// Share of tool time in the time of model and tools.
    pub execution_share: Option<f64>,
    /// Model calls per minute with at least one attempt running.
    pub calls_per_minute: Option<f64>,
    /// Attempts per such minute.
    pub attempts_per_minute: Option<f64>,
}

/// Cost in dollars.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Total of the attempts with a known cost.
    pub total: f64,
    /// Attempts with a known cost.
    pub known: usize,
}

/// Use of the sandbox in one domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Domain {
    /// Name of the domain.
    pub domain: String,
    /// Attempts whose trajectory was read.
    pub attempts: usize,
    /// Their turns, and those that use each capability.
    pub capabilities: Capabilities,
}

/// A turn that may have retrieved the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leak {
    /// The attempt.
    #[serde(rename = "place")]
    pub attempt: AttemptRef,
    /// The turn, from 1.
    pub turn: u32,
    /// Why it is suspicious.
    pub why: String,
    /// What was found.
    pub seen: String,
}

/// An attempt, and where its trajectory is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptRef {
    /// Index of the system.
    pub system: usize,
    /// Task.
    pub task: String,
    /// Mode.
    pub mode: results::Mode,
    /// Problem.
    pub id: String,
    /// Repeat, from 0.
    pub repeat: u32,
    /// Path of its page relative to the report, where pages are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// Path of its trajectory relative to the report, where there is one.
    pub trajectory: Option<String>,
    /// Index of its run and its key there, in a report that was built and not read.
    #[serde(skip)]
    pub source: Option<(usize, AttemptKey)>,
}

impl AttemptRef {
    /// Path of what a reader should see of it: its page, else its trajectory.
    pub fn link(&self) -> Option<&str> {
        self.page.as_deref().or(self.trajectory.as_deref())
    }
}

/// An attempt that did not pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The attempt.
    #[serde(rename = "place")]
    pub attempt: AttemptRef,
    /// Kind of failure.
    pub kind: FailureKind,
    /// Outcome of the episode.
    pub outcome: String,
    /// Score.
    pub score: Option<f64>,
    /// Mean score of the same problem in the other mode.
    pub other_mode: Option<f64>,
    /// Why there is no score.
    pub cause: String,
    /// Beginning of the answer.
    pub answer: String,
    /// Beginning of the expected answer.
    pub expected: String,
}

/// Kinds of failure, in the order they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The infrastructure failed, or the attempt was cancelled.
    Infrastructure,
    /// There is no score.
    Ungraded,
    /// Wrong with the sandbox, right without it.
    #[serde(rename = "lost_with_computer")]
    LostWithSandbox,
    /// Wrong.
    Wrong,
}
