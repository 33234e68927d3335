//! The interface of sandboxes: isolated Linux systems with resource limits, files, a shell and a network policy.
//!
//! Start reading at [`Runtime`] and [`Sandbox`], the traits that runtimes implement, and [`Spec`], the description of a
//! sandbox. This crate starts nothing itself and knows neither namespaces nor Docker; `lis-sandbox-native` and
//! `lis-sandbox-docker` implement the traits.
//!
//! A failing command, a timeout or a limit that was reached is data: [`ExecOutput`] and [`Cause`]. An [`Error`] means that
//! the request or the infrastructure is at fault.
//!
//! ```
//! use lis_sandbox::{Error, Limits, Runtime, Sandbox, ShellCommand, Spec};
//!
//! let limits = Limits { memory: Some("512M".parse()?), ..Limits::default() };
//! let spec = Spec { limits, network: "allow=example.com".parse()?, ..Spec::default() };
//! spec.validate()?;
//!
//! /// Works on every runtime.
//! async fn version(runtime: &impl Runtime, spec: &Spec) -> Result<String, Error> {
//!     let sandbox = runtime.create(spec).await?;
//!     let output = sandbox.shell(&ShellCommand::new("uname -r")).await?;
//!     sandbox.destroy().await?;
//!     Ok(output.stdout.text().into_owned())
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod archive;
mod capture;
mod capture_buffer;
mod disk;
mod error;
mod exec;
mod files;
mod partial;
mod pool;
mod progress;
mod protection;
mod public_name;
mod refused;
mod remote;
mod runtime;
mod size;
mod spec;
mod stall_guard;
mod written;

pub use capture::{Capture, Captured, OutputCap};
pub use capture_buffer::CaptureBuffer;
pub use disk::{DiskQuota, ParseDiskQuotaError};
pub use error::{Error, Feature, RequestError, UnknownImage};
pub use exec::{
    Cause, ExecOutput, Exit, Input, Output, Process, ShellCommand, Status, Streams, TerminalSize,
};
pub use files::{CopyReport, Entry, EntryKind, Skipped, Usage, lossy_path, lossy_paths};
pub use pool::Pool;
pub use progress::{CancelOnDrop, Cancelled, LOOK_INTERVAL, Progress, patience};
pub use protection::{Layer, LayerReport, LayerState, Protection};
pub use public_name::is_public_name;
pub use refused::{RefusalReason, RefusedConnections};
pub use remote::{
    Control, FileEvent, FileEventKind, FileInfo, FileOperation, Identity, Paused, RemoteRuntime,
    RemoteSandbox, STORED_ATTRIBUTES, WatchDepth,
};
pub use runtime::{Runtime, Sandbox, SandboxInfo};
pub use size::{ByteSize, ParseSizeError};
pub use spec::{HostPattern, ImageRef, Limits, Network, STALL_TIMEOUT, Spec, SpecError};
pub use stall_guard::StallGuard;
pub use written::{
    MAX_WRITTEN, MAX_WRITTEN_CONTENT, MAX_WRITTEN_CONTENTS, NOT_REPORTED, Written, WrittenFile,
    WrittenState,
};
