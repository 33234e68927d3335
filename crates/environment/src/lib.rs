//! Tasks as environments for reinforcement learning: sessions in which the caller is the model.
//!
//! Start reading at [`Environments`]: [`Environments::reset`] starts a session at a problem of a task, [`Environments::step`]
//! sends a response of the policy and returns what the model sees next, [`Environments::score`] grades the answer and
//! [`Environments::close`] ends the session. A session is one attempt of the crate `attempt`, played on a task of its own by
//! a model that is fed from outside (`driver.rs`): there is one loop, one set of tools and one way to grade.
//!
//! Each session has a lease (`lease.rs`). When it expires, the sandbox is removed and the session is gone. Sandboxes are
//! taken by permits, so their number is bounded, and so is the number of sessions.
//!
//! Knows no protocol and no runtime.

mod driver;
mod environments;
mod error;
mod lease;
mod served;
mod session;
mod state;

pub use driver::Turn;
pub use environments::{Environments, Options, Reset, RowChoice};
pub use error::{Error, GoneReason};
pub use model::{Given, GivenCall, ToolFormat, ToolSpec};
pub use served::{Served, ServedError};
pub use state::{Failure, Phase, RowId, Score, Snapshot};
