//! Real models and a real server for tests: GGUF files, downloaded by the product's own command, and the server of
//! llama.cpp, from a Python wheel. Downloaded once into the cache directory.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{download, machine, paths::Paths, run::run};

/// The models: name in the catalogue, file name.
const DEFAULT: (&str, &str) = ("qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf");
const TINY: (&str, &str) = ("smollm2-135m", "smollm2-135m-instruct-q4_1.gguf");

/// The package of the server.
const SERVER: &str = "xllamacpp==2026.10.11549";

/// The default model, which can solve small tasks.
pub(crate) fn model(paths: &Paths) -> PathBuf {
    file(paths, DEFAULT)
}

/// A tiny model: fast, and of no use.
pub(crate) fn tiny(paths: &Paths) -> PathBuf {
    file(paths, TINY)
}

/// The directory of the server's Python package.
pub(crate) fn server(paths: &Paths) -> PathBuf {
    paths.cache.join("python").join(SERVER)
}

/// Downloads the server, if it is missing.
pub(crate) fn fetch_server(paths: &Paths) -> Result<()> {
    download::once(&server(paths), |to| {
        run(pip()?.args(["install", "--quiet", "--no-deps", "--target"]).arg(to).arg(SERVER))
    })
}

/// Whether a model is missing.
pub(crate) fn lacks_models(paths: &Paths) -> bool {
    missing(paths).next().is_some()
}

/// Downloads the models that are missing, with the program that was built for the tests.
pub(crate) fn fetch_models(paths: &Paths) -> Result<()> {
    let program = paths.target.join("debug/llm-in-sandbox");
    missing(paths).try_for_each(|model| pull(paths, &program, model))
}

/// Downloads the tiny model, if it is missing, with this program.
pub(crate) fn fetch_tiny(paths: &Paths, program: &Path) -> Result<()> {
    match tiny(paths).exists() {
        true => Ok(()),
        false => pull(paths, program, TINY),
    }
}

fn pull(paths: &Paths, program: &Path, (model, _): (&str, &str)) -> Result<()> {
    run(Command::new(program)
        .args(["model", "pull", model, "--from", "packages"])
        .env("LLM_IN_SANDBOX_HOME", home(paths)))
}

fn missing(paths: &Paths) -> impl Iterator<Item = (&'static str, &'static str)> {
    [DEFAULT, TINY].into_iter().filter(|model| !file(paths, *model).exists())
}

/// The home directory of the program that downloads the models.
fn home(paths: &Paths) -> PathBuf {
    paths.cache.join("home")
}

fn file(paths: &Paths, (name, file): (&str, &str)) -> PathBuf {
    home(paths).join("models").join(name).join(file)
}

/// pip of the system's Python, with which the tests run the server.
pub(crate) fn pip() -> Result<Command> {
    let python = machine::program("python3").context("there is no python3")?;
    let mut command = Command::new(python);
    command.args(["-m", "pip", "--disable-pip-version-check", "--no-input"]);
    Ok(command)
}
