//! `benchmark`: measures a model on tasks, with and without a sandbox, and stores every attempt.
//!
//! The order of steps is here; the steps are in the modules below and in the crates.

mod args;
mod judge;
mod load;
mod settings;
mod show;
mod sources;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use attempt::Documents;
use benchmark::{Benchmark, Plan, Progress, RunOutcome, TaskProblems};
use results::{ResultsDir, Run, RunSettings, VERSION};
use sandbox::{ImageRef, Runtime, Sandbox, Spec};
use startup::Signals;
use tokio_util::sync::CancellationToken;

pub(crate) use self::args::{BenchmarkArgs, Modes};
use self::{
    judge::JudgeChoice,
    load::Loaded,
    settings::{BenchmarkSettings, ConcurrencyArgs},
    show::{OutputMode, ProgressView},
    sources::Source,
};
use crate::{
    commands::run::{Seal, seal},
    console::output,
    exit::{self, Exit},
    model::{AnyModel, Secrets},
    runtime::AnyRuntime,
    settings::Settings,
};

/// Runs a benchmark, new or resumed.
pub(crate) async fn run(
    args: BenchmarkArgs,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let mode = OutputMode::of(&args);
    let concurrency = ConcurrencyArgs::of(&args);
    let (given_name, output, resumed) =
        (args.model.model.clone(), args.output.clone(), args.resume.clone());
    let (mut benchmark, secrets) = match &resumed {
        Some(dir) => BenchmarkSettings::resume(dir, args, settings)?,
        None => BenchmarkSettings::check(args, settings)?,
    };
    if let Some(hint) = benchmark.model.hint.take().filter(|_| mode.is_for_people()) {
        output::note(&hint);
    }
    let judge = JudgeChoice::of(&benchmark.judge, &benchmark.model, given_name.as_deref());
    let concurrency = benchmark.concurrency(&concurrency);
    let loading = load::load(&benchmark, mode, settings);
    let loaded = tokio::select! {
        loaded = loading => loaded?,
        exit = signals.cancelled() => return Ok(exit),
    };
    let dir = resumed.or(output).unwrap_or_else(|| default_directory(&benchmark));
    let dir = ResultsDir::new(dir);
    let seal = seal(settings)?;
    let requested = requested_run(&benchmark, &loaded, judge.name(&benchmark))?;
    let (_lock, run) = benchmark::open_run(&dir, requested, |record| sign(&seal, record))?;
    let opening = open(&benchmark, secrets, &judge, &loaded, settings);
    let opened = tokio::select! {
        opened = opening => opened?,
        exit = signals.cancelled() => return Ok(exit),
    };
    let judge = judge.state(&loaded.tasks);
    let view: Arc<dyn Progress> = Arc::new(ProgressView::new(mode, settings));
    let benchmark = Benchmark {
        plan: Plan {
            tasks: loaded.tasks,
            modes: benchmark.modes.clone(),
            settings: benchmark.attempt(opened.context),
        },
        dir: dir.clone(),
        run,
        model: opened.model,
        judge: opened.judge,
        runtime: opened.runtime,
        concurrency,
        config: benchmark.config(),
        bad_rows: loaded.bad_rows,
        progress: Arc::clone(&view),
    };
    let outcome = run_until_cancelled(benchmark, signals).await?;
    drop(view);
    show::print_results(&outcome, &dir, mode, judge)?;
    match exit::of_benchmark(&outcome, &loaded.broken) {
        Exit::Cancelled(_) => Ok(signals.cancelled().await),
        exit => Ok(exit),
    }
}

/// Runs until it ends or the user cancels it.
async fn run_until_cancelled(
    benchmark: Benchmark<Arc<AnyModel>, AnyRuntime>,
    signals: &Signals,
) -> anyhow::Result<RunOutcome> {
    let cancel = CancellationToken::new();
    let (canceller, mut signals) = (cancel.clone(), signals.clone());
    let listening = tokio::spawn(async move {
        signals.cancelled().await;
        canceller.cancel();
    });
    let outcome = benchmark.run(cancel).await;
    listening.abort();
    Ok(outcome?)
}

