//! Runs, attempts and episodes for a page in the browser: found below a directory, indexed, compared and exported, and served as JSON
//! together with the page itself.
//!
//! [`Library`] finds and reads; [`routes`] is its face over HTTP, and [`app`] the same behind a token, for one user of this machine.
//! Nothing that is read is written to or trusted: no link is followed, work and sizes are bounded, and what models wrote stays inert.
//!
//! ```
//! use lis_viewer::{Library, RunQuery, Scope};
//!
//! let dir = tempfile::tempdir()?;
//! let library = Library::open(vec![dir.path().to_owned()]);
//! assert_eq!(library.runs(&RunQuery::default(), &Scope::default()).total, 0);
//! # Ok::<(), std::io::Error>(())
//! ```

mod assets;
mod changes;
mod compare;
mod detail;
mod discover;
mod error;
mod events;
mod export;
mod files;
mod formats;
mod http;
mod import;
mod library;
mod locks;
mod options;
mod row;
mod table;
mod text;

pub use error::{Code, ViewError};
pub use http::{Access, app, routes};
pub use library::{Library, RunQuery, RunsPage, Scope};
pub use options::{Abilities, CommandLine, PageMode, PageOptions};
pub use row::{
    AttemptCount, AttemptResult, AttemptRow, Facets, Format, Kind, RunRow, State, StepCount,
    TokenCount,
};
