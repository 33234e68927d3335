//! Rows from the Hugging Face hub: fetched once, kept, read without a network ever after.
//!
//! The first fetch notes which commit the data set was at; later runs stay with it, so that figures can be
//! compared. Knows no task: only data sets, their files, and where they are kept.

mod choose;
mod download;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Rows, RowsError, Task};
use download::{Listing, Site};

/// Where rows lie on the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The data set, `owner/name`.
    pub dataset: String,
    /// Which of its configurations; `default` where it has but one.
    pub config: String,
    /// Which part of it, such as `test`.
    pub split: String,
}

/// A hub and where its files are kept.
#[derive(Clone, Debug)]
pub struct Hub {
    /// Its address.
    pub base: String,
    /// Where files are kept.
    pub cache: PathBuf,
    /// The commit, branch or tag that is wanted. None: what was fetched before, else the newest.
    pub revision: Option<String>,
    /// A connection that says nothing for so long is given up.
    pub stall: Duration,
}

/// Files that are here now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The files, in the order of their names.
    pub files: Vec<PathBuf>,
    /// The commit they are from.
    pub revision: String,
}

/// Why there are no rows from the hub. Each message says what to do without it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A task that has none there.
    #[error("task `{task}` has no rows on the hub; give them with --data FILE")]
    NoSource {
        /// The task.
        task: String,
    },
    /// Names that cannot be those of a data set.
    #[error("{what} cannot be the name of a data set, a configuration, a split or a revision")]
    Name {
        /// The name, quoted and cut.
        what: String,
    },
    /// An address that cannot be used.
    #[error("`{base}` is no https address of a hub")]
    Address {
        /// What was given.
        base: String,
    },
    /// No connection, or one that broke.
    #[error(
        "cannot fetch {what} from {host}; check the network, or give the rows with --data FILE"
    )]
    Connect {
        /// What was asked for.
        what: String,
        /// The hub's host.
        host: String,
        /// What happened.
        #[source]
        source: reqwest::Error,
    },
    /// A refusal.
    #[error("{host} answered {status} when asked for {what}; rows can be given with --data FILE")]
    Status {
        /// The hub's host.
        host: String,
        /// Its answer.
        status: u16,
        /// What was asked for.
        what: String,
    },
    /// An answer that is not what it should be.
    #[error("{host} sent something else than {what}: {why}")]
    Answer {
        /// The hub's host.
        host: String,
        /// What was asked for.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A data set without such rows.
    #[error(
        "data set {dataset} has no file for configuration `{config}`, split `{split}`; it has {has}"
    )]
    NoRows {
        /// The data set.
        dataset: String,
        /// The configuration.
        config: String,
        /// The split.
        split: String,
        /// Some of its files.
        has: String,
    },
    /// The place where files are kept.
    #[error("cannot keep rows in {path}")]
    Keep {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Files that came but cannot be read.
    #[error(transparent)]
    Rows(#[from] RowsError),
}

/// What was fetched, as it is noted.
#[derive(Serialize, Deserialize)]
struct Pin {
    revision: String,
    files: Vec<String>,
}

impl Hub {
    /// The public hub, with files kept below this directory.
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self {
            base: "https://huggingface.co".to_owned(),
            cache: cache.into(),
            revision: None,
            stall: Duration::from_secs(30),
        }
    }

    /// The rows of a task.
    pub async fn rows(&self, task: &Task) -> Result<Rows, HubError> {
        let no_source = || HubError::NoSource { task: task.name.clone() };
        let fetched = self.fetch(task.hub.as_ref().ok_or_else(no_source)?).await?;
        Ok(task.read_files(&fetched.files)?)
    }

    /// Sees to it that the files of a source are here. Without a network that works if they were fetched before.
    pub async fn fetch(&self, source: &Source) -> Result<Fetched, HubError> {
        let place = self.place(source)?;
        if let Some(fetched) = place.kept() {
            return Ok(fetched);
        }
        let site = Site::new(&self.base, self.stall)?;
        let wanted = self.revision.as_deref().unwrap_or("main");
        let listing = site.list(&source.dataset, wanted).await?;
        let names = choose::files(&listing.names(), source);
        if names.is_empty() {
            return Err(no_rows(source, &listing));
        }
        for name in &names {
            let to = place.dir.join(&listing.revision).join(name);
            let known = listing.file(name);
            site.download(&source.dataset, &listing.revision, name, known, &to).await?;
        }
        let pin = Pin { revision: listing.revision, files: names };
        place.pin(&pin)?;
        Ok(place.fetched(&pin))
    }

    fn place(&self, source: &Source) -> Result<Place, HubError> {
        let Source { dataset, config, split } = source;
        let revision = self.revision.as_deref().unwrap_or("first-seen");
        let owned = dataset.split_once('/').filter(|(owner, name)| is_name(owner) && is_name(name));
        let (owner, name) = owned.ok_or_else(|| name_error(dataset))?;
        for text in [config, split, revision] {
            if !is_name(text) {
                return Err(name_error(text));
            }
        }
        let dir = self.cache.join(format!("{owner}--{name}"));
        let pin = dir.join(format!("{config}--{split}--{revision}.json"));
        Ok(Place { dir, pin })
    }
}

/// Where the files of a source are kept.
struct Place {
    dir: PathBuf,
    pin: PathBuf,
}

impl Place {
    /// What was fetched before; nothing if any of it is gone.
    fn kept(&self) -> Option<Fetched> {
        let pin: Pin = serde_json::from_slice(&fs::read(&self.pin).ok()?).ok()?;
        let plain = is_name(&pin.revision) && pin.files.iter().all(|file| choose::is_plain(file));
        let fetched = plain.then(|| self.fetched(&pin))?;
        fetched.files.iter().all(|file| file.is_file()).then_some(fetched)
    }

    fn fetched(&self, pin: &Pin) -> Fetched {
        let dir = self.dir.join(&pin.revision);
        let files = pin.files.iter().map(|name| dir.join(name)).collect();
        Fetched { files, revision: pin.revision.clone() }
    }

    fn pin(&self, pin: &Pin) -> Result<(), HubError> {
        let text = serde_json::to_vec(pin).unwrap_or_default();
        let partial = self.pin.with_extension(format!("{}.partial", std::process::id()));
        let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, &self.pin));
        written.map_err(|source| HubError::Keep { path: self.pin.clone(), source })
    }
}

/// One part of a path and of an address, whatever the system.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=96).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(plain)
}

fn name_error(text: &str) -> HubError {
    HubError::Name { what: crate::problem::shown(text) }
}

fn no_rows(source: &Source, listing: &Listing) -> HubError {
    let names = listing.names();
    let some: Vec<&str> = names.iter().take(8).map(String::as_str).collect();
    let has = match names.len() {
        0 => "none".to_owned(),
        1..=8 => some.join(", "),
        more => format!("{} and {} more", some.join(", "), more - 8),
    };
    let Source { dataset, config, split } = source.clone();
    HubError::NoRows { dataset, config, split, has }
}

fn keep_error(path: &Path) -> impl FnOnce(io::Error) -> HubError {
    let path = path.to_owned();
    move |source| HubError::Keep { path, source }
}
