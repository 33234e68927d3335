//! Connections that a sandbox's network policy refused.

use serde::{Deserialize, Serialize};

/// Refused connections to one host and port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedConnections {
    /// The host as a program in the sandbox wrote it: untrusted text.
    pub host: String,
    /// The port; 0 if only the name was asked for, which leads nowhere else.
    pub port: u16,
    /// Why they were refused.
    pub reason: RefusalReason,
    /// How many.
    pub count: u64,
}

/// Why the network policy refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// The host, or this port of it, is not among the allowed ones.
    NotAllowed,
    /// The name is allowed, but leads to this machine or its private network, which has to be allowed with its port or
    /// by address.
    PrivateAddress,
    /// The address is not a public one, and only those are allowed.
    NotPublic,
}
