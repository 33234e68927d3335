//! What a benchmark costs: many one-command episodes, scheduled, graded and saved as `benchmark` does, against a
//! server that answers immediately; beside the reference package on the same root file system.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Instant};

use anyhow::{Context, Result};
use attempt::{Documents, LimitSettings, Settings};
use benchmark::{
    Benchmark, Concurrency, Due, JudgeAccess, Plan, Progress, ProgressEvent, RunEnd, Scope,
    SelectedProblem, TaskProblems,
};
use model::{Endpoint, Formatted, OpenAi, Retry, Retrying, ToolFormat};
use problems::{Problem, Task};
use results::{Mode, ResultsDir, Run, RunSettings, VERSION};
use sandbox::{ImageRef, Runtime, Spec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::process::Command;

use crate::{Machine, round};

/// Runs the reference package's episodes.
const REFERENCE: &str = include_str!("benchmark/reference.py");

/// Episodes per second, ours and the reference package's.
#[derive(Debug, Serialize)]
pub struct BenchmarkReport {
    /// The machine.
    pub machine: Machine,
    /// The image our sandboxes started from.
    pub image: String,
    /// This program.
    pub ours: EpisodeRate,
    /// The reference package, if it was measured.
    pub reference: Option<EpisodeRate>,
    /// Our episodes per second divided by the reference's.
    pub ratio: Option<f64>,
}

impl BenchmarkReport {
    /// Compares two measurements.
    ///
    /// # Errors
    /// If an episode failed: the speed of failures means nothing.
    pub fn new(
        image: &ImageRef,
        ours: EpisodeRate,
        reference: Option<EpisodeRate>,
    ) -> Result<Self> {
        for (whose, rate) in [("our", Some(&ours)), ("the reference's", reference.as_ref())] {
            let failures = rate.map_or(0, |rate| rate.failures);
            anyhow::ensure!(
                failures == 0,
                "{failures} of {whose} episodes gave a wrong answer, so their speed means nothing; does the \
                 server follow the script?"
            );
        }
        let ratio =
            reference.as_ref().map(|theirs| ours.episodes_per_second / theirs.episodes_per_second);
        Ok(Self {
            machine: Machine::current(),
            image: image.to_string(),
            ratio: ratio.map(round),
            ours,
            reference,
        })
    }
}

/// Episodes and how long they took.
#[derive(Debug, Serialize)]
pub struct EpisodeRate {
    /// Number of episodes.
    pub episodes: u32,
    /// Concurrent episodes.
    #[serde(rename = "at_once")]
    pub concurrency: u32,
    /// Time for all, in seconds.
    pub seconds: f64,
    /// Episodes per second.
    pub episodes_per_second: f64,
    /// Episodes with a wrong answer.
    pub failures: u32,
}

impl EpisodeRate {
    fn new(load: Load, seconds: f64, score: f64) -> Self {
        let Load { episodes, concurrency } = load;
        let right = (score * f64::from(episodes)).round();
        Self {
            episodes,
            concurrency,
            seconds: round(seconds),
            episodes_per_second: round(f64::from(episodes) / seconds.max(1e-9)),
            failures: episodes.saturating_sub(right as u32),
        }
    }
}

/// How many episodes, and how many of them at once.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of episodes.
    pub episodes: u32,
    /// Concurrent episodes.
    pub concurrency: u32,
}

