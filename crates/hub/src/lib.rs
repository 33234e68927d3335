//! Files of the Hugging Face hub: what a repository contains, and downloads that resume, stay within bounds and are
//! verified before they appear.
//!
//! Start with [`Hub`]. [`Hub::download_to`] downloads one file in one call; [`Hub::download`] completes a
//! [`PartialFile`] that the caller keeps between processes. Reads no environment: the endpoint is a value. Knows nothing
//! of models or tasks.
//!
//! ```no_run
//! use lis_hub::{Endpoint, Hub, Repo, Silent, Size};
//!
//! # async fn example() -> Result<(), lis_hub::Error> {
//! let hub = Hub::new(&Endpoint::default())?;
//! let repo = Repo::dataset("openai/gsm8k");
//! let listing = hub.list(&repo, "main").await?;
//! for file in listing.files.iter().filter(|file| file.path.ends_with(".parquet")) {
//!     let wanted = repo.file(&listing.revision, &file.path);
//!     let to = std::env::temp_dir().join("rows.parquet");
//!     hub.download_to(&wanted, Size::AtMost(1 << 30), file.sha256.as_ref(), &to, &Silent).await?;
//! }
//! # Ok(())
//! # }
//! ```

mod client;
mod download;
mod error;
mod partial;
mod progress;
mod sha256;

pub use client::{Endpoint, Hub, ListedFile, Listing, Repo, RepoFile, RepoKind};
pub use error::Error;
pub use partial::{Checkpoint, PartialError, PartialFile, Size, hash_file};
pub use progress::{Progress, Silent, Stage};
pub use sha256::{InvalidSha256, Sha256Hex};
