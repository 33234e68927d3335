//! Tests of the Python package's adapters for other frameworks, each with its example, in environments with those
//! frameworks.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    machine,
    paths::Paths,
    python_package,
    run::{note, run},
    torch,
};

/// The tests, below the package, with their requirements.
const TESTS: &str = "tests/frameworks";

/// The test of Harbor, which has an environment of its own: its Python is newer than the one that PyTorch is for.
const HARBOR: &str = "tests/frameworks/test_harbor.py";

/// The oldest Python of Harbor, as the second part of its version.
const HARBOR_PYTHON: u32 = 12;

/// The modules of the adapters, which only import where their framework is installed.
pub(crate) const ADAPTERS: [&str; 6] =
    ["gymnasium", "harbor", "inspect_ai", "ray", "verifiers", "verl"];

/// `frameworks`: builds the package and runs the tests of the adapters.
pub(crate) fn test(paths: &Paths) -> Result<()> {
    let wheel = python_package::dev_wheel(paths)?;
    check(paths, &wheel)
}

/// Tests the adapters with this wheel.
pub(crate) fn check(paths: &Paths, wheel: &Path) -> Result<()> {
    let (common, harbor) = environments(paths)?;
    let stubs = stand_ins(paths)?;
    python_package::install(&common, wheel)?;
    let others = [TESTS, "--ignore", HARBOR];
    run(pytest(paths, &common).args(others).env("LD_LIBRARY_PATH", stubs))?;
    let Some(harbor) = harbor else {
        let reason = format!("the tests of Harbor need Python 3.{HARBOR_PYTHON}");
        if python_package::is_required("frameworks") {
            bail!("{reason}; install it with pyenv, or set LIS_REQUIRE without `frameworks`");
        }
        note(&format!("skip: {reason}"));
        return Ok(());
    };
    python_package::install(&harbor, wheel)?;
    run(pytest(paths, &harbor).arg(HARBOR))
}

/// Downloads the frameworks, unless they are there.
pub(crate) fn fetch(paths: &Paths) -> Result<()> {
    environments(paths).map(drop)
}

/// The environment of all frameworks but Harbor, and that of Harbor, if there is a Python for it.
fn environments(paths: &Paths) -> Result<(PathBuf, Option<PathBuf>)> {
    let python = machine::program("python3").context("there is no python3")?;
    let common = environment(paths, &python, "requirements.txt")?;
    let packages = fs::read_dir(common.join("lib"))
        .context("listing the virtual environment")?
        .flatten()
        .map(|entry| entry.path().join("site-packages"))
        .find(|path| path.is_dir())
        .context("the virtual environment has no packages")?;
    let torch = torch::packages(paths).context("there is no PyTorch; run `cargo xtask setup`")?;
    fs::write(packages.join("torch.pth"), format!("{}\n", torch.display()))
        .context("adding PyTorch to the virtual environment")?;
    let harbor = python_package::newer(HARBOR_PYTHON)
        .map(|newer| environment(paths, &newer, "requirements-harbor.txt"))
        .transpose()?;
    Ok((common, harbor))
}

/// A virtual environment with the requirements of a file; created once, and again when they change.
fn environment(paths: &Paths, python: &Path, requirements: &str) -> Result<PathBuf> {
    let file = paths.root.join("bindings/python").join(TESTS).join(requirements);
    let wanted = fs::read_to_string(&file).with_context(|| format!("reading {requirements}"))?;
    let wanted = format!("{}\n{wanted}", python.display());
    let stem = requirements.trim_end_matches(".txt").replace("requirements", "frameworks");
    let venv = paths.cache.join("python").join(stem);
    let complete = venv.join("complete");
    if fs::read_to_string(&complete).is_ok_and(|earlier| earlier == wanted) {
        return Ok(venv);
    }
    run(Command::new(python).args(["-m", "venv", "--clear"]).arg(&venv))?;
    // What is imported is compiled then: a small part.
    run(python_package::pip(&venv)
        .args(["install", "--no-deps", "--no-compile", "--requirement"])
        .arg(&file))?;
    fs::write(&complete, wanted).context("marking the virtual environment")?;
    Ok(venv)
}

/// The directory of stub libraries in place of CUDA's, with which PyTorch starts on machines without them.
fn stand_ins(paths: &Paths) -> Result<PathBuf> {
    let to = paths.cache.join("python/stand-ins");
    if to.join("complete").exists() {
        return Ok(to);
    }
    let _ = fs::remove_dir_all(&to);
    fs::create_dir_all(&to).with_context(|| format!("creating {}", to.display()))?;
    let torch = torch::packages(paths).context("there is no PyTorch")?;
    run(Command::new("bash")
        .arg(paths.root.join("crates/policy/tests/it/stand-ins.sh"))
        .arg(torch)
        .arg(&to))?;
    fs::write(to.join("complete"), "").context("marking the stub libraries")?;
    Ok(to)
}

fn pytest(paths: &Paths, venv: &Path) -> Command {
    let mut pytest = Command::new(venv.join("bin/python"));
    pytest
        .args(["-m", "pytest"])
        // A framework that is missing is a failure, not a skip.
        .env("LIS_REQUIRE", "frameworks")
        .env_remove("PYTHONDONTWRITEBYTECODE")
        .current_dir(paths.root.join("bindings/python"));
    pytest
}
