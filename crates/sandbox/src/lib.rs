//! What a sandbox is: a virtual Linux computer with limits, files, a shell and a network policy.
//!
//! This crate holds the vocabulary every runtime and every caller share. It starts nothing itself and
//! knows neither namespaces nor Docker.

pub mod archive;
mod capture;
mod error;
mod exec;
mod files;
mod kept;
mod pool;
mod protection;
mod runtime;
mod size;
mod spec;

pub use capture::{Capture, Captured, OutputCap};
pub use error::Error;
pub use exec::{
    Cause, ExecOutput, Exit, Input, Output, Process, ShellCommand, Status, Streams, TerminalSize,
};
pub use files::{CopyReport, Entry, EntryKind, Skipped};
pub use kept::Kept;
pub use pool::Pool;
pub use protection::{Layer, LayerState, Protection};
pub use runtime::{Runtime, Sandbox, SandboxInfo};
pub use size::{ByteSize, ParseSizeError};
pub use spec::{HostPattern, ImageRef, Limits, Network, Spec, SpecError};
