//! Episodes of many clients: started, watched, cancelled, resumed and forked, in a directory that survives crashes.
//!
//! Start with [`Episodes`]. An episode has a directory of its own below that of the [`Store`]: its [`Record`], every event
//! before anything follows from it, its input, and at the end its [`EpisodeResult`] and the files the model left. Whether an
//! episode was interrupted follows from these files, so nothing has to be written when a process dies.
//!
//! Episodes are played by [`agent::run()`]. This crate serves nothing: see `lis_server` for HTTP.

mod earlier;
mod episodes;
mod error;
mod events;
mod files;
mod images;
mod index;
mod journal;
mod live;
mod lock;
mod metered;
mod options;
mod play;
mod record;
mod request;
mod store;

pub use episodes::{Episode, Episodes};
pub use error::Error;
pub use events::{EventReader, NumberedEvent, Ready};
pub use files::FileEntry;
pub use live::OwnedDelta;
pub use lock::DirectoryLock;
pub use options::{EpisodeOptions, ServedModel};
pub use record::{EpisodeInfo, EpisodeResult, Page, Parent, Record, State, Summary};
pub use request::{
    EpisodeRequest, FilesFrom, Fork, InputContent, InputFile, Keep, Meter, Resume, Task,
};
pub use store::Store;
