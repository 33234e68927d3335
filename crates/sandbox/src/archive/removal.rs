//! What an unfinished copy has written to the host, until it is complete or removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::partial;

/// Copies to the host that are neither complete nor removed.
static UNFINISHED: AtomicUsize = AtomicUsize::new(0);

/// Waits until copies to the host that were cancelled have removed what they had written, but not longer than `limit`.
/// To be called by a program before it ends: threads that remove files end with it. Returns whether all is removed.
pub async fn until_removed(limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while UNFINISHED.load(Ordering::Acquire) > 0 {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(Duration::from_millis(2)).await;
    }
    true
}

/// Counts as an unfinished copy.
pub(super) struct Unfinished(());

impl Unfinished {
    pub(super) fn begin() -> Self {
        UNFINISHED.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        UNFINISHED.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A path beside the destination, removed on drop unless it was moved there.
pub(super) struct Partial {
    path: PathBuf,
}

impl Partial {
    /// A new path in the directory of `dest`, whose name it has in its own.
    pub(super) fn beside(dest: &Path) -> io::Result<Self> {
        Ok(Self { path: partial::path(dest)? })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Absent where nothing was written, or where it was moved.
        if let Ok(meta) = self.path.symlink_metadata() {
            let _ = match meta.is_dir() {
                true => fs::remove_dir_all(&self.path),
                false => fs::remove_file(&self.path),
            };
        }
    }
}
