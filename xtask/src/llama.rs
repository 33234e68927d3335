//! Real models and a real server for tests: GGUF files, fetched by the product's own command, and llama.cpp's
//! server, from a package wheel. Fetched once and kept in the cache directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{machine, places::Places, run::run, test::cargo, torch};

/// The models: a name of the catalogue and its file.
const DEFAULT: (&str, &str) = ("qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf");
const TINY: (&str, &str) = ("smollm2-135m", "smollm2-135m-instruct-q4_1.gguf");

/// The package of the server.
const SERVER: &str = "xllamacpp==2026.10.11549";

/// The default model: large enough to solve small tasks.
pub(crate) fn model(places: &Places) -> PathBuf {
    file(places, DEFAULT)
}

/// A tiny model: it makes no sense, but quickly.
pub(crate) fn tiny(places: &Places) -> PathBuf {
    file(places, TINY)
}

/// Where the server's Python package lies.
pub(crate) fn server(places: &Places) -> PathBuf {
    places.cache.join("python").join(SERVER)
}

/// Fetches all, unless they are there.
pub(crate) fn fetch(places: &Places) -> Result<()> {
    let server = server(places);
    if !server.exists() {
        install(&server)?;
    }
    let missing: Vec<_> =
        [DEFAULT, TINY].into_iter().filter(|model| !file(places, *model).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    // Built as for the tests, so that they need not build it another way.
    run(cargo(places, "nextest")
        .args(["run", "--no-run", "--cargo-quiet"])
        .args(torch::every_crate(places)))?;
    for (model, _) in missing {
        run(Command::new(places.target.join("debug/llm-in-sandbox"))
            .args(["model", "pull", model, "--from", "packages"])
            .env("LLM_IN_SANDBOX_HOME", home(places)))?;
    }
    Ok(())
}

/// The home of the program that fetches.
fn home(places: &Places) -> PathBuf {
    places.cache.join("home")
}

fn file(places: &Places, (name, file): (&str, &str)) -> PathBuf {
    home(places).join("models").join(name).join(file)
}

fn install(to: &Path) -> Result<()> {
    let partial = to.with_extension("partial");
    run(pip()?.args(["install", "--quiet", "--no-deps", "--target"]).arg(&partial).arg(SERVER))?;
    fs::rename(&partial, to).context("moving the server's package in place")
}

/// pip of the system's own Python: the one tests run the server with.
pub(crate) fn pip() -> Result<Command> {
    let python = machine::program("python3").context("there is no python3")?;
    let mut command = Command::new(python);
    command.args(["-m", "pip", "--disable-pip-version-check", "--no-input"]);
    Ok(command)
}
