//! A client for registries of the OCI distribution interface, version 2: documents and blobs, nothing else.

mod auth;
mod client;
mod download;

use std::{fmt, io};

pub(crate) use client::Client;
pub(crate) use download::download;

use crate::{digest::Digest, oci::OciError};

/// Whether a registry may be spoken to without encryption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Encrypted, except for a registry on this machine.
    #[default]
    Secure,
    /// Plain HTTP to whatever registry is named. Content is still checked against digests, but whoever sits
    /// between can see it, and can answer a tag with another image.
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

/// Why a registry did not give what was asked for.
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
        source: reqwest::Error,
    },
    /// The connection broke, again and again.
    #[error(
        "the registry {registry} broke off {attempts} times in a row; the same command goes on from here"
    )]
    Cut {
        /// The registry's host.
        registry: String,
        /// How often it was tried.
        attempts: u32,
        /// What happened last.
        #[source]
        source: Box<RegistryError>,
    },
    /// An exchange failed.
    #[error("the exchange with {registry} failed")]
    Exchange {
        /// The registry's host.
        registry: String,
        /// What happened.
        #[source]
        source: reqwest::Error,
    },
    /// The registry wants to know who asks, or does not like who does.
    #[error("{registry} refused access to {what}{said}; {remedy}")]
    Unauthorized {
        /// The registry's host.
        registry: String,
        /// What was asked for.
        what: String,
        /// The registry's own words.
        said: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The registry has no such thing.
    #[error("{registry} has no {what}{said}; check the spelling of the image and its tag")]
    NotFound {
        /// The registry's host.
        registry: String,
        /// What was asked for.
        what: String,
        /// The registry's own words.
        said: String,
    },
    /// The registry answered with something else than expected.
    #[error("{registry} answered {status} when asked for {what}{said}")]
    Status {
        /// The registry's host.
        registry: String,
        /// The status code.
        status: u16,
        /// What was asked for.
        what: String,
        /// The registry's own words.
        said: String,
    },
    /// The content is not what its digest promised.
    #[error("{what} should be {expected} and is {found}; it was damaged or tampered with")]
    WrongDigest {
        /// What was asked for.
        what: String,
        /// The digest that was promised.
        expected: Digest,
        /// The digest of what came.
        found: Digest,
    },
    /// An answer that makes no sense.
    #[error("{registry} gave a bad answer: {why}")]
    BadAnswer {
        /// The registry's host.
        registry: String,
        /// What is wrong with it.
        why: String,
    },
    /// A description that cannot be used.
    #[error("its description is bad")]
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
