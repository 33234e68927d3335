//! Named sandboxes that outlast the command that created them.
//!
//! A sandbox never outlives the process that owns it. For sandboxes that last, that process is the supervisor: one per
//! user and state directory, started with the first sandbox, gone after the last. Start reading at [`Supervisor`], the
//! client, and [`serve`], the supervisor's loop, which is generic over [`sandbox::Runtime`]. Systems other than
//! Linux have names of sandboxes and nothing else.
//!
//! A client opens one connection for each operation and closes it to cancel the operation. The connection carries frames
//! of bounded size (`frame.rs`): messages (`message.rs`) and the bytes of standard streams.
//!
//! ```no_run
//! use lis_supervisor::{Launcher, Supervisor};
//! use sandbox::{Process, Spec, Streams};
//!
//! # async fn example() -> Result<(), lis_supervisor::Error> {
//! // A program that claims the directory and serves, in the background.
//! let launcher = Launcher::new("/usr/local/bin/my-supervisor");
//! let found = Supervisor::connect_or_start("/var/lib/my-sandboxes".as_ref(), &launcher).await?;
//! let name = "box".parse()?;
//! found.supervisor.create(&name, &Spec::default(), None).await?;
//! let process = Process::new(["touch", "/tmp/still-here-tomorrow"]);
//! found.supervisor.exec(&name, &process, Streams::discard()).await?;
//! # Ok(())
//! # }
//! ```

#[cfg(target_os = "linux")]
mod chunks;
#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod directory;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod exec_client;
#[cfg(target_os = "linux")]
mod frame;
#[cfg(target_os = "linux")]
mod log;
#[cfg(target_os = "linux")]
mod message;
mod name;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod start;

pub use name::{Name, NameError};

#[cfg(target_os = "linux")]
pub use {
    client::{Connected, Created, Supervisor, SupervisorInfo},
    directory::{Claim, Lost},
    error::Error,
    message::{Exited, Info, State},
    server::{Options, serve},
    start::{Launcher, announce},
};
