//! Settings of all commands: defaults, overridden by the environment. Flags are applied where a command has them.

pub(crate) mod config;
pub(crate) mod environment;
pub(crate) mod recorded;
pub(crate) mod sandbox;

use std::{
    fs, io,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
};

use sandbox_docker::DockerOptions;

use self::{
    config::Config,
    environment::{Environment, HOME, ModelVariables},
};
use crate::exit::UsageError;

/// Settings that any command may need.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    home: Option<PathBuf>,
    #[cfg(target_os = "linux")]
    temporary: startup::TemporaryDirs,
    docker_host: Option<String>,
    term: Option<String>,
    color: Color,
    user_home: Option<PathBuf>,
    config: Option<PathBuf>,
    model: ModelVariables,
    logging: bool,
}

/// Whether text for people is colored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    /// On a terminal.
    OnTerminals,
    /// Nowhere.
    Never,
}

/// The data directory, or the one for the state of sandboxes, cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// Neither a variable nor a home directory determines it.
    #[error("there is no directory for state: the user has no home directory; set {HOME}")]
    NoHome,
    /// It cannot be created or written.
    #[error("cannot store state in {path}; {remedy}, or set {HOME} to another directory")]
    Home {
        /// The directory.
        path: PathBuf,
        /// What may help.
        remedy: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// No directory can hold the state of sandboxes.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    State(#[from] startup::NoStateDir),
}

impl Settings {
    /// Applies the environment to the defaults. While `logging`, views do not redraw lines.
    pub(crate) fn new(environment: Environment, logging: bool) -> Self {
        let ours = |dir: PathBuf| dir.join("llm-in-sandbox");
        let data = environment.data_home.filter(|dir| dir.is_absolute()).map(ours);
        let default = environment.user_home.as_ref().map(|home| ours(home.join(".local/share")));
        let home = environment.home.or(data).or(default);
        tracing::debug!(?home, "state directory");
        Self {
            // The spawner has another working directory.
            home: home.map(|home| std::path::absolute(&home).unwrap_or(home)),
            #[cfg(target_os = "linux")]
            temporary: environment.temporary,
            docker_host: environment.docker_host,
            term: environment.term,
            color: if environment.no_color.is_some() { Color::Never } else { Color::OnTerminals },
            user_home: environment.user_home,
            config: environment.config,
            model: environment.model,
            logging,
        }
    }

    /// The data directory: images, models, and the state of sandboxes where its file system can hold that.
    pub(crate) fn home(&self) -> Result<&Path, SettingsError> {
        self.home.as_deref().ok_or(SettingsError::NoHome)
    }

