//! Saves networks as a directory in the Hugging Face layout, with the adapter merged. Files are synced when the function
//! returns; making the directory appear atomically is up to the caller.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tch::{TchError, Tensor};

use crate::config;
use crate::net::Network;
use crate::tensor_file::{TensorFileError, write_tensors};

/// A network or an adapter cannot be saved.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SaveError {
    #[error("{} cannot be written", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the tensors cannot be written")]
    Tensors(#[from] TensorFileError),
    #[error("{} cannot be written", path.display())]
    Gguf {
        path: PathBuf,
        #[source]
        source: gguf::WriteError,
    },
    #[error("the network has no adapter")]
    NoAdapter,
    #[error("libtorch failed")]
    Torch(#[from] TchError),
}

impl Network {
    /// Writes `config.json` and `model.safetensors` to a directory, which is created if it is missing. `transformers` and
    /// vLLM load it once a tokenizer is added.
    pub fn save(&self, directory: &Path) -> Result<(), SaveError> {
        let merged = if self.lora.is_some() { Some(self.merged()?) } else { None };
        let parameters = merged.as_ref().unwrap_or(self).parameters()?;
        let config = config::config(&self.shape, &self.origin, self.kind());
        write_pair(
            directory,
            ("config.json", Value::Object(config)),
            ("model.safetensors", &parameters),
        )
    }
}

/// Writes a configuration and the tensors it describes into a directory.
pub(crate) fn write_pair(
    directory: &Path,
    (config, value): (&str, Value),
    (file, tensors): (&str, &[(String, Tensor)]),
) -> Result<(), SaveError> {
    std::fs::create_dir_all(directory)
        .map_err(|source| SaveError::Io { path: directory.to_owned(), source })?;
    // transformers requires the format in the metadata.
    write_tensors(
        &directory.join(file),
        tensors,
        &[("format".to_owned(), "pt".to_owned())].into(),
    )?;
    let path = directory.join(config);
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(format!("{value:#}\n").as_bytes())?;
        file.sync_all()
    });
    written.map_err(|source| SaveError::Io { path, source })
}
