//! How long operations report their progress. Draws nothing itself.

use std::fmt;

/// A listener on a pull, an import or a build.
pub trait Progress: Send + Sync {
    /// A stage begins, with the amount of work in it where that is known.
    fn stage(&self, stage: Stage, total: Option<u64>);
    /// This much more of the current stage is done, in the stage's unit.
    fn advance(&self, by: u64);
    /// A line worth showing: a step of the builder, or why a download starts over.
    fn message(&self, text: &str);
    /// A line that must not be overlooked, such as what was left out.
    fn warning(&self, text: &str) {
        self.message(text);
    }
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Requesting the image's manifest from the registry.
    Resolving,
    /// Downloading layers; counted in bytes.
    Downloading,
    /// Unpacking layers; counted in bytes for archives and in layers for pulls.
    Unpacking,
    /// Copying a directory; counted in bytes.
    Copying,
    /// Running the builder; counted in its steps.
    Building,
    /// Deleting files; counted in files and directories.
    Removing,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolving => "resolving",
            Self::Downloading => "downloading",
            Self::Unpacking => "unpacking",
            Self::Copying => "copying",
            Self::Building => "building",
            Self::Removing => "removing",
        })
    }
}

/// Ignores all progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _: Stage, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
    fn message(&self, _: &str) {}
}

/// A reader that reports the bytes read.
pub(crate) struct ProgressReader<'a, R> {
    pub(crate) inner: R,
    pub(crate) progress: &'a dyn Progress,
}

impl<R: std::io::Read> std::io::Read for ProgressReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.progress.advance(got as u64);
        Ok(got)
    }
}