    /// The same, created and checked to be writable, so that errors are reported before any work starts.
    pub(crate) fn writable_home(&self) -> Result<&Path, SettingsError> {
        let home = self.home()?;
        probe(home).map_err(|source| SettingsError::Home {
            path: home.to_owned(),
            remedy: match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space",
                io::ErrorKind::ReadOnlyFilesystem => "make it writable",
                io::ErrorKind::PermissionDenied => "make it writable for this user",
                _ => "make it a directory",
            },
            source,
        })?;
        Ok(home)
    }

    /// The directory for the state of running sandboxes, created: the data directory, or one of this machine.
    #[cfg(target_os = "linux")]
    pub(crate) fn state(&self) -> Result<startup::StateDir, SettingsError> {
        let found = startup::state_dir(self.writable_home()?, &self.temporary)?;
        tracing::debug!(path = ?found.path, why = found.why, "state of sandboxes");
        Ok(found)
    }

    /// Every directory that may hold state of sandboxes and exists; the data directory first.
    #[cfg(target_os = "linux")]
    pub(crate) fn states(&self) -> Result<Vec<PathBuf>, SettingsError> {
        Ok(startup::state_dirs(self.home()?, &self.temporary))
    }

    /// The image store.
    pub(crate) fn store(&self) -> anyhow::Result<image::Store> {
        let store = image::Store::open(self.writable_home()?.join("images"))?;
        #[cfg(target_os = "linux")]
        if let state = self.state()?.path
            && Some(&state) != self.home.as_ref()
        {
            return Ok(store.unpacking_in(state.join(sandbox_native::UNPACKED)));
        }
        Ok(store)
    }

    /// Options of the native runtime.
    #[cfg(target_os = "linux")]
    pub(crate) fn native(&self) -> Result<sandbox_native::NativeOptions, SettingsError> {
        Ok(sandbox_native::NativeOptions {
            state: self.state()?.path,
            home: self.home()?.to_owned(),
            launcher: startup::launcher(),
        })
    }

    /// Options of the Docker runtime.
    pub(crate) fn docker(&self) -> DockerOptions {
        DockerOptions { host: self.docker_host.clone(), ..DockerOptions::default() }
    }

    /// The Docker daemon's address, if the user set one.
    pub(crate) fn docker_host(&self) -> Option<&str> {
        self.docker_host.as_deref()
    }

    /// The kind of terminal.
    pub(crate) fn term(&self) -> Option<&str> {
        self.term.as_deref()
    }

    /// Reads the settings file: the one given, or the first at the default paths.
    pub(crate) fn config(&self, named: Option<&Path>) -> Result<Config, UsageError> {
        Config::find(named, self.config.as_deref(), self.user_home.as_deref())
    }

    /// The user's home directory.
    pub(crate) fn user_home(&self) -> Option<&Path> {
        self.user_home.as_deref()
    }

    /// The environment variables about models.
    pub(crate) fn model_variables(&self) -> &ModelVariables {
        &self.model
    }

    /// Whether standard error is a terminal on which lines can be redrawn, and nothing is logged there.
    pub(crate) fn stderr_is_interactive(&self) -> bool {
        !self.logging && io::stderr().is_terminal() && self.term() != Some("dumb")
    }

    /// Whether the user asked for details with `-v`.
    pub(crate) fn is_logging(&self) -> bool {
        self.logging
    }

    /// Whether standard error is colored.
    pub(crate) fn color_stderr(&self) -> Color {
        match self.color {
            Color::OnTerminals if io::stderr().is_terminal() => Color::OnTerminals,
            _ => Color::Never,
        }
    }

    /// Whether standard output is colored.
    pub(crate) fn color_stdout(&self) -> Color {
        match self.color {
            Color::OnTerminals if io::stdout().is_terminal() => Color::OnTerminals,
            _ => Color::Never,
        }
    }
}

/// Creates the directory and writes a block into it: creating an empty file succeeds on a full disk.
fn probe(home: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    // Without a name where the file system can do that: a process that is killed here leaves nothing.
    tempfile::tempfile_in(home)?.write_all(&[0; 4096])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_variable_decides_the_home() {
        let mut environment =
            Environment { user_home: Some("/h".into()), ..Environment::default() };
        let home = |environment: &Environment| {
            Settings::new(environment.clone(), false).home().map(Path::to_owned).ok()
        };
        assert_eq!(home(&environment), Some("/h/.local/share/llm-in-sandbox".into()));
        environment.data_home = Some("relative/is/ignored".into());
        assert_eq!(home(&environment), Some("/h/.local/share/llm-in-sandbox".into()));
        environment.data_home = Some("/data".into());
        assert_eq!(home(&environment), Some("/data/llm-in-sandbox".into()));
        environment.home = Some("/mine".into());
        assert_eq!(home(&environment), Some("/mine".into()));
        assert_eq!(home(&Environment::default()), None);
    }

    #[test]
    fn a_file_is_not_a_home() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let settings =
            Settings::new(Environment { home: Some(file), ..Environment::default() }, false);
        let error = settings.writable_home().unwrap_err().to_string();
        assert!(error.contains("make it a directory") && error.contains(HOME), "{error}");
        let home = dir.path().join("a/b");
        let settings =
            Settings::new(Environment { home: Some(home), ..Environment::default() }, false);
        let made = settings.writable_home().unwrap();
        assert_eq!(fs::read_dir(made).unwrap().count(), 0);
    }
}
