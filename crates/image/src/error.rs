//! What can go wrong with an image, as one enum over the parts that fail.

use std::{io, path::PathBuf};

use crate::{
    archive::ArchiveError, build::BuildError, digest::Digest, name::NameError, oci::OciError,
    reference::ReferenceError, registry::RegistryError, unpack::UnpackError,
};

/// An image could not be stored, found or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such image.
    #[error("there is no image `{name}`; pull, import or build it first")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The name cannot be one.
    #[error("bad image name")]
    Name(#[from] NameError),
    /// The reference cannot be one.
    #[error("bad image reference")]
    Reference(#[from] ReferenceError),
    /// The image description makes no sense.
    #[error("bad image description")]
    Oci(#[from] OciError),
    /// A layer cannot be unpacked.
    #[error("bad layer")]
    Unpack(#[from] UnpackError),
    /// A layer is not what its description promised.
    #[error("a layer should be {expected} and is {found}; it was damaged or tampered with")]
    WrongLayer {
        /// The digest the image promised.
        expected: Digest,
        /// The digest of what came.
        found: Digest,
    },
    /// A layer of a stored image is not there.
    #[error("the image `{name}` lacks the layer {layer}; remove it and get it again")]
    LostLayer {
        /// The image.
        name: String,
        /// The layer.
        layer: Digest,
    },
    /// The archive is no image.
    #[error("cannot import {path}")]
    Archive {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ArchiveError,
    },
    /// The registry did not give the image.
    #[error("cannot pull `{reference}`")]
    Pull {
        /// What was asked for.
        reference: String,
        /// Why it did not come.
        #[source]
        source: Box<RegistryError>,
    },
    /// The builder failed.
    #[error("cannot build `{name}`")]
    Build {
        /// The image that would have been.
        name: String,
        /// Why it is not.
        #[source]
        source: BuildError,
    },
    /// A description in the store cannot be read.
    #[error("{path} is damaged; remove the image and get it again")]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The file system said no.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's answer.
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
            Self::Unknown { .. } | Self::Name(_) | Self::Reference(_) | Self::Archive { .. } => {
                true
            }
            Self::Pull { source, .. } => source.is_usage(),
            _ => false,
        }
    }
}
