//! The environment variables this program reads: where state is kept, the same as for `llm-in-sandbox`, and with it the
//! models that were fetched.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::exit::Usage;

/// The model at a path, or the one that `llm-in-sandbox model pull` fetched under this name.
pub(crate) fn model(named: &Path) -> anyhow::Result<PathBuf> {
    if named.exists() {
        return Ok(named.to_owned());
    }
    let fetched = match named.components().count() {
        1 => weights(&home()?.join("models").join(named)),
        _ => None,
    };
    let name = named.display();
    let text = format!(
        "there is no model {name}: no file, no directory, and none that `llm-in-sandbox model pull` fetched"
    );
    Ok(fetched.ok_or(Usage(text))?)
}

/// The GGUF file in a directory.
fn weights(directory: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(directory).ok()?;
    let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
    paths.find(|path| path.extension().is_some_and(|end| end == "gguf"))
}

/// Where state and images are kept.
pub(crate) fn home() -> anyhow::Result<PathBuf> {
    let ours = |dir: PathBuf| dir.join("llm-in-sandbox");
    let named = variable("LLM_IN_SANDBOX_HOME").map(PathBuf::from);
    let data =
        variable("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute()).map(ours);
    let usual = env::home_dir().filter(|home| !home.as_os_str().is_empty());
    let home = named.or(data).or_else(|| usual.map(|home| ours(home.join(".local/share"))));
    let home =
        home.context("there is no place to keep state: name a directory in LLM_IN_SANDBOX_HOME")?;
    // The spawner has another working directory.
    let home = std::path::absolute(&home).unwrap_or(home);
    std::fs::create_dir_all(&home).with_context(|| {
        format!(
            "cannot keep state in {}; name another directory in LLM_IN_SANDBOX_HOME",
            home.display()
        )
    })?;
    Ok(home)
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}
