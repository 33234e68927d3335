//! What a benchmark costs: many one-command episodes, scheduled, graded and kept as `benchmark` does, against a
//! server that answers at once; beside the reference package on the same root file system.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use benchmark::{Benchmark, Caps, Context as Where, Method, News, Pace, Plan, Progress, Questions};
use clap::Args;
use model::{Endpoint, Formatted, OpenAi, Retry, Retrying, Sampling, ToolFormat};
use problems::{Problem, Task};
use results::{Folder, Mode, Run, VERSION};
use sandbox::{ImageRef, Spec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::process::Command;

use super::figures::{Machine, round};
use crate::{args::RuntimeKind, exit::Exit, output, runtime::AnyRuntime, settings::Settings};

/// Plays the reference's episodes.
const REFERENCE: &str = include_str!("reference.py");

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct BenchmarkPerfArgs {
    /// A server that answers at once with one command and then submits: the test kit's `mock-server --turns 2
    /// --command 'echo A > /testbed/answer.txt'`
    #[arg(long, value_name = "URL")]
    base_url: String,
    /// How many episodes to play
    #[arg(long, value_name = "N", default_value_t = 1000)]
    episodes: u32,
    /// How many of them at once [default: four for each processor]
    #[arg(long, value_name = "N")]
    concurrency: Option<NonZeroU32>,
    /// The image our sandboxes start from: host, a name or a directory
    #[arg(long, default_value = "host")]
    image: ImageRef,
    /// A Python that has the reference package, `llm-in-sandbox`, to play the same episodes in Docker
    #[arg(long, value_name = "PROGRAM", requires = "docker_image")]
    python: Option<PathBuf>,
    /// The Docker image the reference starts from; of the same files as --image
    #[arg(long, value_name = "NAME")]
    docker_image: Option<String>,
    /// How many episodes the reference plays
    #[arg(long, value_name = "N", default_value_t = 10)]
    reference_episodes: u32,
    /// How many of them at once [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    reference_workers: Option<NonZeroU32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Figures {
    machine: Machine,
    image: String,
    ours: Played,
    reference: Option<Played>,
    /// How often as many episodes we play in the same time.
    ratio: Option<f64>,
}

/// Episodes and how long they took.
#[derive(Debug, Serialize)]
struct Played {
    episodes: u32,
    at_once: u32,
    seconds: f64,
    episodes_per_second: f64,
    /// Episodes that did not come to the right answer.
    failures: u32,
}

impl Played {
    fn new(episodes: u32, at_once: u32, seconds: f64, score: f64) -> Self {
        let right = (score * f64::from(episodes)).round();
        Self {
            episodes,
            at_once,
            seconds: round(seconds),
            episodes_per_second: round(f64::from(episodes) / seconds.max(1e-9)),
            failures: episodes.saturating_sub(right as u32),
        }
    }
}

/// Plays the episodes and prints what they cost.
pub(crate) async fn run(args: &BenchmarkPerfArgs, settings: &Settings) -> Result<Exit> {
    let ours = ours(args, settings).await?;
    let reference = match &args.python {
        Some(python) => Some(reference(args, python, settings).await?),
        None => None,
    };
    for (who, played) in [("our", Some(&ours)), ("the reference's", reference.as_ref())] {
        let failures = played.map_or(0, |played| played.failures);
        anyhow::ensure!(
            failures == 0,
            "{failures} of {who} episodes did not come to the right answer, so their speed says nothing; does the \
             server follow the script?"
        );
    }
    let ratio =
        reference.as_ref().map(|theirs| ours.episodes_per_second / theirs.episodes_per_second);
    let figures = Figures {
        machine: Machine::here(),
        image: args.image.to_string(),
        ratio: ratio.map(round),
        ours,
        reference,
    };
    match args.json {
        true => output::print_json(&figures)?,
        false => output::print(&render(&figures))?,
    }
    Ok(Exit::Done)
}

async fn ours(args: &BenchmarkPerfArgs, settings: &Settings) -> Result<Played> {
    let runtime = AnyRuntime::start(RuntimeKind::default(), settings).await?;
    let retry = Retry { attempts: 3, ..Retry::default() };
    let server = OpenAi::new(Endpoint::new("perf", args.base_url.as_str()))?;
    let model = Formatted::new(Retrying::new(server, retry), ToolFormat::Native);
    let dir = tempfile::tempdir_in(settings.writable_home()?)?;
    let at_once = args.concurrency.map_or_else(|| processors() * 4, NonZeroU32::get);
    let plan = plan(args)?;
    let (_stopper, watch) = agent::stopper();
    let benchmark = Benchmark {
        run: run_of(&plan),
        plan,
        folder: Folder::new(dir.path()),
        model,
        judge: None,
        runtime: Some(Arc::new(runtime)),
        pace: Pace {
            sandboxes: at_once as usize,
            model_calls: at_once as usize,
            ..Pace::default()
        },
        config: Value::Null,
        bad_rows: Vec::new(),
        progress: Arc::new(Nobody),
    };
    let began = Instant::now();
    let finished = benchmark.run(watch).await?;
    let seconds = began.elapsed().as_secs_f64();
    if let benchmark::End::Broken { cause } = finished.end {
        anyhow::bail!("the episodes broke off: {cause}");
    }
    Ok(Played::new(args.episodes, at_once, seconds, finished.summary.mean_score))
}

/// Questions with one right letter.
fn plan(args: &BenchmarkPerfArgs) -> Result<Plan> {
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
    let method = Method {
        spec: Spec { image: args.image.clone(), ..Spec::default() },
        caps: Caps {
            turns: Some(10),
            tokens: None,
            tokens_per_call: 4096,
            plain_tokens: 4096,
            time: None,
            cost: None,
        },
        command_timeout: Duration::from_secs(120),
        vision: agent::tools::Vision::TextOnly,
        sampling: Sampling::default(),
        price: None,
        compaction: None,
        context: Where::Files,
        without: BTreeSet::new(),
        settings: Value::Null,
        program: env!("CARGO_PKG_VERSION").into(),
    };
    let problems = (0..args.episodes).map(problem).collect();
    let questions = Questions { task, problems, repeats: 1, rows_sha256: String::new() };
    Ok(Plan { tasks: vec![questions], modes: vec![Mode::Sandbox], method })
}

fn run_of(plan: &Plan) -> Run {
    Run {
        v: VERSION,
        program: env!("CARGO_PKG_VERSION").into(),
        started: 0,
        model: "perf".into(),
        tasks: plan.tasks.iter().map(Questions::info).collect(),
        modes: plan.modes.clone(),
        without: Vec::new(),
        context: Where::Files.name().into(),
        settings: Value::Null,
    }
}

/// The reference package, in Docker.
async fn reference(
    args: &BenchmarkPerfArgs,
    python: &PathBuf,
    settings: &Settings,
) -> Result<Played> {
    #[derive(Deserialize)]
    struct Said {
        seconds: f64,
        score: f64,
    }
    let dir = tempfile::tempdir_in(settings.writable_home()?)?;
    let workers = args.reference_workers.map_or_else(processors, NonZeroU32::get);
    let image = args.docker_image.as_deref().unwrap_or_default();
    let told = Command::new(python)
        .args(["-c", REFERENCE, image, &args.base_url])
        .args([args.reference_episodes.to_string(), workers.to_string()])
        .arg(dir.path())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot start {}", python.display()))?;
    let (out, err) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    let last = out.trim_end().lines().last().unwrap_or_default();
    let said: Said = serde_json::from_str(last).with_context(|| {
        let tail: Vec<&str> = err.lines().rev().take(3).collect();
        format!("the reference did not play its episodes: {}", tail.join(" | "))
    })?;
    Ok(Played::new(args.reference_episodes, workers, said.seconds, said.score))
}

fn processors() -> u32 {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Nobody listens while it is measured.
struct Nobody;

impl Progress for Nobody {
    fn tell(&self, _: &News<'_>) {}
}

fn render(figures: &Figures) -> String {
    let Figures { machine, image, ours, reference, ratio } = figures;
    let mut lines = vec![
        format!("{} cores, {:.1} GiB, {}", machine.cores, machine.memory_gib, machine.system),
        format!("one-command episodes from the image {image}"),
    ];
    let mut show = |name: &str, played: &Played| {
        let Played { episodes, at_once, seconds, episodes_per_second, failures } = played;
        lines.push(format!(
            "{name:<10} {episodes} episodes, {at_once} at once: {seconds:.2} s, {episodes_per_second:.2} a second, \
             {failures} failed"
        ));
    };
    show("ours", ours);
    if let Some(reference) = reference {
        show("reference", reference);
    }
    if let Some(ratio) = ratio {
        lines.push(format!("ratio      {ratio:.0}x"));
    }
    lines.join("\n")
}