/// What a run works with.
struct Opened {
    model: Arc<AnyModel>,
    context: Option<u64>,
    judge: Option<Arc<AnyModel>>,
    runtime: Option<Arc<AnyRuntime>>,
}

/// Starts what is needed. The runtime comes first: a model may have to be downloaded, and a machine that cannot run
/// sandboxes should fail before.
async fn open(
    benchmark: &BenchmarkSettings,
    secrets: Secrets,
    judge: &JudgeChoice,
    loaded: &Loaded,
    settings: &Settings,
) -> anyhow::Result<Opened> {
    let runtime = match loaded.needs_sandboxes(&benchmark.modes) {
        true => Some(AnyRuntime::start(benchmark.sandbox.runtime, settings).await?),
        false => None,
    };
    if let Some(runtime) = &runtime {
        check_sandbox(benchmark, loaded, runtime).await?;
    }
    let (model, context) = AnyModel::open(&benchmark.model, secrets, settings).await?;
    let model = Arc::new(model);
    let judge = match judge {
        JudgeChoice::None => None,
        JudgeChoice::SameModel => Some(Arc::new(model.uncached())),
        JudgeChoice::Other(args) => {
            let (judge, secrets) = args.model_settings(&benchmark.model, settings)?;
            Some(Arc::new(AnyModel::open(&judge, secrets, settings).await?.0))
        }
    };
    Ok(Opened { model, context, judge, runtime: runtime.map(Arc::new) })
}

/// Creates one sandbox, so that a problem with the image or the machine is reported once, before any attempt.
async fn check_sandbox(
    benchmark: &BenchmarkSettings,
    loaded: &Loaded,
    runtime: &AnyRuntime,
) -> anyhow::Result<()> {
    let spec = &benchmark.sandbox.spec;
    let first = loaded.tasks.first().and_then(|task| task.task.image(task.problems.first()?));
    let image = first.map_or_else(|| spec.image.clone(), ImageRef::Name);
    let sandbox = runtime.create(&Spec { image, ..spec.clone() }).await?;
    let accepted = benchmark.sandbox.accept(sandbox.protection());
    sandbox.destroy().await?;
    Ok(accepted?)
}

/// What is recorded about the run.
fn requested_run(
    benchmark: &BenchmarkSettings,
    loaded: &Loaded,
    judge: Option<String>,
) -> anyhow::Result<Run> {
    Ok(Run {
        v: VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        started: attempt::now_ms(),
        model: benchmark.model.name.clone(),
        tasks: loaded.tasks.iter().map(TaskProblems::info).collect(),
        modes: benchmark.modes.clone(),
        without: benchmark.without.iter().map(ToString::to_string).collect(),
        documents: benchmark.documents.name().to_owned(),
        settings: benchmark.record(judge)?,
    })
}

/// Signs recorded settings.
fn sign(seal: &Seal, settings: &mut RunSettings) {
    settings.seal = None;
    settings.seal = serde_json::to_value(&*settings).ok().map(|value| seal.signature(&value));
}

/// The default directory. It depends on the command alone, not on which of its tasks can be loaded.
fn default_directory(benchmark: &BenchmarkSettings) -> PathBuf {
    let last = |source: &Source| {
        let name = Path::new(&source.task).file_name();
        name.map_or_else(|| "task".into(), |name| name.to_string_lossy().into_owned())
    };
    let tasks: Vec<String> = benchmark.tasks.iter().map(last).collect();
    let mut name = format!("{}-{}", tasks.join("+"), benchmark.model.name);
    for capability in &benchmark.without {
        name.push_str(&format!("-without-{capability}"));
    }
    if benchmark.documents == Documents::Prompt {
        name.push_str("-documents-in-prompt");
    }
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || "-_.+".contains(c) => c,
        _ => '_',
    };
    let name: String = name.chars().take(120).map(plain).collect();
    PathBuf::from("benchmark-runs").join(name)
}
