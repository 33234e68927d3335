//! The OCI and Docker documents that this crate reads: manifest, index, configuration.
//!
//! Only fields that matter here are read; unknown ones are ignored, as the specification requires. Digests are checked
//! elsewhere.

use std::{fmt, path::PathBuf, str::FromStr};

use serde::Deserialize;

use crate::{digest::Digest, limits::Limits};

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// Not JSON, or a field of the wrong type.
    #[error("the image {what} is malformed")]
    Json {
        /// The document.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// An unsupported media type.
    #[error("the image has the media type `{0}`, which is not supported")]
    MediaType(String),
    /// No image for the platform.
    #[error("the image is not available for {wanted}; it offers {offered}")]
    Platform {
        /// The requested platform.
        wanted: Box<Platform>,
        /// The platforms of the image.
        offered: String,
    },
    /// Counts or sizes that contradict each other or exceed the limits.
    #[error("{0}")]
    Shape(String),
}

/// An operating system and a processor, as OCI names them: `linux/amd64`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// The operating system.
    pub os: String,
    /// The processor.
    pub architecture: String,
    /// The variant of the processor, such as `v7`.
    #[serde(default)]
    pub variant: Option<String>,
}

impl Platform {
    /// Linux on this machine's processor.
    pub fn here() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" => "ppc64le",
            "loongarch64" => "loong64",
            other => other,
        };
        Self { os: "linux".into(), architecture: architecture.into(), variant: None }
    }

    /// Whether an image for `offer` can be used where this platform is requested.
    fn accepts(&self, offer: &Self) -> bool {
        let variant_fits = match (&self.variant, &offer.variant) {
            (None, None | Some(_)) | (Some(_), None) => true,
            (Some(wanted), Some(offered)) => wanted == offered,
        };
        self.os == offer.os && self.architecture == offer.architecture && variant_fits
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

impl FromStr for Platform {
    type Err = OciError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant.to_owned())),
            _ => {
                return Err(OciError::Shape(format!(
                    "`{text}` is not a platform; write it as linux/arm64"
                )));
            }
        };
        Ok(Self { os: os.into(), architecture: architecture.into(), variant })
    }
}

/// A reference to a blob by digest and size.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

impl Descriptor {
    /// The name of an image in an OCI layout.
    pub(crate) fn ref_name(&self) -> Option<&str> {
        self.annotations.as_ref()?.get("org.opencontainers.image.ref.name").map(String::as_str)
    }
}

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const INDEXES: [&str; 2] = [OCI_INDEX, DOCKER_INDEX];

/// The supported media types, for the `Accept` header.
pub(crate) const MEDIA_TYPES: [&str; 4] = [OCI_INDEX, DOCKER_INDEX, OCI_MANIFEST, DOCKER_MANIFEST];

/// A registry's answer to a request for an image.
#[derive(Debug)]
pub(crate) enum Document {
    Index(Index),
    Manifest(Manifest),
}

/// Several images under one name, one for each platform.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Index {
    pub(crate) manifests: Vec<Descriptor>,
}

/// One image: its configuration and its layers, lowest first.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

impl Document {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, OciError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Probe {
            #[serde(default)]
            media_type: Option<String>,
            #[serde(default)]
            schema_version: Option<u64>,
            #[serde(default)]
            manifests: Option<serde::de::IgnoredAny>,
        }
        let json = |source| OciError::Json { what: "manifest", source };
        let probe: Probe = serde_json::from_slice(bytes).map_err(json)?;
        let media_type = probe.media_type.unwrap_or_default();
        if probe.schema_version == Some(1) {
            return Err(OciError::MediaType("Docker schema 1".into()));
        }
        if INDEXES.contains(&media_type.as_str())
            || (media_type.is_empty() && probe.manifests.is_some())
        {
            return Ok(Self::Index(serde_json::from_slice(bytes).map_err(json)?));
        }
        if media_type.is_empty() || MEDIA_TYPES.contains(&media_type.as_str()) {
            return Ok(Self::Manifest(serde_json::from_slice(bytes).map_err(json)?));
        }
        Err(OciError::MediaType(media_type.chars().take(100).collect()))
    }
}

