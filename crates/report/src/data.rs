//! The report as data: what the Markdown, the JSON and the page are made from.
//!
//! Every text in it is bounded and fit to be shown. Times of making are left out: the same results give the
//! same report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    analysis::{Capabilities, Memory, PlainSummary},
    stats::{Estimate, Paired, PassAt},
};

/// The version of this format.
pub const VERSION: u32 = 1;

/// Everything a report says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of this format.
    pub v: u32,
    /// The version of the program that made it.
    pub program: String,
    /// How its numbers are made.
    pub method: Method,
    /// The runs it is about.
    pub runs: Vec<RunInfo>,
    /// The tasks, in the order of the tables.
    pub tasks: Vec<String>,
    /// What was measured: a model, under one set of conditions.
    pub systems: Vec<System>,
    /// Turns that may have met the answer instead of finding it.
    pub leaks: Listed<Leak>,
    /// Attempts that did not pass, the telling ones first.
    pub failures: Listed<Failure>,
    /// What a reader has to know before believing a number.
    pub notes: Vec<String>,
}

/// How the numbers are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// Of every interval.
    pub confidence: f64,
    /// Where pseudo-random sequences begin.
    pub seed: u64,
    /// A score from which an attempt counts as passed.
    pub pass: f64,
}

/// The first of many, and how many there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listed<T> {
    /// All of them.
    pub total: usize,
    /// Those that are listed.
    pub items: Vec<T>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The name of its directory.
    pub name: String,
    /// The way there from the report.
    pub link: String,
    /// The model.
    pub model: String,
    /// The program that ran it.
    pub program: String,
    /// The model that judged its answers; empty where none did.
    #[serde(default)]
    pub judge: String,
    /// When it first began, in milliseconds since 1970.
    pub started: u64,
    /// Attempts that were asked for.
    pub asked: usize,
    /// Attempts that were read.
    pub read: usize,
    /// Attempts that are not there yet.
    pub missing: usize,
    /// Attempts with a sandbox whose events are not there.
    pub without_events: usize,
    /// Damaged files.
    pub damaged: Listed<String>,
}

/// A model under one set of conditions: a row of the main table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct System {
    /// What it is called in this report.
    pub label: String,
    /// The model.
    pub model: String,
    /// What it had to do without.
    pub without: Vec<String>,
    /// Where its documents were.
    pub context: String,
    /// Its runs, as places in the report's list.
    pub runs: Vec<usize>,
    /// What it did, by task.
    pub tasks: Vec<TaskReport>,
    /// The mean over tasks; only over all tasks of the report.
    pub average: Average,
    /// What it did with its computer, by domain.
    pub domains: Vec<Domain>,
}

/// The mean over tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Average {
    /// Without a computer.
    pub llm: Option<Mean>,
    /// With one.
    pub sandbox: Option<Mean>,
    /// The difference, over problems tried both ways.
    pub difference: Option<Mean>,
}

/// A mean of tasks that are independent of each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Its standard error, where each task has one.
    pub se: Option<f64>,
}

/// A task of a system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Its name.
    pub task: String,
    /// Its grader.
    pub grader: String,
    /// Without a computer.
    pub llm: Option<ModeReport>,
    /// With one.
    pub sandbox: Option<ModeReport>,
    /// What the computer adds, failures of ours and ungraded attempts counted as 0.
    pub difference: Option<Paired>,
    /// The same without those; absent where there are none.
    pub difference_graded: Option<Paired>,
    /// The p-value corrected for the number of this system's tasks (Holm).
    pub p_holm: Option<f64>,
    /// Tokens with the computer over tokens without, over problems tried both ways.
    pub token_ratio: Option<f64>,
    /// How its plain answers are written.
    pub answers: Option<PlainSummary>,
}

