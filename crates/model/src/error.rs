//! Why a call to a model fails. A response that makes no sense is not an error: it is a response.

use std::{io, path::PathBuf, time::Duration};

use trajectory::Fault;

/// The start of the message of [`Error::NoKey`], by which it is found in the cause of an episode's end.
pub const NO_KEY: &str = "the server requires a key, and none was sent";

/// A call to a model failed.
///
/// The texts contain no secrets: messages of servers and HTTP libraries are redacted first.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The base URL, a header or a setting cannot be used.
    #[error("{0}")]
    Settings(String),
    /// No connection to the server.
    #[error("cannot reach {url}; is the server running, and the address right?")]
    Unreachable {
        /// The address.
        url: String,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server sent nothing for this long.
    #[error("the server sent nothing for {0:?}")]
    Silence(Duration),
    /// The connection ended before the response did.
    #[error("the response broke off: {0}")]
    Cut(String),
    /// The server is overloaded or broken; it may recover.
    #[error("the server answered {status}: {message}")]
    Busy {
        /// The HTTP status.
        status: u16,
        /// The server's message.
        message: String,
        /// The wait requested by the server.
        retry_after: Option<Duration>,
    },
    /// The server does not accept the API key.
    #[error("the server refuses the key ({status}): {message}")]
    Key {
        /// The HTTP status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// The server requires an API key, and the request had none.
    #[error("{NO_KEY} ({status}): {message}")]
    NoKey {
        /// The HTTP status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// The server does not accept the request. Repeating it is useless.
    #[error("the server refuses the request ({status}): {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// The conversation cannot be sent because of what the model wrote before, such as a control token its own
    /// chat template rejects. An episode ends as [`NoToolCalls`](trajectory::Outcome::NoToolCalls) on it.
    #[error("the conversation cannot be sent because of what the model wrote: {0}")]
    InvalidHistory(String),
    /// The conversation and the requested output tokens do not fit into the model's context.
    #[error("the conversation does not fit into the model: {message}")]
    Overflow {
        /// The numbers, as far as the server gave them.
        numbers: crate::Overflow,
        /// The server's message.
        message: String,
    },
    /// The server does not follow the protocol.
    #[error("unexpected answer from the server: {0}")]
    Protocol(String),
    /// Every attempt failed.
    #[error("gave up after {attempts} attempts")]
    GaveUp {
        /// How many attempts.
        attempts: u32,
        /// The last failure.
        #[source]
        last: Box<Error>,
    },
    /// The response cache cannot be used.
    #[error("cannot use the response cache at {path}")]
    Cache {
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// The error and all its causes, on one line.
    pub fn chain(&self) -> String {
        trajectory::error_chain(self)
    }

    /// Whether a new attempt may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Silence(_)
                | Self::Cut(_)
                | Self::Busy { .. }
                | Self::Protocol(_)
        )
    }

    /// What is at fault when an episode ends because of this error.
    pub fn fault(&self) -> Fault {
        match self {
            Self::GaveUp { last, .. } => last.fault(),
            Self::Cache { .. } => Fault::Storage,
            error if error.is_transient() => Fault::ModelServer,
            _ => Fault::ModelRequest,
        }
    }
}
