//! [`DiskQuota`], how the disk limit of a sandbox is enforced.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// How the disk limit of a sandbox is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskQuota {
    /// [`Project`](Self::Project) where that is possible, else [`Measured`](Self::Measured).
    #[default]
    Auto,
    /// What is written is measured, and commands that pass the limit are killed. Costs nothing; the limit can be passed
    /// until the next measurement, and by deleted files that no measurement finds.
    Measured,
    /// The kernel refuses to write more: it counts the sandbox's files on the file system that has them, if that has
    /// project quotas.
    Project,
    /// The kernel refuses to write more: the sandbox writes to a file system of this size, stored in the state directory.
    Strict,
    /// The same with a file system in memory. What is written counts as memory.
    Memory,
}

impl DiskQuota {
    /// All of them, the default first.
    pub const ALL: [Self; 5] =
        [Self::Auto, Self::Measured, Self::Project, Self::Strict, Self::Memory];

    /// Whether it is of no use without a disk limit.
    pub(crate) fn needs_limit(self) -> bool {
        !matches!(self, Self::Auto | Self::Measured)
    }

    /// Its name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Measured => "measured",
            Self::Project => "project",
            Self::Strict => "strict",
            Self::Memory => "memory",
        }
    }

    /// Whether this is the default, which files leave out.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for DiskQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is not one of a [`DiskQuota`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a way to limit the disk; write auto, measured, project, strict or memory")]
pub struct ParseDiskQuotaError(String);

impl FromStr for DiskQuota {
    type Err = ParseDiskQuotaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|quota| quota.name() == text);
        found.ok_or_else(|| ParseDiskQuotaError(text.to_owned()))
    }
}
