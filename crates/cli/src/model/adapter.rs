//! The adapter of a local model: none, a file of the user, or the one that belongs to the model and is part of the
//! program.

use std::{fmt, path::PathBuf};

use catalogue::{Catalogue, Sha256Hex};
use serde::{Deserialize, Serialize};

use super::ModelFile;
use crate::args::model::AdapterArg;

/// An adapter as it is recorded: an object, or the path of a file. Earlier versions recorded paths only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Adapter {
    /// Part of the program, and of a model of `model list`. The hash decides which one it is: the next version of the
    /// program may have another under the same name.
    Bundled { name: String, sha256: Sha256Hex },
    /// A GGUF file.
    File(PathBuf),
}

impl Adapter {
    /// The adapter for a model: what the user gave, else the model's own.
    pub(crate) fn choose(
        given: Option<AdapterArg>,
        model: &ModelFile,
        catalogue: &Catalogue,
    ) -> Option<Self> {
        match given {
            Some(AdapterArg::None) => None,
            Some(AdapterArg::File(path)) => {
                Some(Self::File(std::path::absolute(&path).unwrap_or(path)))
            }
            None => Self::of_model(model, catalogue),
        }
    }

    fn of_model(model: &ModelFile, catalogue: &Catalogue) -> Option<Self> {
        let ModelFile::Listed(name) = model else { return None };
        let adapter = catalogue.get(name)?.adapter.as_ref()?;
        Some(Self::Bundled { name: adapter.name.clone(), sha256: adapter.sha256.clone() })
    }

    /// A text that differs where results may differ.
    pub(crate) fn id(&self) -> String {
        match self {
            Self::Bundled { name, sha256 } => format!("{name}@{sha256}"),
            Self::File(path) => path.to_string_lossy().into_owned(),
        }
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundled { name, .. } => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

#[cfg(feature = "local")]
pub(crate) use self::file::OpenAdapter;

/// Adapters as files that llama.cpp can read.
#[cfg(feature = "local")]
mod file {
    use std::path::{Path, PathBuf};

    use anyhow::Context;
    use catalogue::{AdapterFile, Store};

    use super::Adapter;
    use crate::model::ModelFile;

    /// A file with an adapter. It exists as long as this value.
    #[derive(Debug)]
    pub(crate) enum OpenAdapter {
        Stored(AdapterFile),
        File(PathBuf),
    }

    impl OpenAdapter {
        /// The file of an adapter, written to the store if it is part of the program and not there yet.
        pub(crate) async fn open(
            adapter: &Adapter,
            model: &ModelFile,
            store: impl FnOnce() -> anyhow::Result<Store>,
        ) -> anyhow::Result<Self> {
            let (sha256, name) = match (adapter, model) {
                (Adapter::File(path), _) => return Ok(Self::File(path.clone())),
                (Adapter::Bundled { sha256, .. }, ModelFile::Listed(name)) => {
                    (sha256.clone(), name.clone())
                }
                (Adapter::Bundled { name, .. }, ModelFile::At(_)) => {
                    anyhow::bail!(
                        "the adapter {name} belongs to a model of the list, not to a file"
                    )
                }
            };
            let store = store()?;
            let opening = tokio::task::spawn_blocking(move || store.adapter(&name, &sha256));
            let file = opening.await.context("writing the adapter failed")??;
            Ok(Self::Stored(file))
        }

        pub(crate) fn path(&self) -> &Path {
            match self {
                Self::Stored(file) => file.path(),
                Self::File(path) => path,
            }
        }
    }
}

#[cfg(test)]
#[path = "adapter_tests.rs"]
mod tests;
