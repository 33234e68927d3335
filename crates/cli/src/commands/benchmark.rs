//! `benchmark`: measures a model on tasks, with and without a sandbox, and stores every attempt.
//!
//! The order of steps is here; the steps are in the modules below and in the crates.

mod args;
mod differences;
mod dry_run;
mod estimate;
mod images;
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
use benchmark::{Benchmark, Due, Plan, Progress, Regrade, RunOutcome, Scope, TaskRows};
use results::{Mode, ProblemRequest, ResultsDir, Run, RunSettings, TaskInfo, VERSION};
use serde::Deserialize;
use startup::Signals;
use tokio_util::sync::CancellationToken;

pub(crate) use self::{
    args::{BenchmarkArgs, Modes},
    load::read as read_task,
    show::OutputMode,
    sources::Source,
};
use self::{
    estimate::Estimate,
    judge::JudgeChoice,
    load::Loaded,
    settings::{BenchmarkSettings, ConcurrencyArgs},
    show::{JudgeState, ProgressView},
};
use crate::{
    commands::run::{Seal, seal},
    console::{counted, output},
    exit::{self, Exit, UsageError, describe},
    model::{self, AnyModel, Effort, ModelLocation, ModelSettings, Secrets},
    runtime::{self, AnyRuntime},
    settings::Settings,
};

