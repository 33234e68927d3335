//! The environment variables this program reads: the state directory, which is that of `llm-in-sandbox`, and with it the
//! pulled models.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use model::Secret;
use startup::UsageError;
use training::SamplerSettings;

/// The model at a path, or the one of this name pulled by `llm-in-sandbox model pull`.
pub(crate) fn model(named: &Path) -> anyhow::Result<PathBuf> {
    if named.exists() {
        return Ok(named.to_owned());
    }
    let pulled = match named.components().count() {
        1 => weights(&home()?.join("models").join(named)),
        _ => None,
    };
    let name = named.display();
    let text = format!(
        "there is no model {name}: it is not a file, not a directory, and not pulled by `llm-in-sandbox model pull`"
    );
    Ok(pulled.ok_or(UsageError(text))?)
}

/// Fills in the key of a server and the place of its tokenizer.
pub(crate) fn complete(sampler: &mut SamplerSettings, named: &mut PathBuf) -> anyhow::Result<()> {
    sampler.api_key = sampler.api_key_env.as_deref().map(api_key).transpose()?;
    match &mut sampler.tokenizer {
        Some(tokenizer) => *tokenizer = model(tokenizer)?,
        None => *named = model(named)?,
    }
    Ok(())
}

/// The key in an environment variable.
pub(crate) fn api_key(name: &str) -> anyhow::Result<Secret> {
    let value = variable(name).and_then(|value| value.into_string().ok());
    let key = Secret::new(&value.unwrap_or_default());
    if key.reveal().is_empty() {
        let text = format!("the environment variable {name} has no key");
        return Err(UsageError(text).into());
    }
    Ok(key)
}

/// The GGUF file of a pulled model in its directory. Beside it may be `adapter-SHA256.gguf`, copies of its adapters.
fn weights(directory: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(directory).ok()?;
    let is_adapter = |path: &Path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("adapter-"))
    };
    let paths = files.filter_map(|file| Some(file.ok()?.path()));
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "gguf") && !is_adapter(path))
        .min()
}

/// The data directory; created where it is missing.
pub(crate) fn home() -> anyhow::Result<PathBuf> {
    let ours = |dir: PathBuf| dir.join("llm-in-sandbox");
    let named = variable("LLM_IN_SANDBOX_HOME").map(PathBuf::from);
    let data =
        variable("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute()).map(ours);
    let usual = env::home_dir().filter(|home| !home.as_os_str().is_empty());
    let home = named.or(data).or_else(|| usual.map(|home| ours(home.join(".local/share"))));
    let home = home.context("no directory for state is known: set LLM_IN_SANDBOX_HOME")?;
    // Absolute, since the spawner has another working directory.
    let home = std::path::absolute(&home).unwrap_or(home);
    std::fs::create_dir_all(&home).with_context(|| {
        format!(
            "cannot use {} for state; set LLM_IN_SANDBOX_HOME to another directory",
            home.display()
        )
    })?;
    Ok(home)
}

/// The directory for the state of running sandboxes.
pub(crate) fn state(home: &Path) -> anyhow::Result<PathBuf> {
    let temporary = startup::TemporaryDirs::from_variables(variable);
    Ok(startup::state_dir(home, &temporary)?.path)
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_beside_a_model_is_not_the_model() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(weights(directory.path()), None);
        for name in ["adapter-0123.gguf", "notes.txt", "model-q4_k_m.gguf"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        assert_eq!(weights(directory.path()), Some(directory.path().join("model-q4_k_m.gguf")));
        fs::remove_file(directory.path().join("model-q4_k_m.gguf")).unwrap();
        assert_eq!(weights(directory.path()), None);
    }
}
