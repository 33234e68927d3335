//! Tests and measurements of our Python package, installed from its wheel into virtual environments.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};

use crate::{
    daemon::{Daemon, IMAGE},
    frameworks, llama, machine, npm,
    paths::Paths,
    reference,
    report::Report,
    run::{note, output, run, succeeds},
    wheel::{self, Profile},
};

/// What the tests import, with the versions of Python for which there is such a package, if not for all.
const TEST_PACKAGES: [&str; 6] = [
    "pytest==9.2.0",
    "mypy==2.4.1",
    "atif==1.8.0; python_version >= '3.11'",
    "nbclient==0.11.0",
    "nbformat==5.11.1",
    "ipykernel==7.3.0",
];

/// What the tests must find, besides Docker where there is a daemon, so that no test skips itself unnoticed.
const REQUIRED: &str = "atif,gguf,notebooks";

/// The oldest Python the package supports, as the second part of its version.
const OLDEST: u32 = 10;

/// The versions of `python --all`, as their second parts.
const VERSIONS: [(u32, &str); 3] = [(10, "Python 3.10"), (12, "Python 3.12"), (13, "Python 3.13")];

/// The test of the ends of processes, below the package.
const EXITS: &str = "tests/test_exits.py";

const USAGE: &str = "usage: cargo xtask python [--all | --rounds N] [--wheel FILE]";

/// The arguments of `python` and `perf-python`.
#[derive(Default)]
struct Arguments<'a> {
    all: bool,
    rounds: Option<&'a str>,
    wheel: Option<PathBuf>,
    others: Vec<&'a str>,
}

impl<'a> Arguments<'a> {
    fn parse(words: &[&'a str]) -> Result<Self> {
        let mut made = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--all" => made.all = true,
                "--rounds" => made.rounds = Some(words.next().context(USAGE)?),
                "--wheel" => {
                    made.wheel = Some(std::path::absolute(words.next().context(USAGE)?)?);
                }
                other => made.others.push(other),
            }
        }
        Ok(made)
    }

    fn wheel(&self, paths: &Paths, profile: Profile) -> Result<PathBuf> {
        match (&self.wheel, profile) {
            (Some(wheel), _) => Ok(wheel.clone()),
            (None, Profile::Dev) => dev_wheel(paths),
            (None, Profile::Dist) => wheel::build(paths, profile, &paths.target.join("wheels")),
        }
    }
}

/// `python`: the tests with the machine's Python; with `--rounds` only that of the ends of processes; with `--all` in new
/// environments of three versions, with the type checkers, and the reference on Docker.
pub(crate) fn test(paths: &Paths, words: &[&str]) -> Result<ExitCode> {
    let arguments = Arguments::parse(words)?;
    if !arguments.others.is_empty() || (arguments.all && arguments.rounds.is_some()) {
        bail!(USAGE);
    }
    // Before anything is built.
    let pythons = if arguments.all { versions()? } else { Vec::new() };
    let wheel = arguments.wheel(paths, Profile::Dev)?;
    let mut report = Report::default();
    if arguments.all {
        every_version(paths, &pythons, &wheel, &mut report)?;
        return Ok(report.close());
    }
    let python = machine::program("python3").context("there is no python3")?;
    report.step("python package", || {
        let venv = environment(paths, &python)?;
        install(&venv, &wheel)?;
        match arguments.rounds {
            Some(rounds) => run(pytest(paths, &venv).arg(EXITS).env("LIS_ROUNDS", rounds)),
            None => check(paths, &venv, None, Load::Small),
        }
    });
    Ok(report.close())
}

fn every_version(
    paths: &Paths,
    pythons: &[PathBuf],
    wheel: &Path,
    report: &mut Report,
) -> Result<()> {
    let daemon = match machine::program("dockerd") {
        Some(_) => Some(reference::docker(paths)?),
        None => {
            report.skip("there is no dockerd: neither Docker nor the reference is tested");
            None
        }
    };
    match machine::program("node") {
        Some(_) => npm::fetch_pyright(paths)?,
        None => report.skip("there is no node: pyright does not run"),
    }
    for (python, (minor, name)) in pythons.iter().zip(VERSIONS) {
        report.step(name, || {
            let venv = paths.target.join(format!("python-environments/3.{minor}"));
            clean(python, &venv, wheel)?;
            check(paths, &venv, daemon.as_ref(), Load::Full)?;
            types(paths, &venv)
        });
    }
    if let Some(daemon) = daemon {
        report.step("the reference has the recorded results", || reference::check(paths, &daemon));
    }
    Ok(())
}

/// Packs the wheel of the whole test run, with cargo.
pub(crate) fn pack(paths: &Paths) -> Result<PathBuf> {
    wheel::pack(paths, &wheels(paths))
}

/// The step of the whole test run: the tests of a packed wheel, and its types.
pub(crate) fn step(paths: &Paths, wheel: &Path, daemon: &Daemon) -> Result<()> {
    let python = machine::program("python3").context("there is no python3")?;
    let venv = environment(paths, &python)?;
    install(&venv, wheel)?;
    check(paths, &venv, Some(daemon), Load::Small)?;
    if machine::program("node").is_none() {
        if is_required("pyright") {
            bail!("pyright needs node; install it, or set LIS_REQUIRE without `pyright`");
        }
        note("skip: there is no node: pyright does not run");
    }
    types(paths, &venv)
}

/// Whether what cannot be tested here is a failure of the whole test run: unless `LIS_REQUIRE` names other capabilities only.
pub(crate) fn is_required(capability: &str) -> bool {
    env::var("LIS_REQUIRE").map_or(true, |names| names.split(',').any(|name| name == capability))
}

