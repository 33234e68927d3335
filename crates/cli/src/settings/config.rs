//! The settings file: defaults for `run` and `benchmark` in YAML, with the keys of the reference package.
//!
//! Precedence is decided where settings are combined.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use model::Secret;
use serde::Deserialize;

use crate::{args::model::AdapterArg, console::output, exit::UsageError};

/// The largest settings file, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// Default paths of a settings file, below the current directory.
const HERE: [&str; 2] = ["llm-in-sandbox.yaml", "llm_in_sandbox.yaml"];
/// The same, below the user's home.
const AT_HOME: [&str; 3] =
    [".config/llm-in-sandbox/config.yaml", ".llm-in-sandbox/config.yaml", ".llm-in-sandbox.yaml"];

/// The contents of a settings file.
#[derive(Debug, Default)]
pub(crate) struct Config {
    pub(crate) model: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) adapter: Option<AdapterArg>,
    pub(crate) api_key: Option<Secret>,
    pub(crate) prompt_config: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    llm_name: Option<String>,
    llm_base_url: Option<String>,
    llm_adapter: Option<String>,
    api_key: Option<String>,
    prompt_config: Option<PathBuf>,
    #[serde(flatten)]
    unknown: std::collections::BTreeMap<String, serde_json::Value>,
}

impl Config {
    /// Reads the file given by a flag or a variable, or else the first that exists at the default paths.
    pub(crate) fn find(
        named: Option<&Path>,
        variable: Option<&Path>,
        home: Option<&Path>,
    ) -> Result<Self, UsageError> {
        if let Some(path) = named.or(variable) {
            return Self::read(path)?.ok_or_else(|| {
                UsageError(format!("settings file {} does not exist", path.display()))
            });
        }
        let here = HERE.iter().map(PathBuf::from);
        let at_home = home.into_iter().flat_map(|home| AT_HOME.map(|name| home.join(name)));
        for path in here.chain(at_home) {
            if let Some(config) = Self::read(&path)? {
                tracing::debug!(path = %path.display(), "settings file");
                output::note(&format!("settings from {}", path.display()));
                return Ok(config);
            }
        }
        Ok(Self::default())
    }

    fn read(path: &Path) -> Result<Option<Self>, UsageError> {
        let invalid = |why: String| UsageError(format!("settings file {}: {why}", path.display()));
        match fs::metadata(path) {
            Ok(meta) if meta.len() > MAX_SIZE => return Err(invalid("it is too large".into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        let text = fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
        Self::parse(&text).map(Some).map_err(invalid)
    }

    fn parse(text: &str) -> Result<Self, String> {
        // The parser quotes the line with the error, which may contain the key.
        let file: Option<File> = serde_saphyr::from_str(text).map_err(|_| {
            "it is not YAML of the form `key: value` with the keys llm_name, llm_base_url, \
             llm_adapter, api_key, prompt_config"
                .to_owned()
        })?;
        let file = file.unwrap_or_default();
        if !file.unknown.is_empty() {
            let names: Vec<&str> = file.unknown.keys().map(String::as_str).collect();
            output::note(&format!("settings file: unknown keys are ignored: {}", names.join(", ")));
        }
        let filled = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        Ok(Self {
            model: filled(file.llm_name),
            base_url: filled(file.llm_base_url),
            adapter: filled(file.llm_adapter).map(|text| PathBuf::from(text).into()),
            api_key: filled(file.api_key).map(|key| Secret::new(&key)),
            prompt_config: file.prompt_config.filter(|path| !path.as_os_str().is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_keys_are_read_and_others_ignored() {
        let config = Config::parse("llm_name: openai/m\nllm_base_url: 'http://x/v1'\nother: 1\n");
        let config = config.unwrap();
        assert_eq!(config.model.as_deref(), Some("openai/m"));
        assert_eq!(config.base_url.as_deref(), Some("http://x/v1"));
        assert_eq!(config.prompt_config, None);
        let adapter = |text: &str| Config::parse(text).unwrap().adapter;
        assert_eq!(adapter("llm_adapter: none\n"), Some(AdapterArg::None));
        assert_eq!(adapter("llm_adapter: a.gguf\n"), Some(AdapterArg::File("a.gguf".into())));
        assert_eq!(adapter("llm_adapter:\n"), None);
        assert!(Config::parse("").unwrap().model.is_none());
        assert!(Config::parse("llm_name: \"\"\n").unwrap().model.is_none());
    }

    #[test]
    fn a_broken_file_is_refused_without_its_secrets() {
        let error = Config::parse("api_key: [sk-hush\n").unwrap_err();
        assert!(error.contains("llm_name") && !error.contains("sk-hush"), "{error}");
    }

    #[test]
    fn a_file_that_was_named_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.yaml");
        assert!(Config::find(Some(&path), None, None).is_err());
        fs::write(&path, "llm_name: m").unwrap();
        let config = Config::find(Some(&path), None, None).unwrap();
        assert_eq!(config.model.as_deref(), Some("m"));
        let home = dir.path().join(".llm-in-sandbox.yaml");
        fs::write(&home, "llm_name: n").unwrap();
        let config = Config::find(None, None, Some(dir.path())).unwrap();
        assert_eq!(config.model.as_deref(), Some("n"));
    }
}
