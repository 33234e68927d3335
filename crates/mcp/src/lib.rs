//! A sandbox as tools of the Model Context Protocol (MCP), over any transport.
//!
//! A [`Session`] is one client's tools and one sandbox: created at the first tool call, destroyed with the session. The
//! tools are those of [`agent::tools`], with their own descriptions, and three that transfer files (`files.rs`). A session
//! is served over a pair of byte streams ([`serve_lines`]), or message by message ([`Exchange`]), which an HTTP server
//! does.
//!
//! The crate `rmcp` has the types of the protocol, negotiates its version and answers requests. The transports are ours
//! (`lines.rs`, `exchange.rs`): every message, every queue and the number of requests under way are bounded.
//!
//! Everything a client sends is untrusted. Knows no runtime, no HTTP and no settings.

mod exchange;
mod files;
mod handler;
mod lines;
mod parse;
mod pending;
mod session;
mod source;
mod tools;

pub use exchange::{Exchange, Refusal};
pub use handler::{VERSIONS, is_supported};
pub use lines::{ServeError, serve_lines};
pub use parse::{Incoming, MAX_MESSAGE, Malformed, parse};
pub use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
pub use session::Session;
pub use source::{CreateError, SandboxSource};
