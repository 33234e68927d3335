//! The description of one stored image, as a JSON file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{digest::Digest, oci::ImageConfig};

/// What the layers lie upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ground {
    /// Nothing: the layers are a whole file system.
    Empty,
    /// The built-in image made of this machine's own programs.
    Host,
}

/// One stored image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) id: Digest,
    pub(crate) ground: Ground,
    /// Lowest first, as in OCI.
    pub(crate) layers: Vec<Digest>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) workdir: Option<PathBuf>,
    /// When it was added, in seconds since 1970.
    pub(crate) created: u64,
}

/// What an unpacked layer amounts to; kept beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerInfo {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

impl Record {
    /// Describes an image that came with an OCI configuration, whose digest names it.
    pub(crate) fn from_config(name: &str, id: Digest, config: &ImageConfig) -> Self {
        Self {
            name: name.to_owned(),
            id,
            ground: Ground::Empty,
            layers: config.diff_ids().to_vec(),
            env: config.env(),
            workdir: config.workdir(),
            created: now(),
        }
    }

    /// Describes an image made here; its identity is the digest of its content.
    pub(crate) fn made_here(
        name: &str,
        ground: Ground,
        layers: Vec<Digest>,
        env: Vec<(String, String)>,
        workdir: Option<PathBuf>,
    ) -> Self {
        let content = serde_json::json!({
            "ground": ground, "layers": layers, "env": env, "workdir": workdir,
        });
        let id = Digest::of(content.to_string().as_bytes());
        Self { name: name.to_owned(), id, ground, layers, env, workdir, created: now() }
    }
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
