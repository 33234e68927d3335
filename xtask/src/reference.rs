//! The reference package beside ours: records its results on Docker for the tests of the Python package, and measures
//! both.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    daemon::{Daemon, IMAGE},
    machine,
    paths::Paths,
    python_package, rootfs,
    run::{output, run, run_into},
};

/// The reference package, what its graders need, and what `litellm` imports without declaring it.
const PACKAGES: [&str; 5] = [
    "llm-in-sandbox==0.2.0",
    "math-verify==0.9.0",
    "rouge-score==0.1.2",
    "antlr4-python3-runtime==4.13.2",
    "mcp",
];

/// Keeps the reference from asking the network for prices of models.
const QUIET: (&str, &str) = ("LITELLM_LOCAL_MODEL_COST_MAP", "True");

/// Records the results of the reference package in `bindings/python/tests/dropin/reference.json`.
pub(crate) fn record(paths: &Paths) -> Result<()> {
    let daemon = docker(paths)?;
    fs::copy(results(paths, &daemon)?, recorded(paths)).context("storing the results")?;
    Ok(())
}

/// Checks that the reference package still has the recorded results.
pub(crate) fn check(paths: &Paths, daemon: &Daemon) -> Result<()> {
    let [now, before] = [results(paths, daemon)?, recorded(paths)].map(|file| {
        fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
    });
    if now? != before? {
        bail!("the reference has other results than those recorded; see `cargo xtask reference`");
    }
    Ok(())
}

/// Measures our package, beside the reference where there is a Docker daemon. `python` is an interpreter with ours.
pub(crate) fn measure(paths: &Paths, python: &Path, arguments: &[&str]) -> Result<()> {
    let mut perf = Command::new(python);
    perf.arg(paths.root.join("bindings/python/perf.py")).args(arguments);
    if machine::program("dockerd").is_none() {
        eprintln!("skip: there is no dockerd: the reference is not measured");
        return run(&mut perf);
    }
    let reference = environment(paths)?;
    let daemon = docker(paths)?;
    let home = daemon.scratch().join("home");
    // Our store has the same image.
    let program = python.with_file_name("llm-in-sandbox");
    output(
        Command::new(program)
            .args(["image", "import"])
            .arg(paths.rootfs_archive())
            .arg(IMAGE)
            .env("LLM_IN_SANDBOX_HOME", &home),
    )?;
    perf.arg("--reference")
        .arg(reference)
        .args(["--image", IMAGE])
        .env("LLM_IN_SANDBOX_HOME", home)
        .env("DOCKER_HOST", daemon.host())
        .env(QUIET.0, QUIET.1)
        .current_dir(daemon.scratch());
    run(&mut perf)
}

/// A Docker daemon with the test image.
pub(crate) fn docker(paths: &Paths) -> Result<Daemon> {
    rootfs::build(paths)?;
    let daemon = Daemon::start()?;
    daemon.import(&paths.rootfs_archive())?;
    Ok(daemon)
}

/// The file with the results of the reference package, produced now.
fn results(paths: &Paths, daemon: &Daemon) -> Result<PathBuf> {
    let python = environment(paths)?;
    let made = daemon.scratch().join("reference.json");
    let cases = paths.root.join("bindings/python/tests/dropin/cases.py");
    let mut command = Command::new(python);
    command.arg(cases).arg(IMAGE).env("DOCKER_HOST", daemon.host()).env(QUIET.0, QUIET.1);
    run_into(&made, command.current_dir(daemon.scratch()))?;
    Ok(made)
}

fn recorded(paths: &Paths) -> PathBuf {
    paths.root.join("bindings/python/tests/dropin/reference.json")
}

/// The interpreter of a virtual environment with the reference package, created if missing.
fn environment(paths: &Paths) -> Result<PathBuf> {
    let to = paths.cache.join("python/reference");
    let python = to.join("bin/python");
    let complete = to.join("complete");
    if !complete.exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&to))?;
        run(python_package::pip(&to).arg("install").args(PACKAGES))?;
        fs::write(&complete, "").context("marking the environment as complete")?;
    }
    Ok(python)
}
