//! Downloads: attempts that continue where the one before stopped, until the file is complete.
//!
//! Sizes are checked as bytes arrive; the hash is checked when the file is complete.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use error_text::one_line;
use lis_http::{RangeResponse, Response, range_response};
use tracing::debug;

use crate::{Error, Hub, PartialError, PartialFile, Progress, RepoFile, Sha256Hex, Size};

/// Attempts in a row that may fail with next to no progress.
const ATTEMPTS: u32 = 4;
/// Bytes that make an attempt count as progress.
const PROGRESS: u64 = 64 << 10;

impl Hub {
    /// Downloads a file, unless there is one at `to`. The file appears complete and with the right hash, or not at all;
    /// missing directories are created.
    pub async fn download_to(
        &self,
        file: &RepoFile,
        size: Size,
        sha256: Option<&Sha256Hex>,
        to: &Path,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        if to.is_file() {
            return Ok(());
        }
        let temporary = temporary(to).map_err(PartialError::Io)?;
        let mut partial = PartialFile::open(temporary.path().to_owned(), size, progress).await?;
        self.download(file, &mut partial, progress).await?;
        // Renames the file; there is nothing left for `temporary` to remove then.
        Ok(partial.finish(sha256, to).await?)
    }

    /// Completes a partial file. Failed attempts are repeated as long as they make progress.
    ///
    /// Dropping the future keeps what has arrived.
    #[tracing::instrument(level = "debug", skip_all, fields(host = self.host(), path = file.path, have = partial.len()))]
    pub async fn download(
        &self,
        file: &RepoFile,
        partial: &mut PartialFile,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        progress.message(&format!("from {}", self.host()));
        partial.announce(progress);
        let start = partial.len();
        let (mut best, mut failures) = (start, 0);
        while !partial.is_complete() {
            let Err(error) = self.attempt(file, partial, progress).await else { break };
            debug!(error = one_line(&error), have = partial.len(), "attempt failed");
            // A hub that was never reached is not asked again.
            let unreachable =
                matches!(error, Error::Connect { .. }) && best == start && failures == 0;
            if unreachable || !error.is_transient() {
                return Err(error);
            }
            failures =
                if partial.len() >= best.saturating_add(PROGRESS) { 1 } else { failures + 1 };
            best = best.max(partial.len());
            if failures >= ATTEMPTS {
                return Err(error);
            }
            progress.message(&format!("{}; resuming", one_line(&error)));
            tokio::time::sleep(Duration::from_millis(250 << failures)).await;
        }
        Ok(())
    }

    async fn attempt(
        &self,
        file: &RepoFile,
        partial: &mut PartialFile,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let mut response = self.get_file(file, partial.len()).await?;
        let mut content = range_response(&response, partial.len());
        let restarts = matches!(content, RangeResponse::Whole | RangeResponse::Mismatch);
        if partial.len() > 0 && restarts {
            partial.clear()?;
            partial.announce(progress);
            if content == RangeResponse::Mismatch {
                response = self.get_file(file, 0).await?;
                content = range_response(&response, 0);
            }
        }
        if !matches!(content, RangeResponse::Rest | RangeResponse::Whole) {
            let (host, what) = (self.host().to_owned(), file.path.clone());
            return Err(Error::Status { host, status: response.status(), what });
        }
        if let Some(rest) = response.content_length() {
            let offered = rest.saturating_add(partial.len());
            match partial.size() {
                Size::Exact(size) if size != offered => {
                    let host = self.host().to_owned();
                    return Err(Error::OtherSize { host, offered, size });
                }
                Size::AtMost(size) if size < offered => {
                    return Err(PartialError::TooLong { size }.into());
                }
                _ => partial.set_size(offered),
            }
        }
        self.receive(response, partial, progress).await
    }

    async fn receive(
        &self,
        mut response: Response,
        partial: &mut PartialFile,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let cut = |source: Option<lis_http::Error>| Error::Cut {
            host: self.host().to_owned(),
            source: source.map(lis_http::Error::without_url),
        };
        while let Some(chunk) = response.chunk().await.map_err(|source| cut(Some(source)))? {
            partial.write(&chunk)?;
            progress.advance(chunk.len() as u64);
        }
        let complete = partial.is_complete() || matches!(partial.size(), Size::AtMost(_));
        if complete { Ok(()) } else { Err(cut(None)) }
    }
}

/// A new file beside the destination, removed when it is dropped.
fn temporary(to: &Path) -> io::Result<tempfile::NamedTempFile> {
    let dir = to.parent().unwrap_or(to);
    fs::create_dir_all(dir)?;
    tempfile::Builder::new()
        .prefix(".")
        .suffix(".partial")
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(dir)
}