impl Index {
    /// The entry for a platform; an entry without a platform fits all.
    pub(crate) fn choose(&self, wanted: &Platform) -> Result<&Descriptor, OciError> {
        let fits = |entry: &&Descriptor| {
            entry.platform.as_ref().is_some_and(|offer| wanted.accepts(offer))
        };
        let unnamed = |entry: &&Descriptor| entry.platform.is_none();
        let chosen =
            self.manifests.iter().find(fits).or_else(|| self.manifests.iter().find(unnamed));
        chosen.ok_or_else(|| {
            let offered: Vec<_> = self
                .manifests
                .iter()
                .filter_map(|entry| entry.platform.as_ref())
                .take(20)
                .map(ToString::to_string)
                .collect();
            let offered = if offered.is_empty() { "nothing".into() } else { offered.join(", ") };
            OciError::Platform { wanted: Box::new(wanted.clone()), offered }
        })
    }
}

impl Manifest {
    /// Refuses what cannot be stored, before anything large is downloaded.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), OciError> {
        if self.layers.len() > limits.layers {
            let count = self.layers.len();
            return Err(OciError::Shape(format!(
                "{count} layers are more than the limit of {}",
                limits.layers
            )));
        }
        let total = self.layers.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.size));
        if total > limits.download_bytes {
            let limit = limits.download_bytes;
            return Err(OciError::Shape(format!(
                "the layers' {total} bytes are more than the limit of {limit}"
            )));
        }
        for layer in &self.layers {
            // Compression is recognised by content; but some types of layer are not archives.
            let kind = layer.media_type.as_str();
            let known =
                kind.is_empty() || kind.contains(".layer.") || kind.contains(".rootfs.diff.tar");
            if !known || kind.contains("encrypted") {
                return Err(OciError::MediaType(kind.chars().take(100).collect()));
            }
        }
        Ok(())
    }
}

/// The configuration of an image.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ImageConfig {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    config: Option<Process>,
    rootfs: RootfsDescription,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Process {
    #[serde(default, rename = "Env")]
    env: Option<Vec<String>>,
    #[serde(default, rename = "WorkingDir")]
    working_dir: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct RootfsDescription {
    diff_ids: Vec<Digest>,
}

impl ImageConfig {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, OciError> {
        serde_json::from_slice(bytes)
            .map_err(|source| OciError::Json { what: "configuration", source })
    }

    /// Checks that the image is complete and for the platform.
    pub(crate) fn check(&self, layers: usize, wanted: &Platform) -> Result<(), OciError> {
        if self.diff_ids().len() != layers {
            let named = self.diff_ids().len();
            return Err(OciError::Shape(format!(
                "the configuration names {named} layers, the manifest {layers}"
            )));
        }
        let offer = Platform {
            os: self.os.clone(),
            architecture: self.architecture.clone(),
            variant: None,
        };
        let unspecified = self.os.is_empty() && self.architecture.is_empty();
        if !unspecified && !wanted.accepts(&offer) {
            return Err(OciError::Platform {
                wanted: Box::new(wanted.clone()),
                offered: offer.to_string(),
            });
        }
        Ok(())
    }

    /// The digests of the uncompressed layers, lowest first.
    pub(crate) fn diff_ids(&self) -> &[Digest] {
        &self.rootfs.diff_ids
    }

    /// The environment variables; invalid ones are dropped.
    pub(crate) fn env(&self) -> Vec<(String, String)> {
        let list =
            self.config.as_ref().and_then(|config| config.env.as_deref()).unwrap_or_default();
        let pair = |text: &String| {
            let (name, value) = text.split_once('=')?;
            (!name.is_empty() && !text.contains('\0')).then(|| (name.to_owned(), value.to_owned()))
        };
        list.iter().filter_map(pair).collect()
    }

    /// The working directory, if it is an absolute path.
    pub(crate) fn workdir(&self) -> Option<PathBuf> {
        let text = self.config.as_ref()?.working_dir.as_deref()?;
        (text.starts_with('/') && !text.contains('\0')).then(|| PathBuf::from(text))
    }
}

#[cfg(test)]
#[path = "oci_tests.rs"]
mod tests;
