//! Rows from the Hugging Face hub: downloaded once, cached, and read without a network afterwards.
//!
//! The first download records the commit of the data set; later runs use the same commit, so that scores stay
//! comparable. Knows no task: only data sets, their files and the cache.

mod choose;

use std::{fs, io, path::PathBuf};

use ::hub::{Endpoint, Hub, Repo, Silent, Size};
use serde::{Deserialize, Serialize};

use crate::{Rows, RowsError, Task, rows::LARGEST_FILE};

/// Where rows are on the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The data set, `owner/name`.
    pub dataset: String,
    /// The configuration; `default` for data sets with only one.
    pub config: String,
    /// The split, such as `test`.
    pub split: String,
}

/// Data sets of a hub, cached in a directory.
#[derive(Clone, Debug)]
pub struct DatasetCache {
    /// The hub.
    pub endpoint: Endpoint,
    /// The directory of the cache.
    pub dir: PathBuf,
    /// The commit, branch or tag to use. None: the commit downloaded before, else the newest.
    pub revision: Option<String>,
}

/// Files that are in the cache now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The files, sorted by name.
    pub files: Vec<PathBuf>,
    /// The commit they are from.
    pub revision: String,
}

/// Why there are no rows from the hub.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A task without rows on the hub.
    #[error("task `{task}` has no rows on the hub")]
    NoSource {
        /// The task.
        task: String,
    },
    /// An invalid name.
    #[error("{what} is not the name of a data set, a configuration, a split or a revision")]
    Name {
        /// The name, quoted and cut.
        what: String,
    },
    /// The hub cannot be used, or a listing or file could not be downloaded.
    #[error("cannot fetch data set {dataset}")]
    Fetch {
        /// The data set.
        dataset: String,
        /// Why.
        #[source]
        source: ::hub::Error,
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
    /// The cache cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Files that were downloaded but cannot be read.
    #[error(transparent)]
    Rows(#[from] RowsError),
}

impl HubError {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Fetch { source, .. } if source.is_transient())
    }
}

/// The files of a source and the commit they are from, as recorded in the cache.
#[derive(Serialize, Deserialize)]
struct Pin {
    revision: String,
    files: Vec<String>,
}

impl DatasetCache {
    /// The public hub, cached below a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { endpoint: Endpoint::default(), dir: dir.into(), revision: None }
    }

    /// The rows of a task.
    pub async fn rows(&self, task: &Task) -> Result<Rows, HubError> {
        let no_source = || HubError::NoSource { task: task.name.clone() };
        let fetched = self.fetch(task.hub.as_ref().ok_or_else(no_source)?).await?;
        Ok(task.read_files(&fetched.files)?)
    }

    /// Makes sure that the files of a source are in the cache. Needs no network if they were downloaded before.
    #[tracing::instrument(level = "debug", skip_all, fields(dataset = source.dataset, config = source.config))]
    pub async fn fetch(&self, source: &Source) -> Result<Fetched, HubError> {
        let entry = self.entry(source)?;
        if let Some(fetched) = entry.cached() {
            return Ok(fetched);
        }
        let failed = |error| HubError::Fetch { dataset: source.dataset.clone(), source: error };
        let hub = Hub::new(&self.endpoint).map_err(failed)?;
        let repo = Repo::dataset(&source.dataset);
        let revision = self.revision.as_deref().unwrap_or("main");
        let listing = hub.list(&repo, revision).await.map_err(failed)?;
        let paths: Vec<String> = listing.files.iter().map(|file| file.path.clone()).collect();
        let chosen = choose::files(&paths, source);
        if chosen.is_empty() {
            return Err(no_rows(source, &paths));
        }
        for path in &chosen {
            let to = entry.dir.join(&listing.revision).join(path);
            let file = repo.file(&listing.revision, path);
            let sha256 = listing.files.iter().find(|file| file.path == *path);
            let sha256 = sha256.and_then(|file| file.sha256.as_ref());
            hub.download_to(&file, Size::AtMost(LARGEST_FILE), sha256, &to, &Silent)
                .await
                .map_err(failed)?;
        }
        let pin = Pin { revision: listing.revision, files: chosen };
        entry.write(&pin)?;
        Ok(entry.fetched(&pin))
    }

    fn entry(&self, source: &Source) -> Result<Entry, HubError> {
        let Source { dataset, config, split } = source;
        let revision = self.revision.as_deref().unwrap_or("first-seen");
        let owned = dataset.split_once('/').filter(|(owner, name)| is_name(owner) && is_name(name));
        let (owner, name) = owned.ok_or_else(|| name_error(dataset))?;
        for text in [config, split, revision] {
            if !is_name(text) {
                return Err(name_error(text));
            }
        }
        let dir = self.dir.join(format!("{owner}--{name}"));
        let pin = dir.join(format!("{config}--{split}--{revision}.json"));
        Ok(Entry { dir, pin })
    }
}

/// Where the files of a source are in the cache.
struct Entry {
    dir: PathBuf,
    pin: PathBuf,
}

impl Entry {
    /// What was downloaded before; none if any of it is missing.
    fn cached(&self) -> Option<Fetched> {
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

    fn write(&self, pin: &Pin) -> Result<(), HubError> {
        let text = serde_json::to_vec(pin).map_err(io::Error::from);
        text.and_then(|text| atomic_file::write(&self.pin, text))
            .map_err(|source| HubError::Write { path: self.pin.clone(), source })
    }
}

/// Whether a text is safe as one component of a path and of an address.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=96).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(plain)
}

fn name_error(text: &str) -> HubError {
    HubError::Name { what: crate::problem::shown(text) }
}

fn no_rows(source: &Source, paths: &[String]) -> HubError {
    let some = paths.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
    let has = match paths.len() {
        0 => "none".to_owned(),
        1..=8 => some,
        more => format!("{some} and {} more", more - 8),
    };
    let Source { dataset, config, split } = source.clone();
    HubError::NoRows { dataset, config, split, has }
}
