//! The reference package beside ours: records its results on Docker for the tests of the Python package, and measures
//! both.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};

use crate::{
    daemon::{Daemon, IMAGE},
    paths::Paths,
    rootfs,
    run::{run, run_into},
};

/// The reference package, what its graders need, and what `litellm` imports without declaring it.
const PACKAGES: [&str; 5] = [
    "llm-in-sandbox==0.2.0",
    "math-verify==0.9.0",
    "rouge-score==0.1.2",
    "antlr4-python3-runtime==4.13.2",
    "mcp",
];

/// Records the results of the reference package in `bindings/python/tests/dropin/reference.json`.
pub(crate) fn record(paths: &Paths) -> Result<()> {
    let python = environment(paths)?;
    let daemon = docker(paths)?;
    let tests = paths.root.join("bindings/python/tests/dropin");
    let partial = daemon.scratch().join("reference.json");
    let mut cases = Command::new(&python);
    cases.arg(tests.join("cases.py")).arg(IMAGE).env("DOCKER_HOST", daemon.host());
    run_into(&partial, cases.current_dir(daemon.scratch()))?;
    fs::copy(&partial, tests.join("reference.json")).context("storing the results")?;
    Ok(())
}

/// Measures a sandbox of both packages from its creation to its end. `python` is an interpreter with our package.
pub(crate) fn measure(paths: &Paths, python: &str) -> Result<()> {
    let reference = environment(paths)?;
    let daemon = docker(paths)?;
    let mut perf = Command::new(python);
    perf.arg(paths.root.join("bindings/python/perf_reference.py")).args([IMAGE, "--beside"]);
    run(perf.arg(&reference).env("DOCKER_HOST", daemon.host()).current_dir(daemon.scratch()))
}

fn docker(paths: &Paths) -> Result<Daemon> {
    rootfs::build(paths)?;
    let daemon = Daemon::start()?;
    daemon.import(&paths.rootfs_archive())?;
    Ok(daemon)
}

/// The interpreter of a virtual environment with the reference package, created if missing.
fn environment(paths: &Paths) -> Result<PathBuf> {
    let to = paths.cache.join("python/reference");
    let python = to.join("bin/python");
    let complete = to.join("complete");
    if !complete.exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&to))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
        fs::write(&complete, "").context("marking the environment as complete")?;
    }
    Ok(python)
}
