//! `perf …`: chooses what is measured and prints it as a table or one JSON object. The measuring is in the crate `perf`.

mod args;
mod compare;
mod serve;
mod table;

use std::{fs, num::NonZeroU32, path::Path, time::Instant};

use anyhow::Result;
use model::{Endpoint, OpenAi};
use perf::{
    Machine,
    benchmark::{BenchmarkReport, Load},
    grade::{Case, MathVerifyError, MathVerifyFigures},
};
use serde::Serialize;
use startup::Signals;

pub(crate) use self::args::PerfCommand;
use self::args::{PerfAgentArgs, PerfBenchmarkArgs, PerfGradeArgs, PerfModelArgs};
use crate::{
    args::sandbox::RuntimeKind,
    commands::until_cancelled,
    console::output,
    exit::{Exit, UsageError},
    model::{LocalSettings, ModelFile},
    runtime,
    settings::Settings,
};

/// The largest file of cases, in bytes.
const MAX_CASES_SIZE: u64 = 256 << 20;

/// Measures and prints.
pub(crate) async fn run(
    command: PerfCommand,
    settings: &Settings,
    signals: &mut Signals,
) -> Result<Exit> {
    match command {
        PerfCommand::Sandbox(args) => until_cancelled(compare::run(args, settings), signals).await,
        // Prints what it has measured when it is cancelled.
        PerfCommand::Serve(args) => serve::run(&args, settings, signals).await,
        PerfCommand::Agent(args) => until_cancelled(agent(&args, settings), signals).await,
        PerfCommand::Benchmark(args) => until_cancelled(benchmark(&args, settings), signals).await,
        PerfCommand::Model(args) => until_cancelled(model(args, settings), signals).await,
        PerfCommand::Grade(args) => until_cancelled(grade(args), signals).await,
    }
}

/// Prints a report as JSON, or as a table.
fn print<T: Serialize>(json: bool, report: &T, table: fn(&T) -> String) -> Result<Exit> {
    match json {
        true => output::print_json(report)?,
        false => output::print(&table(report))?,
    }
    Ok(Exit::Done)
}

async fn agent(args: &PerfAgentArgs, settings: &Settings) -> Result<Exit> {
    let runtime = runtime::start(RuntimeKind::default(), settings).await?;
    let home = settings.writable_home()?;
    let report = perf::agent::measure(&runtime, &args.base_url, args.episodes, home).await?;
    print(args.json, &report, table::agent)
}

async fn benchmark(args: &PerfBenchmarkArgs, settings: &Settings) -> Result<Exit> {
    let runtime = runtime::start(RuntimeKind::default(), settings).await?;
    let home = settings.writable_home()?;
    let (image, url) = (&args.image, args.base_url.as_str());
    let concurrency = args.concurrency.map_or_else(|| cpus() * 4, NonZeroU32::get);
    let load = Load { episodes: args.episodes, concurrency };
    let ours = perf::benchmark::measure(runtime, image, url, load, home).await?;
    let reference = match (&args.python, &args.docker_image) {
        (Some(python), Some(docker_image)) => {
            let concurrency = args.reference_workers.map_or_else(cpus, NonZeroU32::get);
            let load = Load { episodes: args.reference_episodes, concurrency };
            let measuring =
                perf::benchmark::measure_reference(python, docker_image, url, load, home);
            Some(measuring.await?)
        }
        _ => None,
    };
    print(args.json, &BenchmarkReport::new(image, ours, reference)?, table::benchmark)
}

