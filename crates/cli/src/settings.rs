//! Finished settings: defaults below, the environment above, flags on top where a command has them.

use std::{
    fs, io,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
};

use sandbox_docker::DockerOptions;

use crate::{
    config::Config,
    environment::{Environment, HOME, ModelVariables},
    exit::Usage,
};

/// What every command may need to know.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    home: Option<PathBuf>,
    docker_host: Option<String>,
    term: Option<String>,
    color: Color,
    user_home: Option<PathBuf>,
    config: Option<PathBuf>,
    model: ModelVariables,
}

/// Whether text for people may be coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    /// On a terminal.
    OnTerminals,
    /// Nowhere.
    Never,
}

/// The state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// No variable and no home directory says where it is.
    #[error("there is no place to keep state: this user has no home; name a directory in {HOME}")]
    NoHome,
    /// It cannot be made or written.
    #[error("cannot keep state in {path}; {remedy}, or name another directory in {HOME}")]
    Home {
        /// The directory.
        path: PathBuf,
        /// What may help.
        remedy: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

impl Settings {
    /// Puts the environment over the defaults.
    pub(crate) fn new(environment: Environment) -> Self {
        let ours = |dir: PathBuf| dir.join("llm-in-sandbox");
        let data = environment.data_home.filter(|dir| dir.is_absolute()).map(ours);
        let usual = environment.user_home.as_ref().map(|home| ours(home.join(".local/share")));
        let home = environment.home.or(data).or(usual);
        Self {
            // The spawner has another working directory.
            home: home.map(|home| std::path::absolute(&home).unwrap_or(home)),
            docker_host: environment.docker_host,
            term: environment.term,
            color: if environment.no_color.is_some() { Color::Never } else { Color::OnTerminals },
            user_home: environment.user_home,
            config: environment.config,
            model: environment.model,
        }
    }

    /// Where state and images are kept.
    pub(crate) fn home(&self) -> Result<&Path, SettingsError> {
        self.home.as_deref().ok_or(SettingsError::NoHome)
    }

    /// The same, made and found to be writable, so that trouble is told before anything is begun.
    pub(crate) fn writable_home(&self) -> Result<&Path, SettingsError> {
        let home = self.home()?;
        try_out(home).map_err(|source| SettingsError::Home {
            path: home.to_owned(),
            remedy: match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "free some space there"
                }
                io::ErrorKind::ReadOnlyFilesystem => "make it writable",
                io::ErrorKind::PermissionDenied => "get the right to write there",
                _ => "make it a directory",
            },
            source,
        })?;
        Ok(home)
    }

    /// How to reach Docker.
    pub(crate) fn docker(&self) -> DockerOptions {
        DockerOptions { host: self.docker_host.clone(), default_image: None }
    }

    /// Where Docker is asked for, if the user said so.
    pub(crate) fn docker_host(&self) -> Option<&str> {
        self.docker_host.as_deref()
    }

    /// The kind of terminal we run in.
    pub(crate) fn term(&self) -> Option<&str> {
        self.term.as_deref()
    }

    /// The settings file: the one the user names, or the one that lies where one may.
    pub(crate) fn config(&self, named: Option<&Path>) -> Result<Config, Usage> {
        Config::find(named, self.config.as_deref(), self.user_home.as_deref())
    }

    /// What the environment says about models.
    pub(crate) fn model_variables(&self) -> &ModelVariables {
        &self.model
    }

    /// Whether somebody looks at standard error, and on a terminal that can do more than print.
    pub(crate) fn watches_stderr(&self) -> bool {
        io::stderr().is_terminal() && self.term() != Some("dumb")
    }

    /// Whether what goes to standard error may be coloured.
    pub(crate) fn color_stderr(&self) -> Color {
        match self.color {
            Color::OnTerminals if io::stderr().is_terminal() => Color::OnTerminals,
            _ => Color::Never,
        }
    }

    /// Whether what goes to standard output may be coloured.
    pub(crate) fn color_stdout(&self) -> Color {
        match self.color {
            Color::OnTerminals if io::stdout().is_terminal() => Color::OnTerminals,
            _ => Color::Never,
        }
    }
}

/// Makes the directory and writes a block into it: creating a file alone succeeds on a full disk.
fn try_out(home: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    let probe = home.join(format!(".probe-{}", std::process::id()));
    let written = fs::File::create(&probe).and_then(|mut file| file.write_all(&[0; 4096]));
    let _ = fs::remove_file(&probe);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_on_the_home_wins() {
        let mut environment =
            Environment { user_home: Some("/h".into()), ..Environment::default() };
        let home = |environment: &Environment| {
            Settings::new(environment.clone()).home().map(Path::to_owned).ok()
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
    fn a_file_is_no_home() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let settings = Settings::new(Environment { home: Some(file), ..Environment::default() });
        let error = settings.writable_home().unwrap_err().to_string();
        assert!(error.contains("make it a directory") && error.contains(HOME), "{error}");
        let home = dir.path().join("a/b");
        let settings = Settings::new(Environment { home: Some(home), ..Environment::default() });
        let made = settings.writable_home().unwrap();
        assert_eq!(fs::read_dir(made).unwrap().count(), 0);
    }
}
