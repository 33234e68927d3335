//! `benchmark`: measures a model on tasks, with and without a computer, and keeps every attempt.
//!
//! The order of things is here; how each is done is in the modules below and in the crates.

mod args;
mod asked;
mod judging;
mod load;
mod show;
mod sources;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use benchmark::{Benchmark, Finished, Plan, Progress};
use results::{Folder, Run, VERSION};
use sandbox::{ImageRef, Runtime, Sandbox, Spec};
use serde_json::{Value, json};

pub(crate) use self::args::BenchmarkArgs;
use self::{
    asked::{Asked, PaceAsked},
    judging::Judging,
    load::Loaded,
    show::{Shown, Told},
    sources::Source,
};
use crate::{
    exit::Exit,
    interrupt::Interrupts,
    output,
    run::{AnyModel, Secrets, seal},
    runtime::AnyRuntime,
    settings::Settings,
};

/// Runs a benchmark, new or resumed.
pub(crate) async fn run(
    args: BenchmarkArgs,
    settings: &Settings,
    interrupts: &mut Interrupts,
) -> anyhow::Result<Exit> {
    let told = Told::of(&args);
    let pace = PaceAsked::of(&args);
    let (named, output, resumed) =
        (args.model.model.clone(), args.output.clone(), args.resume.clone());
    let (mut asked, secrets) = match &resumed {
        Some(dir) => Asked::resume(dir, args, settings)?,
        None => Asked::check(args, settings)?,
    };
    if let Some(hint) = asked.model.hint.take().filter(|_| told.is_for_people()) {
        output::note(&hint);
    }
    let judging = Judging::of(&asked.judge, &asked.model, named.as_deref());
    let pace = asked.pace(&pace);
    let loading = load::load(&asked, told, settings);
    let loaded = tokio::select! {
        loaded = loading => loaded?,
        exit = interrupts.cancelled() => return Ok(exit),
    };
    let folder = Folder::new(resumed.or(output).unwrap_or_else(|| usual_directory(&asked)));
    let seal = seal(settings)?;
    let written = written(&asked, &loaded, judging.name(&asked));
    let (_lock, run) = benchmark::claim(&folder, written, |record| seal.put_on(record))?;
    let opening = open(&asked, secrets, &judging, &loaded, settings);
    let opened = tokio::select! {
        opened = opening => opened?,
        exit = interrupts.cancelled() => return Ok(exit),
    };
    let judged = judging.judged(&loaded.questions);
    let shown: Arc<dyn Progress> = Arc::new(Shown::new(told, settings));
    let benchmark = Benchmark {
        plan: Plan {
            tasks: loaded.questions,
            modes: asked.modes.clone(),
            method: asked.method(run.settings["same"].clone(), opened.context),
        },
        folder: folder.clone(),
        run,
        model: opened.model,
        judge: opened.judge,
        runtime: opened.runtime,
        pace,
        config: asked.config(),
        bad_rows: loaded.bad_rows,
        progress: Arc::clone(&shown),
    };
    let finished = play(benchmark, interrupts).await?;
    drop(shown);
    show::tell(&finished, &folder, told, judged)?;
    match show::exit(&finished, &loaded.broken) {
        Exit::Cancelled(_) => Ok(interrupts.cancelled().await),
        exit => Ok(exit),
    }
}

/// Runs until it ends or the user wants it to.
async fn play(
    benchmark: Benchmark<Arc<AnyModel>, AnyRuntime>,
    interrupts: &Interrupts,
) -> anyhow::Result<Finished> {
    let (stopper, watch) = agent::stopper();
    let mut interrupts = interrupts.clone();
    let stopping = tokio::spawn(async move {
        interrupts.cancelled().await;
        stopper.stop();
        // Whoever watches must not find that nobody can stop it any more.
        std::future::pending::<()>().await;
    });
    let finished = benchmark.run(watch).await;
    stopping.abort();
    Ok(finished?)
}

/// What a run works with.
struct Opened {
    model: Arc<AnyModel>,
    context: Option<u64>,
    judge: Option<Arc<AnyModel>>,
    runtime: Option<Arc<AnyRuntime>>,
}

/// Starts what is needed. A model may have to be fetched: what is wrong with the machine is better known before.
async fn open(
    asked: &Asked,
    secrets: Secrets,
    judging: &Judging,
    loaded: &Loaded,
    settings: &Settings,
) -> anyhow::Result<Opened> {
    let runtime = match loaded.needs_sandboxes(&asked.modes) {
        true => Some(AnyRuntime::start(asked.computer.runtime, settings).await?),
        false => None,
    };
    if let Some(runtime) = &runtime {
        try_out(asked, loaded, runtime).await?;
    }
    let (model, context) = AnyModel::open(&asked.model, secrets, settings).await?;
    let model = Arc::new(model);
    let judge = match judging {
        Judging::Nobody => None,
        Judging::Itself => Some(Arc::new(model.uncached())),
        Judging::Other(args) => {
            let (plan, secrets) = args.plan(&asked.model, settings)?;
            Some(Arc::new(AnyModel::open(&plan, secrets, settings).await?.0))
        }
    };
    Ok(Opened { model, context, judge, runtime: runtime.map(Arc::new) })
}

/// Makes one sandbox: what is wrong with the image or the machine is told once, before anything is asked.
async fn try_out(asked: &Asked, loaded: &Loaded, runtime: &AnyRuntime) -> anyhow::Result<()> {
    let usual = &asked.computer.spec;
    let first = loaded.questions.first().and_then(|asked| {
        let problem = asked.problems.first()?;
        asked.task.image(problem)
    });
    let image = first.map_or_else(|| usual.image.clone(), ImageRef::Name);
    let sandbox = runtime.create(&Spec { image, ..usual.clone() }).await?;
    let accepted = asked.computer.accept(sandbox.protection());
    sandbox.destroy().await?;
    Ok(accepted?)
}

/// What is written down about the run.
fn written(asked: &Asked, loaded: &Loaded, judge: Option<String>) -> Run {
    let mut record = asked.record();
    record["judge"] =
        judge.map_or(Value::Null, |name| json!({ "name": name, "asked": asked.judge }));
    Run {
        v: VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        started: benchmark::now(),
        model: asked.model.name.clone(),
        tasks: loaded.questions.iter().map(benchmark::Questions::info).collect(),
        modes: asked.modes.clone(),
        without: asked.without.iter().map(ToString::to_string).collect(),
        context: asked.context.name().to_owned(),
        settings: record,
    }
}

/// The same command always means the same directory, whichever of its tasks can be read today.
fn usual_directory(asked: &Asked) -> PathBuf {
    let last = |source: &Source| {
        let name = Path::new(&source.task).file_name();
        name.map_or_else(|| "task".into(), |name| name.to_string_lossy().into_owned())
    };
    let tasks: Vec<String> = asked.tasks.iter().map(last).collect();
    let mut name = format!("{}-{}", tasks.join("+"), asked.model.name);
    for capability in &asked.without {
        name.push_str(&format!("-without-{capability}"));
    }
    if asked.context == benchmark::Context::Prompt {
        name.push_str("-documents-in-prompt");
    }
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || "-_.+".contains(c) => c,
        _ => '_',
    };
    let name: String = name.chars().take(120).map(plain).collect();
    PathBuf::from("benchmark-runs").join(name)
}
