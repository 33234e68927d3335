//! The events of an episode, by range. A file is read once, for the byte offsets of its lines and what turns used; after that only
//! the lines that a page shows are read.

mod cut;
mod index;
mod light;
mod page;
mod turns;

pub(crate) use cut::cut_text;
pub(crate) use index::{EventIndex, EventStore};
pub(crate) use page::{EventsPage, ShownEvent};
pub(crate) use turns::{Turn, TurnsPage};
