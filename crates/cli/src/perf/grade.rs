//! What a grade costs: answers judged per second by our math grader, beside the official Math-Verify on the same
//! cases in the same run, one processor each.
//!
//! The cases are made here, from a seed, or read from a file. The official library runs in a Python that has it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncWriteExt, process::Command};

use super::{
    answers,
    figures::{Machine, round},
};
use crate::{
    exit::{Exit, Usage},
    output,
};

/// How the official library is asked.
const ASK: &str = include_str!("math_verify.py");

/// We judge the cases again and again for at least this long: once is over too soon to be measured.
const LONG_ENOUGH: Duration = Duration::from_millis(500);

/// The longest file of cases.
const LARGEST: u64 = 256 << 20;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct GradePerfArgs {
    /// Cases to judge instead of made ones: lines with `gold` and `pred`
    #[arg(long, value_name = "FILE.jsonl")]
    input: Option<PathBuf>,
    /// How many cases to make, or to take from the file at most
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: usize,
    /// Which cases to make
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "input")]
    seed: u64,
    /// A Python that has the package math-verify [default: python3, if it has]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<OsString>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// An answer and what it should be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) gold: String,
    pub(super) pred: String,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Figures {
    machine: Machine,
    cases: usize,
    /// How many of the cases are right, by our grader.
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

/// Measures and prints.
pub(crate) async fn run(args: GradePerfArgs) -> Result<Exit> {
    let cases = match &args.input {
        None => answers::cases(args.seed, args.count),
        Some(path) => read(path, args.count)?,
    };
    if cases.is_empty() {
        return Err(Usage("there is no case to measure".into()).into());
    }
    let ours = tokio::task::spawn_blocking({
        let cases = cases.clone();
        move || judge(&cases)
    });
    let (scores, ours_per_second) = ours.await?;
    let theirs = match ask(args.python.clone(), &cases).await {
        Ok(theirs) => Some(theirs),
        Err(error) if args.python.is_some() || !is_missing(&error) => return Err(error),
        Err(_) => {
            output::note(
                "nothing to compare with: python3 has no math-verify; install it with \
                 `python3 -m pip install math-verify`, or name a Python that has it with --python",
            );
            None
        }
    };
    let official = theirs.map(|theirs| {
        let per_second = cases.len() as f64 / theirs.seconds.max(1e-9);
        let agree = scores.iter().zip(&theirs.scores).filter(|(one, other)| one == other).count();
        let ratio = round(ours_per_second / per_second);
        Official { version: theirs.version, per_second: round(per_second), agree, ratio }
    });
    let figures = Figures {
        machine: Machine::here(),
        cases: cases.len(),
        right: scores.iter().filter(|score| **score > 0.0).count(),
        ours_per_second: round(ours_per_second),
        official,
    };
    match args.json {
        true => output::print_json(&figures)?,
        false => output::print(&render(&figures))?,
    }
    Ok(Exit::Done)
}

/// Whether there is no Python, or none with the library.
fn is_missing(error: &anyhow::Error) -> bool {
    let said = format!("{error:#}");
    said.contains("cannot start") || said.contains("No module named")
}

/// Our verdicts, and how many we give in a second.
fn judge(cases: &[Case]) -> (Vec<f64>, f64) {
    let all = || cases.iter().map(|case| grade::math::reward(&case.gold, &case.pred)).collect();
    // What is made at first use, such as patterns, is made now.
    let scores: Vec<f64> = all();
    let began = Instant::now();
    let mut rounds = 0_u32;
    while rounds == 0 || began.elapsed() < LONG_ENOUGH {
        let again: Vec<f64> = all();
        std::hint::black_box(again);
        rounds += 1;
    }
    let judged = f64::from(rounds) * cases.len() as f64;
    (scores, judged / began.elapsed().as_secs_f64().max(1e-9))
}

/// What the official library says.
#[derive(Debug, Deserialize)]
struct Said {
    version: String,
    seconds: f64,
    scores: Vec<f64>,
}

async fn ask(python: Option<OsString>, cases: &[Case]) -> Result<Said> {
    let python = python.unwrap_or_else(|| "python3".into());
    let name = python.to_string_lossy().into_owned();
    let mut child = Command::new(&python)
        .args(["-c", ASK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let mut lines = Vec::new();
    for case in cases {
        serde_json::to_writer(&mut lines, case)?;
        lines.push(b'\n');
    }
    let mut stdin = child.stdin.take().context("the program has no input")?;
    // Both at once: the program may fill its output before it has read all of its input.
    let (_, output) = tokio::join!(
        async move {
            // A program that does not read ends, and says why.
            let _ = stdin.write_all(&lines).await;
        },
        child.wait_with_output()
    );
    let output = output.with_context(|| format!("waiting for {name}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let last =
        errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    anyhow::ensure!(output.status.success(), "{name} did not judge the cases: {last}");
    let said: Said = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{name} printed something else than verdicts"))?;
    anyhow::ensure!(said.scores.len() == cases.len(), "{name} left cases out");
    Ok(said)
}

fn read(path: &Path, most: usize) -> Result<Vec<Case>> {
    let refuse = |why: String| Usage(format!("--input: {}: {why}", path.display()));
    let size = fs::metadata(path).map_err(|error| refuse(error.to_string()))?.len();
    if size > LARGEST {
        return Err(refuse(format!("larger than {} MiB", LARGEST >> 20)).into());
    }
    let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let cases: Result<Vec<Case>, Usage> = (1..)
        .zip(text.lines())
        .take(most)
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| refuse(format!("line {number}: {error}")))
        })
        .collect();
    Ok(cases?)
}

fn render(figures: &Figures) -> String {
    let Figures { machine, cases, right, ours_per_second, official } = figures;
    let mut lines = vec![
        format!("{} cores, {:.1} GiB, {}", machine.cores, machine.memory_gib, machine.system),
        format!("{cases} answers, {right} of them right; one processor"),
        format!("{:<38} {ours_per_second:>10.0}", "answers per second, ours"),
    ];
    if let Some(Official { version, per_second, agree, ratio }) = official {
        let name = format!("answers per second, math-verify {version}");
        lines.push(format!("{name:<38} {per_second:>10.1} {ratio:>8.0}x"));
        lines.push(format!("both agree on {agree} of {cases}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_judged_and_counted() {
        let case = |gold: &str| Case { gold: gold.into(), pred: "\\boxed{3}".into() };
        let (scores, rate) = judge(&[case("3"), case("4")]);
        assert_eq!(scores, [1.0, 0.0]);
        assert!(rate > 1.0, "{rate}");
    }

    #[test]
    fn files_of_cases_are_read_up_to_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cases.jsonl");
        fs::write(&file, "{\"gold\": \"1\", \"pred\": \"2\", \"id\": 7}\nnonsense\n").unwrap();
        assert_eq!(read(&file, 1).unwrap(), [Case { gold: "1".into(), pred: "2".into() }]);
        let error = format!("{:#}", read(&file, 2).unwrap_err());
        assert!(error.contains("line 2"), "{error}");
        assert!(read(&dir.path().join("none"), 2).is_err());
    }
}