/// A wheel for tests.
pub(crate) fn dev_wheel(paths: &Paths) -> Result<PathBuf> {
    wheel::build(paths, Profile::Dev, &wheels(paths))
}

/// `perf-python [--wheel FILE] [ARGUMENTS]`: measures the package as users get it, beside the reference.
pub(crate) fn perf(paths: &Paths, words: &[&str]) -> Result<()> {
    let arguments = Arguments::parse(words)?;
    let wheel = arguments.wheel(paths, Profile::Dist)?;
    let python = machine::program("python3").context("there is no python3")?;
    let venv = environment(paths, &python)?;
    install(&venv, &wheel)?;
    let mut others = arguments.others;
    others.extend(arguments.rounds.into_iter().flat_map(|rounds| ["--rounds", rounds]));
    reference::measure(paths, &venv.join("bin/python"), &others)
}

fn wheels(paths: &Paths) -> PathBuf {
    paths.target.join("wheels-dev")
}

fn pytest(paths: &Paths, venv: &Path) -> Command {
    let mut pytest = Command::new(venv.join("bin/python"));
    pytest.args(["-m", "pytest"]).current_dir(paths.root.join("bindings/python"));
    pytest
}

/// How many sandboxes the tests have at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Small,
    /// As many as `perf-python`: 64 threads, and 512 sandboxes of an event loop.
    Full,
}

fn check(paths: &Paths, venv: &Path, daemon: Option<&Daemon>, load: Load) -> Result<()> {
    llama::fetch_tiny(paths, &venv.join("bin/llm-in-sandbox"))?;
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
        let mut pytest = pytest(paths, venv);
        pytest.env("LIS_TEST_TINY_GGUF", &model);
        let mut required = REQUIRED.to_owned();
        if let Some(daemon) = daemon {
            pytest.env("DOCKER_HOST", daemon.host()).env("LIS_TEST_IMAGE", IMAGE);
            required.push_str(",docker");
        }
        if env::var_os("LIS_REQUIRE").is_none() {
            pytest.env("LIS_REQUIRE", required);
        }
        if load == Load::Full {
            pytest.env("LIS_FULL", "1");
        }
        run(pytest.args(tests))?;
    }
    Ok(())
}

/// Checks the annotations as users' type checkers see them; Pyright only where there is node.
fn types(paths: &Paths, venv: &Path) -> Result<()> {
    let package = paths.root.join("bindings/python");
    let python = venv.join("bin/python");
    run(Command::new(&python)
        .args(["-m", "mypy", "--strict", "python/llm_in_sandbox", "--cache-dir"])
        .arg(paths.target.join("mypy"))
        .current_dir(&package))?;
    // The stub of the extension against the extension.
    run(Command::new(&python)
        .args(["-m", "mypy.stubtest", "llm_in_sandbox._native"])
        .current_dir(&paths.target))?;
    let Some(node) = machine::program("node") else { return Ok(()) };
    run(Command::new(node)
        .arg(npm::pyright(paths).join("node_modules/pyright/index.js"))
        .arg("--pythonpath")
        .arg(python)
        .current_dir(&package))
}

/// A new virtual environment, into which `pip install` of the wheel is all that comes before its first use.
fn clean(python: &Path, venv: &Path, wheel: &Path) -> Result<()> {
    run(Command::new(python).args(["-m", "venv", "--clear"]).arg(venv))?;
    run(pip(venv).arg("install").arg(wheel))?;
    run(Command::new(venv.join("bin/llm-in-sandbox")).arg("doctor"))?;
    let first = "from llm_in_sandbox import Sandbox\nwith Sandbox() as s: print(s.run('echo works', check=True).stdout)";
    run(Command::new(venv.join("bin/python")).args(["-c", first]))?;
    run(pip(venv).arg("install").args(TEST_PACKAGES))
}

/// A virtual environment of this Python with what the tests need; created once.
fn environment(paths: &Paths, python: &Path) -> Result<PathBuf> {
    let version = output(Command::new(python).arg("--version"))?;
    let version = version.trim().replace(' ', "-").to_lowercase();
    let packages = TEST_PACKAGES.map(|package| package.split(';').next().unwrap_or(package));
    let venv = paths.cache.join("python").join(format!("{}-{version}", packages.join("-")));
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
    let installed = installed().into_iter().map(|(_, python)| python);
    machine::program("python3").into_iter().chain(installed).find(suits)
}

/// The interpreters of all versions, from the system or pyenv. One that is missing is an error.
fn versions() -> Result<Vec<PathBuf>> {
    let installed = installed();
    let of = |(minor, name): (u32, &str)| {
        let system = machine::program(&format!("python3.{minor}"));
        let pyenv = || installed.iter().rev().find(|found| found.0 == minor);
        let found = system.or_else(|| pyenv().map(|(_, python)| python.clone()));
        found.with_context(|| format!("{name} is missing; install it, for instance with pyenv"))
    };
    VERSIONS.into_iter().map(of).collect()
}

/// The versions of Python that pyenv has and the package supports, with their second parts, sorted.
fn installed() -> Vec<(u32, PathBuf)> {
    let root = env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv"));
    let Some(root) = root.or(home) else { return Vec::new() };
    let versions = fs::read_dir(root.join("versions")).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let minor = name.strip_prefix("3.")?.split('.').next()?.parse().ok()?;
            (minor >= OLDEST).then(|| (minor, entry.path().join("bin/python3")))
        })
        .collect();
    found.sort();
    found
}
