//! Sandboxes over HTTP, for clients that speak E2B's protocol.
//!
//! One port serves two kinds of request. Requests of the control plane create, list and end sandboxes (`control.rs`).
//! Requests of the data plane concern one sandbox, which they name in a header or in the host name: programs
//! (`process.rs`), files (`filesystem.rs`, `transfer.rs`) and ports (`ports.rs`). `app.rs` tells them apart.
//!
//! Everything a client sends is untrusted, and so is everything a sandbox answers.

mod answers;
mod app;
mod audit;
mod bounded_json;
mod chat;
mod chat_openapi;
mod connect;
mod control;
mod control_observe;
mod control_openapi;
mod control_types;
mod deadline;
mod environments;
mod environments_openapi;
mod episodes;
mod episodes_openapi;
mod error;
mod filesystem;
mod form;
mod gzip;
mod idempotency;
mod input;
mod live;
mod mcp;
mod mcp_openapi;
mod memory;
mod meter;
mod metrics;
mod network;
mod observe;
mod openapi;
mod operation;
mod options;
mod output_log;
mod page;
mod places;
mod ports;
mod process;
mod process_types;
mod quota;
mod refusal;
mod registry;
mod running;
mod samples;
mod sandbox_ids;
mod sandbox_log;
mod sandbox_openapi;
mod serve;
mod signature;
mod snapshots;
mod storage;
mod tokens;
mod transfer;
mod tunnel;
mod users;

pub use self::mcp::McpOptions;
pub use chat::{ChatOptions, FileLimits, FileStore, Gateway, TokenRequest};
pub use environments::EnvironmentOptions;
pub use http_server::{KeyHash, Tls, TlsError};
pub use operation::{DataDirectory, OperationOptions};
pub use options::ServeOptions;
pub use page::PageRoutes;
pub use quota::{EachSandbox, OverQuota, Quotas};
pub use serve::serve;
pub use tokens::{Caller, DEFAULT_TOKEN, Token, TokenError, Tokens};
