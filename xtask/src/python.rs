//! OpenAI's Python package, for the tests of our endpoint. Fetched once and kept in the cache directory.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::{llama, places::Places, run::run};

/// The package. What it needs comes with it.
const OPENAI: &str = "openai==3.49.0";

/// Where the package lies.
pub(crate) fn openai(places: &Places) -> PathBuf {
    places.cache.join("python").join(OPENAI)
}

/// Fetches it, unless it is there.
pub(crate) fn fetch(places: &Places) -> Result<()> {
    let to = openai(places);
    if to.exists() {
        return Ok(());
    }
    let partial = to.with_extension("partial");
    run(llama::pip()?.args(["install", "--quiet", "--target"]).arg(&partial).arg(OPENAI))?;
    fs::rename(&partial, &to).context("moving OpenAI's package in place")
}
