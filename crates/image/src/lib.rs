//! OCI images without a daemon: pulled, imported, built or committed, and kept as unpacked layers that
//! overlayfs can stack.
//!
//! Knows files and registries. It mounts nothing, runs nothing but the base image's builder, and knows no
//! sandbox.

mod archive;
mod build;
mod compress;
mod digest;
mod error;
mod limits;
mod lock;
mod name;
mod oci;
mod overlay;
mod pack;
mod pax;
mod progress;
mod prune;
mod pull;
mod record;
mod reference;
mod registry;
mod store;
mod tar_stream;
mod tree;
mod unpack;

pub use archive::ArchiveError;
pub use build::{BuildError, Recipe};
pub use digest::{Digest, ParseDigestError};
pub use error::Error;
pub use limits::Limits;
pub use lock::Lease;
pub use name::NameError;
pub use oci::{OciError, Platform};
pub use progress::{Progress, Silent, Stage};
pub use prune::Pruned;
pub use pull::PullOptions;
pub use reference::{Reference, ReferenceError};
pub use registry::{Credentials, RegistryError, Transport};
pub use store::{ImageInfo, Rootfs, Store};
pub use tar_stream::TarError;
pub use unpack::UnpackError;
