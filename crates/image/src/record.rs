//! The record of one stored image, a JSON file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{digest::Digest, oci::ImageConfig};

/// What the layers are stacked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BaseImage {
    /// Nothing: the layers are a complete file system.
    Empty,
    /// The built-in image of this machine's own programs.
    Host,
}

/// One stored image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) id: Digest,
    #[serde(rename = "ground")]
    pub(crate) base: BaseImage,
    /// Lowest first, as in OCI.
    pub(crate) layers: Vec<Digest>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) workdir: Option<PathBuf>,
    /// When it was stored, in seconds since 1970.
    pub(crate) created: u64,
    /// The image it was derived from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
}

/// The size of an unpacked layer, stored beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerInfo {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

impl Record {
    /// The record of an image with an OCI configuration, whose digest identifies it.
    pub(crate) fn from_config(name: &str, id: Digest, config: &ImageConfig) -> Self {
        Self {
            name: name.to_owned(),
            id,
            base: BaseImage::Empty,
            layers: config.diff_ids().to_vec(),
            env: config.env(),
            workdir: config.workdir(),
            created: now(),
            from: None,
        }
    }

    /// The record of an image created on this machine, identified by the digest of its content.
    pub(crate) fn local(
        name: &str,
        base: BaseImage,
        layers: Vec<Digest>,
        env: Vec<(String, String)>,
        workdir: Option<PathBuf>,
    ) -> Self {
        let id = Self::content_id(base, &layers, &env, workdir.as_deref());
        let name = name.to_owned();
        Self { name, id, base, layers, env, workdir, created: now(), from: None }
    }

    /// The digest that identifies the content of an image created on this machine.
    pub(crate) fn content_id(
        base: BaseImage,
        layers: &[Digest],
        env: &[(String, String)],
        workdir: Option<&Path>,
    ) -> Digest {
        let content = serde_json::json!({
            "ground": base, "layers": layers, "env": env, "workdir": workdir,
        });
        Digest::of(content.to_string().as_bytes())
    }
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
