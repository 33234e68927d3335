//! Why a run cannot start or continue. A failed attempt is not one of these.

use std::{io, path::PathBuf};

/// A run cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The run's directory cannot be used.
    #[error("cannot store the results")]
    Results(#[source] results::Error),
    /// The events of an attempt cannot be written.
    #[error("cannot write the events of an attempt")]
    Events(#[source] io::Error),
    /// The directory holds a run with other settings.
    #[error(
        "{path} holds a run with other settings: {setting} was {recorded}, now it is {requested}"
    )]
    SettingsDiffer {
        /// The directory.
        path: PathBuf,
        /// The setting.
        setting: String,
        /// Its recorded value.
        recorded: String,
        /// The value requested now.
        requested: String,
    },
}

impl Error {
    /// Whether the caller's input is at fault, rather than the machine.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::SettingsDiffer { .. } | Self::Results(results::Error::Locked { .. }))
    }
}
