//! Synthetic runs with known effects: the same seed gives the same run.

use std::path::{Path, PathBuf};

use lis_report::{Fact, Source};
use results::{AttemptKey, AttemptRecord, Mode, ResultsDir, Run, RunSettings, TaskInfo, Tokens};
use serde_json::json;
use trajectory::{Line, Outcome, Spent};

/// Parameters of a synthetic run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) model: &'static str,
    pub(crate) seed: u64,
    pub(crate) problems: usize,
    pub(crate) repeats: u32,
    /// Task, probability to pass without a sandbox, probability with one.
    pub(crate) tasks: Vec<(&'static str, f64, f64)>,
    /// One in this many attempts fails because of the infrastructure; 0 for none.
    pub(crate) broken: u64,
}

/// A generator independent of the one under test.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Plan {
    pub(crate) fn run(&self) -> Run {
        let task = |(name, _, _): &(&str, f64, f64)| TaskInfo {
            name: (*name).to_owned(),
            problems: self.problems,
            repeats: self.repeats,
            grader: "math".to_owned(),
            ..TaskInfo::default()
        };
        Run {
            v: results::VERSION,
            program: "0.1.0".to_owned(),
            started: 1_768_521_600_000,
            model: self.model.to_owned(),
            tasks: self.tasks.iter().map(task).collect(),
            modes: vec![Mode::Llm, Mode::Sandbox],
            without: Vec::new(),
            documents: "files".to_owned(),
            settings: RunSettings::default(),
        }
    }

    /// All attempts. Problems differ in difficulty, so that repeats of one are correlated.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = AttemptRecord> + '_ {
        let mut dice = Dice::new(self.seed);
        let mut clock = 1_768_521_600_000;
        self.tasks.iter().flat_map(move |(task, without, with)| {
            let mut all = Vec::new();
            for problem in 0..self.problems {
                // Up or down by a third of the distance to 0 or 1, so that the mean probability stays.
                let luck = dice.share() * 2.0 - 1.0;
                let chance = |mean: f64| mean + luck * mean.min(1.0 - mean) / 3.0;
                for (mode, mean) in [(Mode::Llm, *without), (Mode::Sandbox, *with)] {
                    for repeat in 0..self.repeats {
                        let id = format!("p{problem:05}");
                        let key = AttemptKey { task: (*task).to_owned(), mode, id, repeat };
                        clock += 900;
                        let broken = self.broken > 0 && dice.roll().is_multiple_of(self.broken);
                        let end = match dice.share() < chance(mean) {
                            _ if broken => End::Broken,
                            true => End::Right,
                            false => End::Wrong,
                        };
                        all.push(attempt(key, end, clock, &mut dice));
                    }
                }
            }
            all
        })
    }

    /// The run as it is read from disk.
    pub(crate) fn source(&self) -> Source {
        Source {
            name: self.model.to_owned(),
            pages: None,
            link: "..".to_owned(),
            run: self.run(),
            has_run_file: true,
            facts: self.attempts().map(|attempt| Fact::of(attempt, None, &[])).collect(),
            damaged: Vec::new(),
            damaged_total: 0,
            without_events: 0,
        }
    }

    /// The run on disk.
    pub(crate) fn write(&self, directory: &Path) -> PathBuf {
        let folder = ResultsDir::new(directory);
        folder.save_run(&self.run()).unwrap();
        for attempt in self.attempts() {
            write_events(&folder, &attempt);
            folder.save(&attempt).unwrap();
        }
        directory.to_owned()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Right,
    Wrong,
    Broken,
}

fn attempt(key: AttemptKey, end: End, started: u64, dice: &mut Dice) -> AttemptRecord {
    let boxed = key.mode == Mode::Sandbox;
    let turns =
        if boxed { 1 + (dice.roll() % 4 + dice.roll() % 5 + dice.roll() % 3) as u32 } else { 1 };
    let outcome = match (end, dice.roll() % 12) {
        (End::Broken, _) => Outcome::Infrastructure {
            cause: "no space left on device".to_owned(),
            fault: trajectory::Fault::Unknown,
        },
        (End::Wrong, 0) if boxed => Outcome::MaxTurns,
        _ => Outcome::Submitted,
    };
    let environment = if boxed { u64::from(turns) * (80 + dice.roll() % 200) } else { 0 };
    AttemptRecord {
        v: results::VERSION,
        domain: format!(
            "{} {}",
            key.task,
            if dice.roll().is_multiple_of(2) { "easy" } else { "hard" }
        ),
        subject: None,
        problem_statement: format!("What is it, {}?", key.id),
        ground_truth: "42".to_owned(),
        answer: match end {
            End::Right => "42".to_owned(),
            _ => format!("{}", dice.roll() % 1000 + 43),
        },
        score: match end {
            End::Right => Some(1.0),
            End::Wrong => Some(0.0),
            End::Broken => None,
        },
        grade: json!(null),
        grading: results::GradingHistory::default(),
        outcome,
        spent: Spent {
            turns,
            cost: Some(0.0004 * f64::from(turns)),
            model_ms: 900 * u64::from(turns),
            tool_ms: if boxed { 120 * u64::from(turns) } else { 0 },
            ..Spent::default()
        },
        tokens: Tokens {
            prompt: if boxed { 900 } else { 200 },
            model: u64::from(turns) * (150 + dice.roll() % 300),
            environment,
        },
        started,
        wall_ms: 1100 * u64::from(turns),
        peak_memory: boxed.then(|| (24 << 20) + dice.roll() % (64 << 20)),
        tries: 1,
        key,
    }
}

/// An episode in which every turn computes and every second one looks at a file.
fn write_events(folder: &ResultsDir, attempt: &AttemptRecord) {
    let path = folder.trajectory_path(&attempt.key);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let usage = json!({"input": 100, "output": 10});
    let mut lines = vec![
        json!({"v": 1, "at": 1, "kind": "started", "problem_statement": "What is it?",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}]}], "model": "m"}),
    ];
    for turn in 1..=attempt.spent.turns {
        let command =
            if turn % 2 == 0 { "cat notes.txt" } else { "python3 -c 'print(sum(range(10)))'" };
        let call = json!({"id": "c", "name": "execute_bash", "arguments": {"command": command}});
        lines.push(json!({"v": 1, "at": 2, "kind": "replied", "turn": turn, "stop": "tool_calls", "usage": usage,
            "message": {"text": "", "calls": [call]}, "millis": 5}));
        lines.push(json!({"v": 1, "at": 3, "kind": "observed", "turn": turn, "millis": 5, "message":
            {"role": "tool", "call_id": "c", "name": "execute_bash", "content": [{"type": "text", "text": "45"}]}}));
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let read: Result<Vec<Line>, _> = trajectory::read(&text);
    read.unwrap();
    std::fs::write(path, text).unwrap();
}
