//! What can go wrong with a model. A reply that makes no sense is not one of these.

use std::{io, path::PathBuf, time::Duration};

/// A call to a model failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address or a header cannot be used.
    #[error("{0}")]
    Settings(String),
    /// Nobody answers there.
    #[error("cannot reach {url}; is the server running, and the address right?")]
    Unreachable {
        /// The address.
        url: String,
        /// The network's answer.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server stopped talking.
    #[error("the server said nothing for {0:?}")]
    Silence(Duration),
    /// The connection ended before the reply did.
    #[error("the reply broke off: {0}")]
    Cut(String),
    /// The server is busy or broken; it may work later.
    #[error("the server answered {status}: {message}")]
    Busy {
        /// The HTTP status.
        status: u16,
        /// Its words.
        message: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The server does not know us.
    #[error("the server refuses the key ({status}): {message}")]
    Key {
        /// The HTTP status.
        status: u16,
        /// Its words.
        message: String,
    },
    /// The server does not accept the request, and will not later either.
    #[error("the server refuses the request ({status}): {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its words.
        message: String,
    },
    /// The conversation and the tokens asked for do not fit into the model.
    #[error("the conversation does not fit into the model: {message}")]
    Overflow {
        /// The numbers in the server's words.
        numbers: crate::Overflow,
        /// Its words.
        message: String,
    },
    /// The server does not speak the protocol.
    #[error("the server's answer makes no sense: {0}")]
    Protocol(String),
    /// It failed too often.
    #[error("gave up after {attempts} attempts")]
    GaveUp {
        /// How often.
        attempts: u32,
        /// The last failure.
        #[source]
        last: Box<Error>,
    },
    /// The cache of replies cannot be used.
    #[error("cannot use the cache of replies at {path}")]
    Cache {
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// What went wrong and all its causes, on one line.
    pub fn with_causes(&self) -> String {
        crate::http::chain(self)
    }

    /// Whether asking again may help.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Silence(_)
                | Self::Cut(_)
                | Self::Busy { .. }
                | Self::Protocol(_)
        )
    }
}
