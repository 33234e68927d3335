//! The steps of a run: each timed, all of them run, a summary at the end.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{results::Results, run};

/// Where the test runner writes its results, below the workspace; set in `.config/nextest.toml`.
pub(crate) const RESULTS: &str = "target/nextest/default/junit.xml";

/// The steps so far.
#[derive(Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
    tests: Results,
}

struct Step {
    name: &'static str,
    took: Duration,
    failed: bool,
}

/// Steps that run one after another beside those of the report, which is given them in the end.
pub(crate) struct Beside<'a> {
    /// Where their programs put temporary files.
    temporary: &'a Path,
    done: Vec<Done>,
}

/// A step that ran beside others, with all it printed.
struct Done {
    name: &'static str,
    took: Duration,
    text: String,
    result: Result<()>,
    tests: Results,
}

impl<'a> Beside<'a> {
    pub(crate) fn new(temporary: &'a Path) -> Self {
        Self { temporary, done: Vec::new() }
    }

    /// Runs a step whose programs have this niceness, so that they take the time in which others wait.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        niceness: u8,
        work: impl FnOnce() -> Result<()>,
    ) {
        let start = Instant::now();
        let (result, text) = run::beside(niceness, self.temporary, work);
        let tests = Results::default();
        self.done.push(Done { name, took: start.elapsed(), text, result, tests });
    }

    /// Runs a step that calls the test runner in this workspace, and counts its tests.
    pub(crate) fn tests(
        &mut self,
        name: &'static str,
        workspace: &Path,
        work: impl FnOnce() -> Result<()>,
    ) {
        let mut tests = Results::default();
        self.step(name, 0, || counted(workspace, &mut tests, work));
        if let Some(done) = self.done.last_mut() {
            done.tests = tests;
        }
    }
}

impl Report {
    /// Runs a step and records its result. A failure is printed and the next step runs all the same, so that one run
    /// shows everything there is to repair.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) {
        eprintln!("\n== {name}");
        let start = Instant::now();
        let result = work();
        if let Err(error) = &result {
            eprintln!("error: {error:#}");
        }
        self.steps.push(Step { name, took: start.elapsed(), failed: result.is_err() });
    }

    /// Prints and records steps that ran beside others.
    pub(crate) fn add(&mut self, beside: Beside<'_>) {
        for step in beside.done {
            eprint!("\n== {} (beside the tests)\n{}", step.name, step.text);
            if let Err(error) = &step.result {
                eprintln!("error: {error:#}");
            }
            let failed = step.result.is_err();
            self.steps.push(Step { name: step.name, took: step.took, failed });
            self.tests.add(step.tests);
        }
    }

    /// Notes a step that does not run here, and why.
    pub(crate) fn skip(&mut self, reason: &str) {
        eprintln!("\nskip: {reason}");
        *self.tests.skips.entry(reason.to_owned()).or_default() += 1;
    }

    /// Runs a step that calls the test runner in this workspace, and counts its tests.
    pub(crate) fn tests(
        &mut self,
        name: &'static str,
        workspace: &Path,
        work: impl FnOnce() -> Result<()>,
    ) {
        let mut tests = Results::default();
        self.step(name, || counted(workspace, &mut tests, work));
        self.tests.add(tests);
    }

    /// Prints the summary and returns the exit code.
    pub(crate) fn close(&self) -> ExitCode {
        // A summary that cannot be printed does not change the result.
        let _ = std::io::stdout().write_all(self.to_string().as_bytes());
        match self.failed() {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }

    fn failed(&self) -> usize {
        self.steps.iter().filter(|step| step.failed).count()
    }
}

/// Calls the test runner in this workspace, and reads how its tests ended.
fn counted(workspace: &Path, tests: &mut Results, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let file = workspace.join(RESULTS);
    // Results of an earlier run must not be mistaken for this one's.
    let _ = fs::remove_file(&file);
    let result = work();
    match Results::read(&file) {
        Ok(results) => *tests = results,
        // A runner that failed early wrote nothing; its own error tells more.
        Err(error) => return result.and(Err(error)),
    }
    result
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut skips = String::new();
        for (reason, count) in &self.tests.skips {
            writeln!(skips, "  skipped {count}: {reason}")?;
        }
        writeln!(f)?;
        for step in &self.steps {
            let verdict = if step.failed { "FAILED" } else { "ok" };
            writeln!(f, "{verdict:>6} {:>6.1}s  {}", step.took.as_secs_f64(), step.name)?;
        }
        let failed = self.failed();
        writeln!(f, "steps: {} passed, {failed} failed", self.steps.len() - failed)?;
        writeln!(f, "tests: {} passed, {} failed", self.tests.passed, self.tests.failed)?;
        f.write_str(&skips)
    }
}