/// Runs episodes from `image` against the server at `base_url`, as a benchmark would. Results are written to a
/// temporary directory below `scratch`.
///
/// # Errors
/// If the benchmark is aborted or cannot start.
pub async fn measure<R: Runtime>(
    runtime: R,
    image: &ImageRef,
    base_url: &str,
    load: Load,
    scratch: &Path,
) -> Result<EpisodeRate> {
    let retry = Retry { attempts: 3, ..Retry::default() };
    let server = OpenAi::new(Endpoint::new("perf", base_url))?;
    let model = Formatted::new(Retrying::new(server, retry), ToolFormat::Native);
    let dir = tempfile::tempdir_in(scratch)?;
    let plan = plan(image, load.episodes)?;
    let cancel = tokio_util::sync::CancellationToken::new();
    let concurrency = load.concurrency as usize;
    let (run, dir_of_run) = (run_of(&plan), ResultsDir::new(dir.path()));
    let benchmark = Benchmark {
        due: Due::of(&plan, &dir_of_run, &run, JudgeAccess::Missing, Scope::All),
        run,
        all: plan.clone(),
        plan,
        dir: dir_of_run,
        model,
        judge: None,
        runtime: Some(Arc::new(runtime)),
        concurrency: Concurrency {
            sandboxes: concurrency,
            model_calls: concurrency,
            ..Concurrency::default()
        },
        config: Value::Null,
        bad_rows: Vec::new(),
        progress: Arc::new(Silent),
    };
    let began = Instant::now();
    let finished = benchmark.run(cancel).await?;
    let seconds = began.elapsed().as_secs_f64();
    if let RunEnd::Failed { cause } = finished.end {
        anyhow::bail!("the benchmark was aborted: {cause}");
    }
    Ok(EpisodeRate::new(load, seconds, finished.summary.mean_score.unwrap_or_default()))
}

/// Multiple-choice questions whose answer is A.
fn plan(image: &ImageRef, episodes: u32) -> Result<Plan> {
    let task = Task::builtin("biomed").context("there is no task biomed")?;
    let problem = |number: u32| Problem {
        id: format!("perf-{number}"),
        domain: "biomed".into(),
        subject: None,
        qa_type: None,
        statement: format!("Measure the benchmark, number {number}. (A) yes (B) no"),
        ground_truth: "A".into(),
        files: BTreeMap::new(),
        extra: serde_json::Map::new(),
        repeats: 1,
    };
    let settings = Settings {
        sandbox: Spec { image: image.clone(), ..Spec::default() },
        limits: LimitSettings { turns: Some(10), ..LimitSettings::default() },
        program: env!("CARGO_PKG_VERSION").into(),
        ..Settings::default()
    };
    let selected = |number| SelectedProblem { problem: Arc::new(problem(number)), repeats: 1 };
    let problems = (0..episodes).map(selected).collect();
    let tasks = TaskProblems { task: Arc::new(task), problems, rows_sha256: String::new() };
    Ok(Plan { tasks: vec![tasks], modes: vec![Mode::Sandbox], settings })
}

fn run_of(plan: &Plan) -> Run {
    Run {
        v: VERSION,
        program: env!("CARGO_PKG_VERSION").into(),
        started: 0,
        model: "perf".into(),
        tasks: plan.tasks.iter().map(TaskProblems::info).collect(),
        modes: plan.modes.clone(),
        without: Vec::new(),
        documents: Documents::Files.name().into(),
        settings: RunSettings::default(),
    }
}

/// Runs the same episodes with the reference package, in Docker containers of `docker_image`, by a Python interpreter
/// that has it.
///
/// # Errors
/// If Python cannot be started or the package fails.
pub async fn measure_reference(
    python: &Path,
    docker_image: &str,
    base_url: &str,
    load: Load,
    scratch: &Path,
) -> Result<EpisodeRate> {
    #[derive(Deserialize)]
    struct Printed {
        seconds: f64,
        score: f64,
    }
    let dir = tempfile::tempdir_in(scratch)?;
    let output = Command::new(python)
        .args(["-c", REFERENCE, docker_image, base_url])
        .args([load.episodes.to_string(), load.concurrency.to_string()])
        .arg(dir.path())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot start {}", python.display()))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let last = stdout.trim_end().lines().last().unwrap_or_default();
    let printed: Printed = serde_json::from_str(last).with_context(|| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<&str> = stderr.lines().rev().take(3).collect();
        format!("the reference package failed: {}", tail.join(" | "))
    })?;
    Ok(EpisodeRate::new(load, printed.seconds, printed.score))
}

/// Shows no progress.
struct Silent;

impl Progress for Silent {
    fn on_event(&self, _: &ProgressEvent<'_>) {}
}