/// Runs a benchmark, new or resumed.
pub(crate) async fn run(
    mut args: BenchmarkArgs,
    settings: &Settings,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let mode = OutputMode::of(&args);
    if args.dry_run {
        return dry_run::run(args, mode, settings, signals).await;
    }
    let options = Options::of(&mut args);
    let given_name = args.model.model.clone();
    let (mut benchmark, secrets) = match &options.resumed {
        Some(dir) => BenchmarkSettings::resume(dir, args, settings)?,
        None => BenchmarkSettings::check(args, settings)?,
    };
    let dir = options.dir(&benchmark);
    keep_adapter(&mut benchmark, &dir, mode, settings)?;
    if let Some(hint) = benchmark.model.hint.take().filter(|_| mode.is_for_people()) {
        output::note(&hint);
    }
    let judge = JudgeChoice::of(&benchmark.judge, &benchmark.model, given_name.as_deref());
    let concurrency = benchmark.concurrency(&options.concurrency);
    let loading = load::load(&benchmark, mode, settings);
    let loaded = tokio::select! {
        loaded = loading => loaded?,
        exit = signals.cancelled() => return Ok(exit),
    };
    let seal = seal(settings)?;
    options.check_judge(&judge, &loaded)?;
    let requested = requested_run(&benchmark, &loaded.tasks, judge.name(&benchmark))?;
    let recorded = dir.run().ok().flatten();
    let mut prepared = benchmark::prepare_run(&dir, requested, &loaded.tasks, options.regrade())
        .map_err(differences::explain)?;
    if let Some(recorded) = &recorded {
        keep_tasks(recorded, &mut prepared.run, &loaded, &seal)?;
        announce_outdated(recorded, &prepared.run, &loaded, &dir, mode);
    }
    if options.scope == Scope::Grades {
        benchmark.modes.clone_from(&prepared.run.modes);
    }
    let mut work = Work::of(&benchmark, &loaded, &prepared.run, &dir, &judge, &options);
    work.announce(&judge, &loaded.tasks, &prepared.run, &dir, mode);
    let opening = Opening {
        benchmark: &benchmark,
        judge: &judge,
        loaded: &loaded,
        work: &work,
        options: &options,
        estimate: Estimate::of(&work.due, concurrency.sandboxes, benchmark.limits.cost),
        mode,
        settings,
    };
    let opened = tokio::select! {
        opened = opening.open(secrets) => opened?,
        exit = signals.cancelled() => return Ok(exit),
    };
    let (_lock, run) = prepared.save(|record| sign(&seal, record))?;
    withdraw_scores(recorded.as_ref(), &loaded, &dir, mode)?;
    let judge = judge.state(&loaded.tasks);
    let view: Arc<dyn Progress> = Arc::new(ProgressView::new(mode, settings));
    work.use_context(&benchmark, opened.context);
    let benchmark = Benchmark {
        plan: work.plan,
        due: work.due,
        all: work.all,
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

/// Options that are not settings of the run.
struct Options {
    output: Option<PathBuf>,
    resumed: Option<PathBuf>,
    concurrency: ConcurrencyArgs,
    scope: Scope,
    preflight: bool,
    ask: bool,
}

impl Options {
    fn of(args: &mut BenchmarkArgs) -> Self {
        Self {
            output: args.output.take(),
            resumed: args.resume.clone(),
            concurrency: ConcurrencyArgs::of(args),
            scope: if args.regrade { Scope::Grades } else { Scope::All },
            preflight: !args.no_preflight,
            ask: !args.yes,
        }
    }

    /// The directory of the run.
    fn dir(&self, benchmark: &BenchmarkSettings) -> ResultsDir {
        let given = self.resumed.as_ref().or(self.output.as_ref());
        ResultsDir::new(given.cloned().unwrap_or_else(|| default_directory(benchmark)))
    }

    fn regrade(&self) -> Regrade {
        match self.scope {
            Scope::All => Regrade::No,
            Scope::Grades => Regrade::All,
        }
    }

    /// Refuses to grade again without the judge: all judged answers would lose their grades.
    fn check_judge(&self, judge: &JudgeChoice, loaded: &Loaded) -> Result<(), UsageError> {
        if self.scope == Scope::All || judge.state(&loaded.tasks) != JudgeState::Missing {
            return Ok(());
        }
        let recorded = match self.resumed {
            Some(_) => "",
            None => ", or resume with --resume DIR",
        };
        Err(UsageError(format!("--regrade: name the judge with --judge-model{recorded}")))
    }
}

/// Continues a run of the same model with the adapter it was started with, unless the user chose one: the default of
/// another version of the program may be another. Changes nothing with `--resume`, which takes no defaults.
fn keep_adapter(
    benchmark: &mut BenchmarkSettings,
    dir: &ResultsDir,
    mode: OutputMode,
    settings: &Settings,
) -> anyhow::Result<()> {
    // What cannot be read is reported once the settings are compared.
    let Some(recorded) = dir.run().ok().flatten() else { return Ok(()) };
    // A run without attempts is started again.
    let is_started = dir.attempts().is_ok_and(|mut attempts| attempts.next().is_some());
    let location = recorded.settings.requested.pointer("/model/place");
    let location = location.and_then(|location| ModelLocation::deserialize(location).ok());
    let Some(location) = location.filter(|_| is_started) else { return Ok(()) };
    if benchmark.model.keep_adapter(location, settings)? && mode.is_for_people() {
        let with = match benchmark.model.adapter() {
            Some(adapter) => format!("with the adapter {adapter}"),
            None => "without an adapter".to_owned(),
        };
        output::note(&format!(
            "the run in {} was started {with} and continues so; another --output DIR starts one with the default adapter",
            dir.path().display()
        ));
    }
    Ok(())
}

/// The tasks of a run that this command does not load.
fn absent<'a>(run: &'a Run, loaded: &'a Loaded) -> impl Iterator<Item = &'a TaskInfo> {
    let is_loaded = move |name: &str| loaded.tasks.iter().any(|rows| rows.task.name == name);
    run.tasks.iter().filter(move |task| !is_loaded(&task.name))
}

/// Records where the tasks of earlier commands are, so that a resumed run has all of them. Only from settings that this
/// user wrote.
fn keep_tasks(recorded: &Run, run: &mut Run, loaded: &Loaded, seal: &Seal) -> anyhow::Result<()> {
    if seal.verify(&serde_json::to_value(&recorded.settings)?) {
        let absent: Vec<String> = absent(run, loaded).map(|task| task.name.clone()).collect();
        let (from, to) = (&recorded.settings.requested, &mut run.settings.requested);
        sources::keep_sources(from, to, &absent);
    }
    Ok(())
}

/// Takes the score from attempts of an earlier command whose rows the grader does not accept any more, and reports them.
fn withdraw_scores(
    recorded: Option<&Run>,
    loaded: &Loaded,
    dir: &ResultsDir,
    mode: OutputMode,
) -> anyhow::Result<()> {
    if recorded.is_none() {
        return Ok(());
    }
    for (task, number) in benchmark::withdraw_scores(dir, &loaded.tasks)? {
        let attempts = counted(number, "stored attempt");
        let have = if number == 1 { "has" } else { "have" };
        mode.note(&format!(
            "{task}: {attempts} {have} no score now: an earlier version graded rows that the grader does not accept (see \
             above). They stay in the directory as ungraded, with their earlier grade. To score these problems, correct the \
             rows and start a new run with another --output"
        ));
    }
    Ok(())
}

/// Names the tasks whose grades another judge makes outdated, and which this command does not grade.
fn announce_outdated(
    recorded: &Run,
    run: &Run,
    loaded: &Loaded,
    dir: &ResultsDir,
    mode: OutputMode,
) {
    let names = absent(run, loaded).map(|task| task.name.as_str());
    let names: Vec<&str> =
        names.filter(|name| run.regradings(name) > recorded.regradings(name)).collect();
    if !names.is_empty() {
        let path = output::shell_quoted(&dir.path().display().to_string());
        mode.note(&format!(
            "the answers to {} were graded by the earlier judge and count as ungraded now; grade them with: \
             llm-in-sandbox benchmark --resume {path}",
            names.join(", ")
        ));
    }
}

/// What this command plays and grades, and what the whole run consists of.
struct Work {
    plan: Plan,
    all: Plan,
    due: Due,
}

impl Work {
    fn of(
        benchmark: &BenchmarkSettings,
        loaded: &Loaded,
        run: &Run,
        dir: &ResultsDir,
        judge: &JudgeChoice,
        options: &Options,
    ) -> Self {
        let plan = |requests: &[ProblemRequest], modes: &[Mode]| Plan {
            tasks: loaded.tasks.iter().map(|rows| rows.select(requests)).collect(),
            modes: modes.to_vec(),
            settings: benchmark.attempt(None),
        };
        let all = plan(&run.settings.requests, &run.modes);
        let is_whole = options.resumed.is_some() || options.scope == Scope::Grades;
        let own = match is_whole {
            true => all.clone(),
            false => plan(&benchmark.requests(&loaded.tasks), &benchmark.modes),
        };
        let due = Due::of(&own, dir, run, judge.access(), options.scope);
        Self { plan: own, all, due }
    }

    /// Says what the user should know before tokens are spent.
    fn announce(
        &self,
        judge: &JudgeChoice,
        rows: &[TaskRows],
        run: &Run,
        dir: &ResultsDir,
        mode: OutputMode,
    ) {
        let own: usize = self.plan.tasks.iter().map(|task| task.attempts()).sum();
        let all: usize = run.tasks.iter().map(TaskInfo::planned).sum();
        let (own, all) = (own * self.plan.modes.len(), all * run.modes.len());
        if own < all && mode.is_for_people() {
            output::note(&format!(
                "this command selects {own} of the {all} attempts of the run in {}; the others are kept, and the results \
                 are those of the whole run",
                dir.path().display()
            ));
        }
        if self.due.to_play > 0 && judge.state(rows) == JudgeState::Missing {
            let judged = rows.iter().filter(|rows| rows.task.grader == problems::Grader::Judge);
            let names: Vec<&str> = judged.map(|rows| rows.task.name.as_str()).collect();
            mode.note(&format!(
                "warning: {} is graded by a judge, and none is named: answers will be stored without a score; name one \
                 with --judge-model NAME, now or later",
                names.join(", ")
            ));
        }
    }

    /// Sets the context window of the model, which is known once it is open.
    fn use_context(&mut self, benchmark: &BenchmarkSettings, context: Option<u64>) {
        self.plan.settings = benchmark.attempt(context);
        self.all.settings = self.plan.settings.clone();
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

/// Everything that has to be there before a run starts.
struct Opening<'a> {
    benchmark: &'a BenchmarkSettings,
    judge: &'a JudgeChoice,
    loaded: &'a Loaded,
    work: &'a Work,
    options: &'a Options,
    estimate: Estimate,
    mode: OutputMode,
    settings: &'a Settings,
}

impl Opening<'_> {
    /// Starts what is needed. Checks that can fail come first, then the question whether to start, then the model, which
    /// may have to be downloaded.
    async fn open(self, secrets: Secrets) -> anyhow::Result<Opened> {
        let Self { benchmark, work, options, settings, .. } = self;
        let plays = work.due.to_play > 0;
        let runtime = self.runtime(plays).await?;
        if plays && options.preflight {
            model::preflight(&benchmark.model, &secrets, Effort::Call).await?;
        }
        let judge_model = self.judge_model().await?;
        if plays {
            self.estimate.confirm(options.ask, self.mode).await?;
        }
        let judges_itself = *self.judge == JudgeChoice::SameModel && !work.due.is_empty();
        let (model, context) = match plays || judges_itself {
            true => AnyModel::open(&benchmark.model, secrets, settings).await?,
            false => (AnyModel::unused(&benchmark.model.name), None),
        };
        let judge = match judge_model {
            Some((judge, secrets)) => Some(AnyModel::open(&judge, secrets, settings).await?.0),
            None => judges_itself.then(|| model.uncached()),
        };
        let (model, judge) = (Arc::new(model), judge.map(Arc::new));
        Ok(Opened { model, context, judge, runtime: runtime.map(Arc::new) })
    }

    /// The runtime, if sandboxes are needed; the images and one sandbox are checked if attempts are played in some.
    async fn runtime(&self, plays: bool) -> anyhow::Result<Option<AnyRuntime>> {
        let Self { benchmark, work, .. } = self;
        let modes: &[Mode] = if plays { &work.plan.modes } else { &[] };
        if work.due.is_empty() || !self.loaded.needs_sandboxes(modes) {
            return Ok(None);
        }
        let runtime = runtime::start(benchmark.sandbox.runtime, self.settings).await?;
        if plays {
            images::check(benchmark, &work.plan, &runtime, self.mode).await?;
        }
        Ok(Some(runtime))
    }

    /// The judge, if it is not the model itself. One that cannot be used is reported; answers can be graded later.
    async fn judge_model(&self) -> anyhow::Result<Option<(ModelSettings, Secrets)>> {
        let JudgeChoice::Other(args) = self.judge else { return Ok(None) };
        let (judge, secrets) = args.model_settings(&self.benchmark.model, self.settings)?;
        let is_needed = self.judge.state(&self.loaded.tasks) == JudgeState::Needed;
        if is_needed
            && self.options.preflight
            && !self.work.due.is_empty()
            && let Err(error) = model::preflight(&judge, &secrets, Effort::List).await
        {
            self.mode.note(&format!(
                "warning: the judge cannot be used now, so answers will be stored without a score: {}",
                describe(&error)
            ));
        }
        Ok(Some((judge, secrets)))
    }
}

/// What is recorded about the run.
fn requested_run(
    benchmark: &BenchmarkSettings,
    rows: &[TaskRows],
    judge: Option<String>,
) -> anyhow::Result<Run> {
    let requests = benchmark.requests(rows);
    Ok(Run {
        v: VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        started: attempt::now_ms(),
        model: benchmark.model.name.clone(),
        // Those with the problems of all requests follow when the directory is read.
        tasks: Vec::new(),
        modes: benchmark.modes.clone(),
        without: benchmark.without.iter().map(ToString::to_string).collect(),
        documents: benchmark.documents.name().to_owned(),
        settings: RunSettings { requests, ..benchmark.record(judge)? },
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