/// A task in one mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModeReport {
    /// Attempts that are not there yet.
    pub missing: usize,
    /// Attempts that failed on our side or were cancelled.
    pub infrastructure: usize,
    /// Attempts of the model without a score.
    pub ungraded: usize,
    /// Attempts that were right.
    pub passed: usize,
    /// Attempts that were begun more than once.
    pub retried: usize,
    /// How many problems there are attempts at.
    pub problems: usize,
    /// How many attempts.
    pub attempts: usize,
    /// The score, failures of ours and ungraded attempts counted as 0; absent where no attempt has a score.
    pub score: Option<Estimate>,
    /// The score without those; absent where nothing is left.
    pub graded: Option<Estimate>,
    /// pass@k.
    pub pass_at: Vec<PassAt>,
    /// How attempts ended.
    pub outcomes: BTreeMap<String, usize>,
    /// How often the model replied; absent, like the next two, where all attempts failed on our side.
    pub turns: Option<Turns>,
    /// Tokens of a mean attempt.
    pub tokens: Option<TokenMeans>,
    /// Where the time went.
    pub time: Option<Times>,
    /// Memory of the sandboxes, where known.
    pub memory: Option<Memory>,
    /// Money, where prices are known.
    pub cost: Option<Cost>,
}

/// How often the model replied in an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turns {
    /// The mean.
    pub mean: f64,
    /// The middle.
    pub median: f64,
    /// The most.
    pub most: u32,
    /// Attempts by their number of turns.
    pub histogram: Vec<Bin>,
}

/// Attempts with so many turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// From this many.
    pub from: u32,
    /// To this many.
    pub to: u32,
    /// How many attempts.
    pub count: usize,
}

/// Tokens of a mean attempt, by who wrote them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenMeans {
    /// The first messages.
    pub prompt: f64,
    /// The model's replies.
    pub model: f64,
    /// What the computer answered.
    pub environment: f64,
    /// All.
    pub total: f64,
    /// The environment's share of all tokens.
    pub environment_share: Option<f64>,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Seconds of a mean attempt, in the model and in tools: waiting for either is not in it.
    pub mean_s: f64,
    /// Seconds of the middle attempt, likewise.
    pub median_s: f64,
    /// The share of running tools in the time of models and tools.
    pub execution_share: Option<f64>,
    /// Calls of the model per minute in which at least one attempt was under way.
    pub calls_per_minute: Option<f64>,
    /// Attempts per such minute.
    pub attempts_per_minute: Option<f64>,
}

/// Money, in dollars.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// All attempts together.
    pub total: f64,
    /// Of how many attempts it is known.
    pub known: usize,
}

/// What models did with their computer in a domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Domain {
    /// The domain.
    pub domain: String,
    /// Attempts of the model whose events were read.
    pub attempts: usize,
    /// Their turns, and those that use each capability.
    pub capabilities: Capabilities,
}

/// A turn that may have met the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leak {
    /// Which attempt.
    pub place: Place,
    /// The turn, from 1.
    pub turn: u32,
    /// What is suspicious.
    pub why: String,
    /// What was seen.
    pub seen: String,
}

/// An attempt, and where its record lies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The system.
    pub system: usize,
    /// The task.
    pub task: String,
    /// The mode.
    pub mode: results::Mode,
    /// The problem.
    pub id: String,
    /// Which repetition, from 0.
    pub repeat: u32,
    /// The file of its events, seen from the report, where there is one.
    pub trajectory: Option<String>,
}

/// An attempt that did not pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Which attempt.
    pub place: Place,
    /// What kind of failure.
    pub kind: Kind,
    /// How it ended.
    pub outcome: String,
    /// Its score.
    pub score: Option<f64>,
    /// The mean score of the same problem in the other mode.
    pub other_mode: Option<f64>,
    /// What failed, where it was not the answer.
    pub cause: String,
    /// The beginning of the answer.
    pub answer: String,
    /// The beginning of the right one.
    pub expected: String,
}

/// What kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Our side failed, or somebody stopped it.
    Infrastructure,
    /// It has no score.
    Ungraded,
    /// Wrong with the computer, right without it.
    LostWithComputer,
    /// Wrong.
    Wrong,
}