fn cpus() -> u32 {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// What `perf model --json` prints.
#[derive(Debug, Serialize)]
struct ModelReport {
    machine: Machine,
    model: String,
    adapter: Option<String>,
    load_s: f64,
    here: perf::model::TokenRates,
    server: Option<perf::model::TokenRates>,
    second_turn: perf::model::SecondTurn,
}

async fn model(args: PerfModelArgs, settings: &Settings) -> Result<Exit> {
    let file = match &args.model {
        None => ModelFile::default_model()?,
        Some(name) => ModelFile::named(name).ok_or_else(|| {
            UsageError(format!(
                "--model: `{name}` is not a local model; write local:NAME or FILE.gguf"
            ))
        })?,
    };
    let local = LocalSettings::of_command(file, args.local, NonZeroU32::MIN, settings)?;
    if let Some(hint) = local.hint(args.model.is_none(), settings)? {
        output::note(&hint);
    }
    let name = local.file.name();
    let began = Instant::now();
    let loaded = local.load(settings).await?;
    let load_s = (began.elapsed().as_secs_f64() * 1e5).round() / 1e5;
    let server = args.server.as_deref().map(|url| OpenAi::new(Endpoint::new(&name, url)));
    let server = server.transpose()?;
    let figures = perf::model::measure(&loaded, server.as_ref(), args.rounds).await?;
    let report = ModelReport {
        machine: Machine::current(),
        model: name,
        adapter: local.adapter.as_ref().map(ToString::to_string),
        load_s,
        here: figures.model,
        server: figures.server,
        second_turn: figures.second_turn,
    };
    print(args.json, &report, table::model)
}

/// What `perf grade --json` prints.
#[derive(Debug, Serialize)]
struct GradeReport {
    machine: Machine,
    cases: usize,
    /// Cases that are right by our grader.
    right: usize,
    ours_per_second: f64,
    official: Option<Official>,
}

/// The official library on the same cases.
#[derive(Debug, Serialize)]
struct Official {
    version: String,
    per_second: f64,
    /// Cases on which both agree.
    agree: usize,
    ratio: f64,
}

async fn grade(args: PerfGradeArgs) -> Result<Exit> {
    let cases = match &args.input {
        None => perf::grade::synthetic_cases(args.seed, args.count),
        Some(path) => read_cases(path, args.count)?,
    };
    if cases.is_empty() {
        return Err(UsageError("there are no cases to grade".into()).into());
    }
    let ours = tokio::task::spawn_blocking({
        let cases = cases.clone();
        move || perf::grade::measure(&cases)
    });
    let ours = ours.await?;
    let rounded = |value: f64| (value * 1e5).round() / 1e5;
    let official = math_verify(&args, &cases).await?.map(|theirs| {
        let per_second = cases.len() as f64 / theirs.seconds.max(1e-9);
        let both = ours.scores.iter().zip(&theirs.scores);
        Official {
            version: theirs.version.clone(),
            per_second: rounded(per_second),
            agree: both.filter(|(one, other)| one == other).count(),
            ratio: rounded(ours.per_second / per_second),
        }
    });
    let report = GradeReport {
        machine: Machine::current(),
        cases: cases.len(),
        right: ours.scores.iter().filter(|score| **score > 0.0).count(),
        ours_per_second: rounded(ours.per_second),
        official,
    };
    print(args.json, &report, table::grade)
}

/// Measures the official library, if the user named a Python or the default one has it.
async fn math_verify(args: &PerfGradeArgs, cases: &[Case]) -> Result<Option<MathVerifyFigures>> {
    let python = args.python.clone().unwrap_or_else(|| "python3".into());
    match perf::grade::measure_math_verify(&python, cases).await {
        Ok(figures) => Ok(Some(figures)),
        Err(MathVerifyError::Start { .. } | MathVerifyError::Missing { .. })
            if args.python.is_none() =>
        {
            output::note(
                "nothing to compare with: python3 does not have math-verify; install it with \
                 `python3 -m pip install math-verify`, or name a Python that has it with --python",
            );
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn read_cases(path: &Path, limit: usize) -> Result<Vec<Case>, UsageError> {
    let fail = |why: String| UsageError(format!("--input: {}: {why}", path.display()));
    let size = fs::metadata(path).map_err(|error| fail(error.to_string()))?.len();
    if size > MAX_CASES_SIZE {
        return Err(fail(format!("larger than {} MiB", MAX_CASES_SIZE >> 20)));
    }
    let text = fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    let lines = (1..).zip(text.lines()).take(limit);
    let parse = |(number, line): (u64, &str)| {
        serde_json::from_str(line).map_err(|error| fail(format!("line {number}: {error}")))
    };
    lines.map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_up_to_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cases.jsonl");
        fs::write(&file, "{\"gold\": \"1\", \"pred\": \"2\", \"id\": 7}\nnonsense\n").unwrap();
        assert_eq!(read_cases(&file, 1).unwrap(), [Case { gold: "1".into(), pred: "2".into() }]);
        let error = read_cases(&file, 2).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(read_cases(&dir.path().join("none"), 2).is_err());
    }
}
