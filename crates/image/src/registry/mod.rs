//! A client of registries (OCI distribution API, version 2): manifests and blobs, nothing else.

mod auth;
mod client;
mod download;

use std::{fmt, io};

pub(crate) use client::Client;
pub(crate) use download::download;

use crate::{digest::Digest, oci::OciError};

/// Whether plain HTTP is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// HTTPS, except for a registry on this machine.
    #[default]
    Secure,
    /// Plain HTTP to any registry. Content is still checked against digests, but an attacker on the network can read
    /// it, and can answer a tag with another image.
    Insecure,
}

/// A user's name and password for a registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub username: String,
    /// The password or access token. Never printed.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Why a registry did not deliver an image.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// No connection.
    #[error(
        "cannot reach the registry {registry}; check its name, the network and the proxy settings"
    )]
    Connect {
        /// The registry's host.
        registry: String,
        /// What happened.
        #[source]
        source: lis_http::Error,
    },
    /// The connection failed repeatedly.
    #[error(
        "the connection to the registry {registry} failed {attempts} times in a row; the next pull resumes here"
    )]
    Cut {
        /// The registry's host.
        registry: String,
        /// The number of attempts.
        attempts: u32,
        /// The last failure.
        #[source]
        source: Box<RegistryError>,
    },
    /// A request failed.
    #[error("a request to {registry} failed")]
    Exchange {
        /// The registry's host.
        registry: String,
        /// What happened.
        #[source]
        source: lis_http::Error,
    },
    /// The registry requires credentials, or refuses those given.
    #[error("{registry} refused access to {what}{message}; {remedy}")]
    Unauthorized {
        /// The registry's host.
        registry: String,
        /// What was requested.
        what: String,
        /// The registry's own message.
        message: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The registry does not have it.
    #[error("{registry} has no {what}{message}; check the spelling of the image and its tag")]
    NotFound {
        /// The registry's host.
        registry: String,
        /// What was requested.
        what: String,
        /// The registry's own message.
        message: String,
    },
    /// Another error status.
    #[error("{registry} answered {status} to the request for {what}{message}")]
    Status {
        /// The registry's host.
        registry: String,
        /// The status code.
        status: u16,
        /// What was requested.
        what: String,
        /// The registry's own message.
        message: String,
    },
    /// The content does not match its digest.
    #[error("{what} has the digest {found} instead of {expected}; it was damaged or tampered with")]
    WrongDigest {
        /// What was requested.
        what: String,
        /// The expected digest.
        expected: Digest,
        /// The digest of the content.
        found: Digest,
    },
    /// An invalid answer.
    #[error("{registry} sent an invalid answer: {why}")]
    BadAnswer {
        /// The registry's host.
        registry: String,
        /// What is wrong with it.
        why: String,
    },
    /// An unusable manifest or configuration.
    #[error("its manifest or configuration is unusable")]
    Description(#[source] OciError),
    /// The download could not be written.
    #[error("cannot write the download")]
    Write(#[source] io::Error),
}

impl RegistryError {
    /// Whether the caller's input is at fault.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NotFound { .. }
                | Self::Unauthorized { .. }
                | Self::Description(OciError::Platform { .. })
        )
    }

    /// Whether the same request may succeed a moment later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Exchange { .. } => true,
            Self::Status { status, .. } => *status >= 500 || matches!(status, 408 | 429),
            _ => false,
        }
    }
}
