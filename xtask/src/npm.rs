//! npm packages for tests: E2B's client for our server. Downloaded once into the cache directory.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result};

use crate::{machine, paths::Paths, run::run};

const E2B: &str = "e2b@2.51.0";

/// The directory of E2B's package.
pub(crate) fn e2b(paths: &Paths) -> PathBuf {
    paths.cache.join("npm").join(E2B)
}

/// Downloads what is missing. Without npm nothing is downloaded, and the tests that need it say so.
pub(crate) fn fetch(paths: &Paths) -> Result<()> {
    let to = e2b(paths);
    let Some(npm) = machine::program("npm").filter(|_| !to.exists()) else { return Ok(()) };
    let partial = to.with_extension("partial");
    fs::create_dir_all(&partial).with_context(|| format!("creating {}", partial.display()))?;
    run(Command::new(npm)
        .args(["install", "--silent", "--no-audit", "--no-fund", "--no-save", "--prefix"])
        .arg(&partial)
        .arg(E2B))?;
    fs::rename(&partial, &to).with_context(|| format!("moving {E2B} into place"))
}
