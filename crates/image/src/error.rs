//! The errors of the store, as one enum over the parts that fail.

use std::{io, path::PathBuf};

use crate::{
    archive::ArchiveError, build::BuildError, digest::Digest, name::NameError, oci::OciError,
    reference::ReferenceError, registry::RegistryError, unpack::UnpackError,
};

/// An image could not be stored, found or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such image.
    #[error("there is no image `{name}`")]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The name is invalid.
    #[error("bad image name")]
    Name(#[from] NameError),
    /// The reference is invalid.
    #[error("bad image reference")]
    Reference(#[from] ReferenceError),
    /// The manifest or configuration is invalid.
    #[error("bad image manifest or configuration")]
    Oci(#[from] OciError),
    /// A layer cannot be unpacked.
    #[error("bad layer")]
    Unpack(#[from] UnpackError),
    /// A layer does not match the digest in the image's configuration.
    #[error(
        "a layer has the digest {found} instead of {expected}; it was damaged or tampered with"
    )]
    WrongLayer {
        /// The expected digest.
        expected: Digest,
        /// The digest of the content.
        found: Digest,
    },
    /// A layer of a stored image is missing.
    #[error(
        "the image `{name}` lacks the layer {layer}; remove the image and pull, import or build it again"
    )]
    LostLayer {
        /// The image.
        name: String,
        /// The layer.
        layer: Digest,
    },
    /// The archive is not an image.
    #[error("cannot import {path}")]
    Archive {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ArchiveError,
    },
    /// A directory to import is not a system.
    #[error("`{path}` does not look like a root file system: it has no program bin/sh")]
    NotARootFileSystem {
        /// The directory.
        path: PathBuf,
    },
    /// A directory to import contains the store, which would be copied into itself.
    #[error("`{path}` contains the image store, {store}")]
    ContainsStore {
        /// The directory.
        path: PathBuf,
        /// The store.
        store: PathBuf,
    },
    /// The registry did not deliver the image.
    #[error("cannot pull `{reference}`")]
    Pull {
        /// The requested reference.
        reference: String,
        /// Why.
        #[source]
        source: Box<RegistryError>,
    },
    /// The builder failed.
    #[error("cannot build `{name}`")]
    Build {
        /// The name for the image.
        name: String,
        /// Why.
        #[source]
        source: BuildError,
    },
    /// The image would have more layers than can be stacked.
    #[error("the image would have more than {limit} layers; build it again from a smaller one")]
    TooManyLayers {
        /// The most it may have.
        limit: usize,
    },
    /// A record in the store cannot be read.
    #[error("{path} is damaged; remove the image and pull, import or build it again")]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A file system operation failed.
    #[error("{what}")]
    Io {
        /// The operation, as `cannot ...`.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Whether the caller's input is at fault, rather than the machine or the network.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Unknown { .. }
            | Self::Name(_)
            | Self::Reference(_)
            | Self::Archive { .. }
            | Self::NotARootFileSystem { .. }
            | Self::ContainsStore { .. }
            | Self::TooManyLayers { .. } => true,
            Self::Pull { source, .. } => source.is_usage(),
            _ => false,
        }
    }
}
