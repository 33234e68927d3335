//! Tests and measurements of our Python package, installed from its wheel into virtual environments.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};

use crate::{
    daemon::{Daemon, IMAGE},
    frameworks, llama, machine, npm,
    paths::Paths,
    report::Report,
    run::{output, run, succeeds},
    wheel::{self, Profile},
};

/// What the tests import.
const TEST_PACKAGES: [&str; 5] =
    ["pytest==9.2.0", "mypy==2.4.1", "nbclient==0.11.0", "nbformat==5.11.1", "ipykernel==7.3.0"];

/// What the whole test run must offer, so that no test skips itself unnoticed.
const REQUIRED: &str = "docker,gguf,notebooks";

/// The oldest Python the package supports, as the second part of its version.
const OLDEST: u32 = 10;

/// `python [--all]`: the tests, with the machine's Python or with every version that pyenv has.
pub(crate) fn test(paths: &Paths, arguments: &[&str]) -> Result<ExitCode> {
    let mut report = Report::default();
    let pythons = match arguments {
        ["--all"] => installed(),
        _ => vec![machine::program("python3").context("there is no python3")?],
    };
    let wheel = wheel::build(paths, Profile::Dev, &wheels(paths))?;
    for python in pythons {
        eprintln!("{}", python.display());
        report.step("python package", || check(paths, &python, &wheel, None));
    }
    Ok(report.close())
}

/// Packs the wheel of the whole test run, with cargo.
pub(crate) fn pack(paths: &Paths) -> Result<PathBuf> {
    wheel::pack(paths, &wheels(paths))
}

/// The step of the whole test run: the tests of a packed wheel, and its types.
pub(crate) fn step(paths: &Paths, wheel: &Path, daemon: &Daemon) -> Result<()> {
    let python = machine::program("python3").context("there is no python3")?;
    check(paths, &python, wheel, Some(daemon))?;
    types(paths, &environment(paths, &python)?)
}

/// A wheel for tests.
pub(crate) fn dev_wheel(paths: &Paths) -> Result<PathBuf> {
    wheel::build(paths, Profile::Dev, &wheels(paths))
}

/// `perf-python [ARGUMENTS]`: measures the package as users get it.
pub(crate) fn perf(paths: &Paths, arguments: &[&str]) -> Result<()> {
    let python = machine::program("python3").context("there is no python3")?;
    let wheel = wheel::build(paths, Profile::Dist, &paths.target.join("wheels"))?;
    let venv = environment(paths, &python)?;
    install(&venv, &wheel)?;
    let script = paths.root.join("bindings/python/perf.py");
    run(Command::new(venv.join("bin/python")).arg(script).args(arguments))
}

fn wheels(paths: &Paths) -> PathBuf {
    paths.target.join("wheels-dev")
}

fn check(paths: &Paths, python: &Path, wheel: &Path, daemon: Option<&Daemon>) -> Result<()> {
    let venv = environment(paths, python)?;
    install(&venv, wheel)?;
    let package = paths.root.join("bindings/python");
    let model = llama::tiny(paths);
    // Apart, because both directories have a `conftest.py`, and modules of the package share names.
    let ignored =
        frameworks::ADAPTERS.map(|name| format!("--ignore-glob=/*/llm_in_sandbox/{name}.py"));
    let mut examples =
        vec!["--import-mode=importlib", "--doctest-modules", "--pyargs", "llm_in_sandbox"];
    examples.extend(ignored.iter().map(String::as_str));
    let selections: [&[&str]; 3] = [
        &["tests", "--ignore=tests/dropin", "--ignore=tests/frameworks"],
        &["tests/dropin"],
        &examples,
    ];
    for tests in selections {
        let mut pytest = Command::new(venv.join("bin/python"));
        if model.exists() {
            pytest.env("LIS_TEST_TINY_GGUF", &model);
        }
        if let Some(daemon) = daemon {
            pytest.env("DOCKER_HOST", daemon.host()).env("LIS_TEST_IMAGE", IMAGE);
            if env::var_os("LIS_REQUIRE").is_none() {
                pytest.env("LIS_REQUIRE", REQUIRED);
            }
        }
        run(pytest.args(["-m", "pytest"]).args(tests).current_dir(&package))?;
    }
    Ok(())
}

/// Checks the annotations as users' type checkers see them.
fn types(paths: &Paths, venv: &Path) -> Result<()> {
    let package = paths.root.join("bindings/python");
    let python = venv.join("bin/python");
    run(Command::new(&python)
        .args(["-m", "mypy", "--strict", "python/llm_in_sandbox", "--cache-dir"])
        .arg(paths.target.join("mypy"))
        .current_dir(&package))?;
    let Some(node) = machine::program("node") else { return Ok(()) };
    run(Command::new(node)
        .arg(npm::pyright(paths).join("node_modules/pyright/index.js"))
        .arg("--pythonpath")
        .arg(python)
        .current_dir(&package))
}

/// A virtual environment of this Python with what the tests need; created once.
fn environment(paths: &Paths, python: &Path) -> Result<PathBuf> {
    let version = output(Command::new(python).arg("--version"))?;
    let version = version.trim().replace(' ', "-").to_lowercase();
    let venv = paths.cache.join("python").join(format!("{}-{version}", TEST_PACKAGES.join("-")));
    if venv.join("complete").exists() {
        return Ok(venv);
    }
    let _ = fs::remove_dir_all(&venv);
    run(Command::new(python).args(["-m", "venv"]).arg(&venv))?;
    run(pip(&venv).arg("install").args(TEST_PACKAGES))?;
    fs::write(venv.join("complete"), "").context("marking the virtual environment")?;
    Ok(venv)
}

pub(crate) fn install(venv: &Path, wheel: &Path) -> Result<()> {
    run(pip(venv).args(["install", "--force-reinstall", "--no-deps"]).arg(wheel))
}

pub(crate) fn pip(venv: &Path) -> Command {
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"]);
    pip
}

/// A Python of at least this version, given as its second part: the machine's, or the oldest that pyenv has.
pub(crate) fn newer(minor: u32) -> Option<PathBuf> {
    let test = format!("import sys; sys.exit(sys.version_info < (3, {minor}))");
    let suits = |python: &PathBuf| succeeds(Command::new(python).args(["-c", &test]));
    machine::program("python3").into_iter().chain(installed()).find(suits)
}

/// The versions of Python that pyenv has and the package supports.
fn installed() -> Vec<PathBuf> {
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv"));
    let Some(root) = root.or(home) else { return Vec::new() };
    let versions = fs::read_dir(root.join("versions")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let minor = name.strip_prefix("3.").and_then(|rest| rest.split('.').next());
            minor.and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor >= OLDEST)
        })
        .map(|entry| entry.path().join("bin/python3"))
        .collect();
    found.sort();
    found
}
