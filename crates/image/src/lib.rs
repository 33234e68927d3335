//! OCI images without a daemon: pulled, imported, built or committed, and stored as unpacked layers that overlayfs can
//! stack.
//!
//! Start with [`Store`] and its methods `pull`, `import_archive`, `build`, `commit` and `rootfs`. Knows files and
//! registries. It mounts nothing, runs no program but the base image's builder, and knows no sandbox.
//!
//! ```
//! use lis_image::{Error, Store};
//!
//! let dir = tempfile::tempdir().expect("a directory");
//! let store = Store::open(dir.path())?;
//! assert!(store.list()?.is_empty());
//! assert!(matches!(store.rootfs("python:3.12"), Err(Error::Unknown { .. })));
//! # Ok::<(), Error>(())
//! ```

mod archive;
mod build;
mod cache;
mod compress;
mod delete;
mod digest;
mod draft;
mod error;
mod limits;
mod local;
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
mod reserve;
mod store;
mod tar_stream;
mod tree;
mod unpack;

pub use archive::ArchiveError;
pub use build::{BuildError, Recipe, RecipeState};
pub use digest::{Digest, ParseDigestError};
pub use draft::{Cache, Draft, Saved, StepLayer};
pub use error::Error;
pub use limits::Limits;
pub use lock::Lease;
pub use name::{NameError, check_name};
pub use oci::{OciError, Platform};
pub use pack::DirCheck;
pub use progress::{Progress, Silent, Stage};
pub use prune::{Pruned, Removed};
pub use pull::PullOptions;
pub use reference::{Reference, ReferenceError};
pub use registry::{Credentials, RegistryError, Transport};
pub use store::{ImageInfo, Rootfs, Store};
pub use tar_stream::TarError;
pub use unpack::UnpackError;
