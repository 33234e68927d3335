//! The environment variables this program reads. Their meaning is decided elsewhere.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use model::Secret;

use crate::{
    args::model::{AdapterArg, Provider},
    exit::UsageError,
};

/// Data directory.
pub(crate) const HOME: &str = "LLM_IN_SANDBOX_HOME";
/// The user's directory for application data.
const DATA_HOME: &str = "XDG_DATA_HOME";
/// The Docker daemon's address.
const DOCKER_HOST: &str = "DOCKER_HOST";
/// Any value disables colors.
const NO_COLOR: &str = "NO_COLOR";
/// The kind of terminal, for programs inside one.
const TERM: &str = "TERM";
/// The model, if neither a flag nor a settings file names one.
const LLM_NAME: &str = "LLM_NAME";
/// Its server.
const LLM_BASE_URL: &str = "LLM_BASE_URL";
/// The adapter of a local model, or `none`.
const LLM_ADAPTER: &str = "LLM_ADAPTER";
/// The key, whichever vendor's.
const LLM_API_KEY: &str = "LLM_API_KEY";
/// The key for servers that speak OpenAI's protocol.
pub(crate) const OPENAI_API_KEY: &str = "OPENAI_API_KEY";
/// The key for servers that speak Anthropic's protocol.
pub(crate) const ANTHROPIC_API_KEY: &str = "ANTHROPIC_API_KEY";
/// The settings file.
const CONFIG: &str = "LLM_IN_SANDBOX_CONFIG";
/// Directories of programs.
const PATH: &str = "PATH";

/// The values of the variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) home: Option<PathBuf>,
    pub(crate) data_home: Option<PathBuf>,
    #[cfg(target_os = "linux")]
    pub(crate) temporary: startup::TemporaryDirs,
    pub(crate) user_home: Option<PathBuf>,
    pub(crate) docker_host: Option<String>,
    pub(crate) no_color: Option<OsString>,
    pub(crate) term: Option<String>,
    pub(crate) config: Option<PathBuf>,
    pub(crate) log: Option<OsString>,
    pub(crate) model: ModelVariables,
}

/// Variables about models.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelVariables {
    pub(crate) name: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) adapter: Option<AdapterArg>,
    pub(crate) key: Option<Secret>,
    pub(crate) openai_key: Option<Secret>,
    pub(crate) anthropic_key: Option<Secret>,
}

impl ModelVariables {
    fn read() -> Self {
        let text = |name| variable(name).and_then(|value| value.into_string().ok());
        let key = |name| text(name).map(|key| Secret::new(&key));
        Self {
            name: text(LLM_NAME),
            base_url: text(LLM_BASE_URL),
            adapter: variable(LLM_ADAPTER).map(|text| PathBuf::from(text).into()),
            key: key(LLM_API_KEY),
            openai_key: key(OPENAI_API_KEY),
            anthropic_key: key(ANTHROPIC_API_KEY),
        }
    }

    /// The key for a server of this kind.
    pub(crate) fn key(&self, provider: Provider) -> Option<Secret> {
        let vendors = match provider {
            Provider::Openai => &self.openai_key,
            Provider::Anthropic => &self.anthropic_key,
        };
        self.key.clone().or_else(|| vendors.clone())
    }
}

impl Environment {
    /// Reads the variables.
    pub(crate) fn read() -> Self {
        Self {
            home: variable(HOME).map(PathBuf::from),
            data_home: variable(DATA_HOME).map(PathBuf::from),
            #[cfg(target_os = "linux")]
            temporary: startup::TemporaryDirs::from_variables(variable),
            user_home: env::home_dir().filter(|home| !home.as_os_str().is_empty()),
            docker_host: variable(DOCKER_HOST).and_then(|host| host.into_string().ok()),
            no_color: variable(NO_COLOR),
            term: variable(TERM).and_then(|term| term.into_string().ok()),
            config: variable(CONFIG).map(PathBuf::from),
            log: variable(startup::LOG_VARIABLE),
            model: ModelVariables::read(),
        }
    }
}

/// Returns a variable that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the key in the variable that `--api-key-env` names.
pub(crate) fn api_key(name: &str) -> Result<Secret, UsageError> {
    variable(name)
        .and_then(|key| key.into_string().ok())
        .map(|key| Secret::new(&key))
        .ok_or_else(|| UsageError(format!("--api-key-env: {name} is not set")))
}

/// Returns a variable to be copied into a sandbox; it may be empty.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub(crate) fn copied(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// Whether a program can be found by its name.
pub(crate) fn has_program(name: &str) -> bool {
    program(name).is_some()
}

/// Finds a program by its name.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = variable(PATH).unwrap_or_default();
    env::split_paths(&path)
        // Administration programs are not always in an ordinary user's PATH.
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|path| is_program(path))
}

/// Whether a file is executable.
pub(crate) fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
