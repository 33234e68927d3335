//! Python packages for tests: OpenAI's, which speaks to our endpoint, the official Math-Verify, which our grader is
//! measured against, and Transformers, which our nets are. Fetched once and kept in the cache directory.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::{llama, places::Places, run::run};

/// A package and what it wants besides; other dependencies come with it.
type Package = (&'static str, &'static [&'static str]);

const OPENAI: Package = ("openai==3.49.0", &[]);
const MATH_VERIFY: Package = ("math-verify==0.9.0", &["antlr4-python3-runtime==4.13.2"]);
/// With what it reads GGUF files with, and what PyTorch itself imports, which `torch.rs` fetches without.
const TRANSFORMERS: Package = (
    "transformers==5.22.2",
    &["gguf==0.19.0", "jinja2", "networkx", "numpy", "sympy", "typing-extensions"],
);

/// Where OpenAI's package lies.
pub(crate) fn openai(places: &Places) -> PathBuf {
    place(places, OPENAI)
}

/// Where Math-Verify lies.
pub(crate) fn math_verify(places: &Places) -> PathBuf {
    place(places, MATH_VERIFY)
}

/// Where Transformers lies, without PyTorch.
pub(crate) fn transformers(places: &Places) -> PathBuf {
    place(places, TRANSFORMERS)
}

/// Fetches them, unless they are there.
pub(crate) fn fetch(places: &Places) -> Result<()> {
    for package in [OPENAI, MATH_VERIFY, TRANSFORMERS] {
        let to = place(places, package);
        if to.exists() {
            continue;
        }
        let (name, besides) = package;
        let partial = to.with_extension("partial");
        run(llama::pip()?
            .args(["install", "--quiet", "--target"])
            .arg(&partial)
            .arg(name)
            .args(besides))?;
        fs::rename(&partial, &to).with_context(|| format!("moving {name} in place"))?;
    }
    Ok(())
}

fn place(places: &Places, (name, _): Package) -> PathBuf {
    places.cache.join("python").join(name)
}
