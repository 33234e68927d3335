//! Rows of tables: a run, and an attempt of one. What the page gets as JSON.

use std::collections::BTreeMap;

use serde::Serialize;
use trajectory::Spent;

/// Characters of texts in rows.
pub(crate) const EXCERPT: usize = 200;

/// What a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One episode.
    Run,
    /// The results of a benchmark.
    Benchmark,
    /// A training run.
    Training,
    /// The episodes of a server.
    Episodes,
    /// A file of another program.
    File,
}

impl Kind {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Benchmark => "benchmark",
            Self::Training => "training",
            Self::Episodes => "episodes",
            Self::File => "file",
        }
    }
}

/// In which form a run is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A run directory.
    Run,
    /// A file of events.
    Events,
    /// A results directory.
    Results,
    /// The directory of a training run.
    Training,
    /// A server's directory of episodes.
    Episodes,
    /// `trajectory.json` of the reference, or of this program.
    Reference,
    /// The Agent Trajectory Interchange Format.
    Atif,
    /// A log of Inspect.
    Inspect,
}

impl Format {
    /// What such a run is.
    pub fn kind(self) -> Kind {
        match self {
            Self::Run | Self::Events => Kind::Run,
            Self::Results => Kind::Benchmark,
            Self::Training => Kind::Training,
            Self::Episodes => Kind::Episodes,
            Self::Reference | Self::Atif | Self::Inspect => Kind::File,
        }
    }
}

/// Where a run or an attempt stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A process is at work.
    Running,
    /// It came to its end.
    #[default]
    Ended,
    /// It has no end, and no process works on it.
    Interrupted,
}

/// Tokens of model calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenCount {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
}

/// How many attempts a run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AttemptCount {
    /// Attempts planned, where known.
    pub planned: Option<usize>,
    /// Attempts that ended.
    pub done: usize,
    /// Attempts being played.
    pub running: usize,
    /// Attempts with full score.
    pub passed: usize,
    /// Valid attempts with less.
    pub failed: usize,
    /// Attempts that say nothing about the model.
    pub invalid: usize,
}

/// Steps of a training run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepCount {
    /// Steps done.
    pub done: u64,
    /// Steps configured.
    pub planned: Option<u64>,
}

/// A run in the table of runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRow {
    /// Its id.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// How it is stored.
    pub format: Format,
    /// The name of its directory or file.
    pub name: String,
    /// Its path below the directory that is viewed.
    pub path: String,
    /// The model.
    pub model: Option<String>,
    /// The task, in a few words.
    pub task: Option<String>,
    /// The tasks of a benchmark.
    pub tasks: Vec<String>,
    /// The modes of a benchmark.
    pub modes: Vec<String>,
    /// The score.
    pub score: Option<f64>,
    /// Where it stands.
    pub state: State,
    /// How the only episode ended.
    pub outcome: Option<String>,
    /// Its attempts.
    pub attempts: AttemptCount,
    /// The id of the only attempt, of what holds single episodes: the page of such a run is that of its episode.
    pub attempt: Option<String>,
    /// Its steps, of a training run.
    pub steps: Option<StepCount>,
    /// Turns, where they are known without opening it.
    pub turns: Option<u64>,
    /// Tokens, likewise.
    pub tokens: Option<TokenCount>,
    /// Dollars, likewise.
    pub cost: Option<f64>,
    /// Its start.
    pub started: Option<u64>,
    /// Its last change.
    pub updated: Option<u64>,
    /// Why it can be read only in part.
    pub problem: Option<String>,
}

impl RunRow {
    pub(crate) fn new(id: &str, format: Format, name: &str, path: &str) -> Self {
        Self {
            id: id.to_owned(),
            kind: format.kind(),
            format,
            name: name.to_owned(),
            path: path.to_owned(),
            model: None,
            task: None,
            tasks: Vec::new(),
            modes: Vec::new(),
            score: None,
            state: State::Ended,
            outcome: None,
            attempts: AttemptCount::default(),
            attempt: None,
            steps: None,
            turns: None,
            tokens: None,
            cost: None,
            started: None,
            updated: None,
            problem: None,
        }
    }
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptResult {
    /// Full score.
    Passed,
    /// Less.
    Failed,
    /// It says nothing about the model.
    Invalid,
    /// It is being played.
    Running,
    /// Nothing is graded here.
    #[default]
    Ungraded,
}

impl AttemptResult {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Invalid => "invalid",
            Self::Running => "running",
            Self::Ungraded => "ungraded",
        }
    }

    /// The result of a valid attempt with this score.
    pub(crate) fn of_score(score: f64) -> Self {
        if score >= report::stats::PASS { Self::Passed } else { Self::Failed }
    }
}

/// An attempt in the table of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AttemptRow {
    /// Its id in the run.
    pub id: String,
    /// The task.
    pub task: Option<String>,
    /// The mode.
    pub mode: Option<String>,
    /// The problem.
    pub problem: Option<String>,
    /// The repetition, from 0.
    pub repeat: Option<u32>,
    /// The start of the task's text.
    pub title: String,
    /// The model, where attempts differ in it.
    pub model: Option<String>,
    /// Where it stands.
    pub state: State,
    /// What came of it.
    pub result: AttemptResult,
    /// The score.
    pub score: Option<f64>,
    /// The reward in training.
    pub reward: Option<f64>,
    /// How it ended.
    pub outcome: Option<String>,
    /// Why it says nothing about the model.
    pub cause: Option<String>,
    /// The start of the answer.
    pub answer: Option<String>,
    /// The start of the expected answer.
    pub expected: Option<String>,
    /// Turns.
    pub turns: Option<u32>,
    /// Tokens.
    pub tokens: Option<TokenCount>,
    /// Dollars.
    pub cost: Option<f64>,
    /// Time in the model.
    pub model_ms: Option<u64>,
    /// Time in tools.
    pub tool_ms: Option<u64>,
    /// Time from start to end.
    pub wall_ms: Option<u64>,
    /// Its start.
    pub started: Option<u64>,
    /// The step of training.
    pub step: Option<u64>,
    /// `train`, or the validation set.
    pub set: Option<String>,
    /// The group of its problem in the step.
    pub group: Option<u32>,
    /// Its number in the group.
    pub member: Option<u32>,
    /// Whether there are events.
    pub has_events: bool,
}

impl AttemptRow {
    /// Takes over what an episode used.
    pub(crate) fn spend(&mut self, spent: &Spent) {
        self.turns = Some(spent.turns);
        self.tokens = Some(TokenCount { input: spent.usage.input, output: spent.usage.output });
        self.cost = spent.cost;
        self.model_ms = Some(spent.model_ms);
        self.tool_ms = Some(spent.tool_ms);
    }
}

/// Counts by value, for the filters of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Facets {
    /// By task.
    pub task: BTreeMap<String, usize>,
    /// By mode.
    pub mode: BTreeMap<String, usize>,
    /// By outcome.
    pub outcome: BTreeMap<String, usize>,
    /// By result.
    pub result: BTreeMap<String, usize>,
    /// By set.
    pub set: BTreeMap<String, usize>,
    /// By step.
    pub step: BTreeMap<String, usize>,
}
