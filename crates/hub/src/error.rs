//! Why the hub did not deliver a listing or a file.

use lis_http::StatusCode;

use crate::partial::PartialError;

/// A request to the hub failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The endpoint cannot be used.
    #[error("`{base}` is not an https address")]
    Address {
        /// The address, cut to 200 characters.
        base: String,
    },
    /// No connection.
    #[error("cannot reach {host}; check the network and the proxy settings")]
    Connect {
        /// The hub's host.
        host: String,
        /// What happened.
        #[source]
        source: lis_http::Error,
    },
    /// The connection broke within a response.
    #[error("{host} closed the connection before the end")]
    Cut {
        /// The hub's host.
        host: String,
        /// What happened; none where the response ended early without an error.
        #[source]
        source: Option<lis_http::Error>,
    },
    /// The hub refused the request.
    #[error("{host} answered {status} to the request for {what}")]
    Status {
        /// The hub's host.
        host: String,
        /// Its answer.
        status: StatusCode,
        /// The file or repository.
        what: String,
    },
    /// The hub's file has another size.
    #[error("{host} offers {offered} bytes, the file has {size}")]
    OtherSize {
        /// The hub's host.
        host: String,
        /// Bytes it would send.
        offered: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// A listing exceeds the limit.
    #[error("{host} sent a listing of {repo} longer than {limit} bytes")]
    ListingTooLong {
        /// The hub's host.
        host: String,
        /// The repository.
        repo: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A listing cannot be parsed.
    #[error("{host} sent a malformed listing of {repo}")]
    Listing {
        /// The hub's host.
        host: String,
        /// The repository.
        repo: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A listing without the commit it is for.
    #[error("{host} sent a listing of {repo} that names no commit")]
    NoCommit {
        /// The hub's host.
        host: String,
        /// The repository.
        repo: String,
    },
    /// The file cannot be written, or its content is wrong.
    #[error(transparent)]
    Partial(#[from] PartialError),
}

impl Error {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Cut { .. } => true,
            Self::Status { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            _ => false,
        }
    }
}
