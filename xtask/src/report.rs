//! The steps of a run: each timed, all of them run, the verdict at the end.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::results::Results;

/// Where the test runner writes its results, below the workspace; `.config/nextest.toml` says so.
const RESULTS: &str = "target/nextest/default/junit.xml";

/// What happened so far.
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

impl Report {
    /// Runs a step and remembers how it went. A failure is printed and does not keep the next step from
    /// running, so that one run shows all there is to repair.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) {
        eprintln!("\n== {name}");
        let start = Instant::now();
        let done = work();
        if let Err(error) = &done {
            eprintln!("error: {error:#}");
        }
        self.steps.push(Step { name, took: start.elapsed(), failed: done.is_err() });
    }

    /// Runs a step that is a run of the test runner in this workspace, and counts its tests.
    pub(crate) fn tests(
        &mut self,
        name: &'static str,
        workspace: &Path,
        work: impl FnOnce() -> Result<()>,
    ) {
        let file = workspace.join(RESULTS);
        let mut counted = Results::default();
        self.step(name, || {
            // The results of an earlier run must not pass for this one's.
            let _ = fs::remove_file(&file);
            let done = work();
            match Results::read(&file) {
                Ok(results) => counted = results,
                // A runner that failed early wrote nothing; its own error says more.
                Err(error) => return done.and(Err(error)),
            }
            done
        });
        self.tests.add(counted);
    }

    /// Prints the verdict and turns it into an exit code.
    pub(crate) fn close(&self) -> ExitCode {
        // Not being able to print the verdict does not change it.
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
