//! The build cache: which layer a step produced on which parent, and how long that took.
//!
//! An entry is a hint. Without its layer it still tells the duration; without the entry the step runs again.

use std::{fs, io, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    error::Error,
    lock::{Workspace, private_dir},
    store::{Store, write_json},
};

/// What is known about a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CacheEntry {
    /// The layer it produced; `None` in the entry that only tells the step's duration on any parent.
    #[serde(default)]
    pub(crate) layer: Option<Digest>,
    /// How long it took, in seconds.
    pub(crate) seconds: f64,
}

/// The key of a step on the image with this content.
pub(crate) fn key(parent: &Digest, step: &str) -> Digest {
    Digest::of(serde_json::json!({ "parent": parent, "step": step }).to_string().as_bytes())
}

/// The key of a step on any image.
fn duration_key(step: &str) -> Digest {
    Digest::of(serde_json::json!({ "step": step }).to_string().as_bytes())
}

impl Store {
    /// The entry of a step on this parent. An unreadable one counts as missing.
    pub(crate) fn cache_entry(&self, parent: &Digest, step: &str) -> Option<CacheEntry> {
        self.read_entry(&key(parent, step))
    }

    /// The duration of a step when it last ran: on this parent, else on any.
    pub(crate) fn last_duration(&self, parent: &Digest, step: &str) -> Option<Duration> {
        let entry =
            self.cache_entry(parent, step).or_else(|| self.read_entry(&duration_key(step)))?;
        Duration::try_from_secs_f64(entry.seconds).ok()
    }

    /// Records the layer and the duration of a step.
    pub(crate) fn remember_step(
        &self,
        workspace: &Workspace,
        parent: &Digest,
        step: &str,
        (layer, took): (Digest, Duration),
    ) -> Result<(), Error> {
        let seconds = took.as_secs_f64();
        for (key, layer) in [(key(parent, step), Some(layer)), (duration_key(step), None)] {
            let prepared = workspace.new_path();
            write_json(&prepared, &CacheEntry { layer, seconds })?;
            private_dir(&self.cache_dir())
                .and_then(|()| fs::rename(prepared, self.entry_path(&key)))
                .map_err(Error::io("cannot write the build cache"))?;
        }
        Ok(())
    }

    /// Removes entries whose layer is gone.
    pub(crate) fn prune_cache(&self) -> Result<(), Error> {
        let entries = match fs::read_dir(self.cache_dir()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Error::io("cannot read the build cache")(error)),
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let entry = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
            let stale = match entry {
                Some(CacheEntry { layer: Some(layer), .. }) => !self.layer_path(&layer).exists(),
                Some(CacheEntry { layer: None, .. }) => false,
                None => true,
            };
            if stale {
                // Another process may have removed it.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }

    fn read_entry(&self, key: &Digest) -> Option<CacheEntry> {
        serde_json::from_slice(&fs::read(self.entry_path(key)).ok()?).ok()
    }

    fn cache_dir(&self) -> PathBuf {
        self.dir("builds")
    }

    fn entry_path(&self, key: &Digest) -> PathBuf {
        self.cache_dir().join(format!("{}.json", key.hex()))
    }
}
