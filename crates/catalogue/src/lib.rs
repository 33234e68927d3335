//! Models by name: what is known about each file, where it comes from, and a store that downloads it once,
//! verifies it and returns its path. A model may have an adapter, whose content the program brings along.
//!
//! Start with [`Store`]; [`Catalogue`] is the list of models behind it. Knows files, the hub and package wheels. It
//! loads no model, reads no environment and knows no command line.
//!
//! ```
//! use lis_catalogue::{State, Store};
//!
//! let store = Store::open("/nonexistent/models")?;
//! let default = store.catalogue().default_model().expect("the built-in list has a default");
//! let listed = store.list()?;
//! let entry = listed.iter().find(|entry| entry.model == default).expect("listed");
//! assert_eq!(entry.state, State::Absent);
//! # Ok::<(), lis_catalogue::Error>(())
//! ```

mod adapter;
mod entry;
mod error;
mod lock;
mod pack;
mod pull;
mod store;
mod wheel;
mod wheels;

pub use adapter::{AdapterContent, AdapterFile};
pub use entry::{Adapter, Catalogue, CatalogueError, HubFile, Model, Source, Wheel};
pub use error::{Error, Failure, FetchError};
pub use hub::{Endpoint, Error as HubError, PartialError, Progress, Sha256Hex, Silent, Stage};
pub use pack::{pack_adapter, unpack_adapter};
pub use pull::{Origin, Pip, PullOptions, Pulled, SourceKind};
pub use store::{Listed, State, Store};
pub use wheel::WheelError;
pub use wheels::PackageError;
