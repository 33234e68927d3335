//! Adapters of models as files: copies of what the program contains, beside the model, named by their hash.
//!
//! `DIR/NAME/adapter-SHA256.gguf` is a copy. It is hashed before every use, which takes milliseconds; a wrong one is
//! replaced. Copies appear whole or not at all, and all processes write the same bytes, so no lock is needed. A copy of
//! an earlier version of the program stays until the model is removed: a resumed run may need it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use hub::Sha256Hex;

use crate::{
    entry::{Adapter, Model},
    error::Error,
    pack::unpack_adapter,
    store::{Store, is_missing},
};

/// The name of an adapter and the content of its file as [`crate::pack_adapter`] packs it.
pub type AdapterContent = (&'static str, &'static [u8]);

/// After this time a temporary file of a killed process is removed.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);

/// The file of an adapter. It exists as long as this value: where the store cannot be written, it is a temporary file.
#[derive(Debug)]
pub struct AdapterFile {
    path: PathBuf,
    temporary: Option<tempfile::TempPath>,
}

impl AdapterFile {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is removed when this value is dropped.
    pub fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }
}

impl Store {
    /// The adapter of a model with this hash: the stored copy if it is intact, else a new one. Blocks.
    pub fn adapter(&self, name: &str, sha256: &Sha256Hex) -> Result<AdapterFile, Error> {
        let model = self.model(name)?;
        let path = self.adapter_copy(model, sha256);
        if is_intact(&path, sha256) {
            return Ok(AdapterFile { path, temporary: None });
        }
        let content = self.adapter_content(model, sha256)?;
        match store(&path, &content) {
            Ok(()) => Ok(AdapterFile { path, temporary: None }),
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "the adapter is not stored");
                temporary(&content).map_err(|source| Error::Io {
                    what: format!(
                        "cannot write the adapter of {name}, neither to {} ({error}) nor to a temporary file",
                        path.display()
                    ),
                    source,
                })
            }
        }
    }

    fn adapter_copy(&self, model: &Model, sha256: &Sha256Hex) -> PathBuf {
        self.model_dir(model).join(format!("adapter-{sha256}.gguf"))
    }

    /// The content that the program has of an adapter.
    fn adapter_content(&self, model: &Model, sha256: &Sha256Hex) -> Result<Vec<u8>, Error> {
        let listed = model.adapter.as_ref().filter(|adapter| adapter.sha256 == *sha256);
        let content = listed.and_then(|listed| {
            let (_, packed) = self.adapters.iter().find(|(name, _)| *name == listed.name)?;
            Some((listed, packed))
        });
        let Some((Adapter { name, size, .. }, packed)) = content else {
            return Err(Error::NoAdapter { name: model.name.clone(), sha256: sha256.clone() });
        };
        let content = unpack_adapter(packed, *size)
            .map_err(Error::io(format!("cannot unpack the adapter {name} of this program")))?;
        let found = Sha256Hex::of_bytes(&content);
        match found == *sha256 {
            true => Ok(content),
            false => {
                Err(Error::WrongAdapter { name: name.clone(), expected: sha256.clone(), found })
            }
        }
    }
}

/// Whether a copy is there and has the right content.
fn is_intact(path: &Path, sha256: &Sha256Hex) -> bool {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return false;
    }
    match Sha256Hex::of_file(path) {
        Ok(found) if found == *sha256 => true,
        Ok(_) => {
            tracing::warn!(path = %path.display(), "the stored adapter is damaged and is replaced");
            false
        }
        Err(error) => {
            if !is_missing(&error) {
                tracing::debug!(path = %path.display(), %error, "the stored adapter cannot be read");
            }
            false
        }
    }
}

fn store(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        atomic_file::remove_leftovers(dir, LEFTOVER_AGE);
    }
    atomic_file::write_durable(path, content)
}

fn temporary(content: &[u8]) -> io::Result<AdapterFile> {
    let file = tempfile::Builder::new().prefix("adapter-").suffix(".gguf").tempfile()?;
    fs::write(file.path(), content)?;
    let temporary = file.into_temp_path();
    Ok(AdapterFile { path: temporary.to_path_buf(), temporary: Some(temporary) })
}
