//! npm packages for tests: E2B's client and MCP's conformance suite for our server. Downloaded once into the cache directory.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{download, machine, paths::Paths, run::run};

const E2B: &str = "e2b@2.51.0";
/// Later versions need Node 22.
const MCP_CONFORMANCE: &str = "@modelcontextprotocol/conformance@0.1.13";

/// The type checker of our Python package.
const PYRIGHT: &str = "pyright@1.1.414";

/// The directory of E2B's package.
pub(crate) fn e2b(paths: &Paths) -> PathBuf {
    paths.cache.join("npm").join(E2B)
}

/// The directory of MCP's conformance suite.
pub(crate) fn mcp_conformance(paths: &Paths) -> PathBuf {
    paths.cache.join("npm").join(MCP_CONFORMANCE)
}

/// The directory of Pyright.
pub(crate) fn pyright(paths: &Paths) -> PathBuf {
    paths.cache.join("npm").join(PYRIGHT)
}

/// Downloads what is missing. Without npm nothing is downloaded, and the tests that need it say so.
pub(crate) fn fetch(paths: &Paths) -> Result<()> {
    fetch_package(&e2b(paths), E2B)?;
    fetch_package(&mcp_conformance(paths), MCP_CONFORMANCE)?;
    fetch_pyright(paths)
}

/// Downloads Pyright, if it is missing. Without npm it is not downloaded.
pub(crate) fn fetch_pyright(paths: &Paths) -> Result<()> {
    fetch_package(&pyright(paths), PYRIGHT)
}

fn fetch_package(to: &Path, package: &str) -> Result<()> {
    match machine::program("npm") {
        Some(npm) => download::once(to, |to| install(&npm, package, to)),
        None => Ok(()),
    }
}

fn install(npm: &Path, package: &str, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    run(Command::new(npm)
        .args(["install", "--silent", "--no-audit", "--no-fund", "--no-save", "--prefix"])
        .arg(to)
        .arg(package))
}
