//! Python packages for tests: clients of OpenAI, E2B, MCP and OpenEnv, and Schemathesis for our servers, Math-Verify,
//! Transformers and ATIF as references for our grader, our networks and our exports. Downloaded once into the cache directory.

use std::path::PathBuf;

use anyhow::Result;

use crate::{download, llama, paths::Paths, run::run};

/// A package and what it needs but does not declare.
type Package = (&'static str, &'static [&'static str]);

const ATIF: Package = ("atif==1.8.0", &[]);
const OPENAI: Package = ("openai==3.49.0", &[]);
const E2B: Package = ("e2b==2.63.0", &[]);
const MCP: Package = ("mcp==2.3.0", &[]);
const OPENENV: Package = ("openenv==0.10.0", &[]);
const SCHEMATHESIS: Package = ("schemathesis==4.32.5", &[]);
const MATH_VERIFY: Package = ("math-verify==0.9.0", &["antlr4-python3-runtime==4.13.2"]);
const MATURIN: Package = ("maturin==1.16.0", &[]);
/// With its reader of GGUF files, and with what PyTorch imports: `torch.rs` downloads PyTorch without dependencies.
const TRANSFORMERS: Package = (
    "transformers==5.22.2",
    &["gguf==0.19.0", "jinja2", "networkx", "numpy", "sympy", "typing-extensions"],
);

/// The directory of the models of ATIF, which validate trajectories.
pub(crate) fn atif(paths: &Paths) -> PathBuf {
    directory(paths, ATIF)
}

/// The directory of OpenAI's package.
pub(crate) fn openai(paths: &Paths) -> PathBuf {
    directory(paths, OPENAI)
}

/// The directory of the package of the Model Context Protocol.
pub(crate) fn mcp(paths: &Paths) -> PathBuf {
    directory(paths, MCP)
}

/// The directory of E2B's package.
pub(crate) fn e2b(paths: &Paths) -> PathBuf {
    directory(paths, E2B)
}

/// The directory of Schemathesis, which invents requests for our server.
pub(crate) fn schemathesis(paths: &Paths) -> PathBuf {
    directory(paths, SCHEMATHESIS)
}

/// The directory of OpenEnv's package.
pub(crate) fn openenv(paths: &Paths) -> PathBuf {
    directory(paths, OPENENV)
}

/// The directory of Math-Verify.
pub(crate) fn math_verify(paths: &Paths) -> PathBuf {
    directory(paths, MATH_VERIFY)
}

/// The directory of Transformers, without PyTorch.
pub(crate) fn transformers(paths: &Paths) -> PathBuf {
    directory(paths, TRANSFORMERS)
}

/// The program that packs our own package.
pub(crate) fn maturin(paths: &Paths) -> PathBuf {
    directory(paths, MATURIN).join("bin/maturin")
}

/// Downloads what is missing.
pub(crate) fn fetch(paths: &Paths) -> Result<()> {
    let all = [ATIF, OPENAI, E2B, MCP, OPENENV, SCHEMATHESIS, MATH_VERIFY, TRANSFORMERS, MATURIN];
    all.into_iter().try_for_each(|package| download(paths, package))
}

/// Downloads maturin, if it is missing.
pub(crate) fn fetch_maturin(paths: &Paths) -> Result<()> {
    download(paths, MATURIN)
}

fn download(paths: &Paths, package: Package) -> Result<()> {
    let (name, others) = package;
    download::once(&directory(paths, package), |to| {
        let mut pip = llama::pip()?;
        run(pip.args(["install", "--quiet", "--target"]).arg(to).arg(name).args(others))
    })
}

fn directory(paths: &Paths, (name, _): Package) -> PathBuf {
    paths.cache.join("python").join(name)
}
