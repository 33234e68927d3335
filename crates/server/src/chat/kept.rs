//! Sandboxes that conversations keep: the files of the last episode, for the next one.
//!
//! Each belongs to its caller, is used by one request at a time, and is forgotten some time after its last use. They are
//! recorded in a file, so that another process of the server knows them, and what it has to forget.

use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::StatusCode;
use openai_wire::ApiError;
use serde::{Deserialize, Serialize};

use crate::deadline::Deadline;

/// Most kept sandboxes of one caller.
const MAX_OF_CALLER: usize = 100;

/// The kept sandboxes.
#[derive(Debug)]
pub(super) struct KeptSandboxes {
    by_id: Mutex<HashMap<String, Kept>>,
    lifetime: Duration,
    /// Where they are recorded.
    file: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    owner: String,
    /// The episode whose files are kept; `None` until the first one has ended.
    episode: Option<String>,
    #[serde(skip)]
    busy: bool,
    expires: Deadline,
}

/// The use of a kept sandbox by one request. Dropped without [`Lease::finish`], the sandbox is as before.
#[derive(Debug)]
pub(super) struct Lease {
    all: Arc<KeptSandboxes>,
    id: String,
    /// The episode whose files the next one starts with.
    pub(super) episode: Option<String>,
}

impl KeptSandboxes {
    /// Those that are recorded in this file.
    pub(super) fn open(file: PathBuf, lifetime: Duration) -> Self {
        let mut by_id: HashMap<String, Kept> =
            match fs::read(&file).map(|text| serde_json::from_slice(&text)) {
                Ok(Ok(recorded)) => recorded,
                Ok(Err(error)) => {
                    tracing::error!("the record of kept sandboxes cannot be read: {error}");
                    HashMap::new()
                }
                Err(_) => HashMap::new(),
            };
        by_id.values_mut().for_each(|kept| kept.expires = kept.expires.within(lifetime));
        Self { by_id: Mutex::new(by_id), lifetime, file }
    }

    /// Records them. A failure is logged: until the process ends, nothing depends on it.
    fn record(&self, by_id: &HashMap<String, Kept>) {
        let ended = by_id.iter().filter(|(_, kept)| kept.episode.is_some());
        let written = serde_json::to_vec(&ended.collect::<HashMap<_, _>>())
            .map_err(std::io::Error::other)
            .and_then(|text| atomic_file::write(&self.file, text));
        if let Err(error) = written {
            tracing::error!("recording kept sandboxes: {error}");
        }
    }

    fn over(&self) -> Deadline {
        Deadline::after(self.lifetime)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a sandbox is kept after its last use.
    pub(super) fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Begins a new sandbox with this id.
    pub(super) fn begin(self: &Arc<Self>, owner: &str, id: String) -> Result<Lease, ApiError> {
        let mut by_id = self.lock();
        if by_id.values().filter(|kept| kept.owner == owner).count() >= MAX_OF_CALLER {
            let message = format!(
                "at most {MAX_OF_CALLER} sandboxes can be kept; one that is not used is forgotten \
                 after {} s",
                self.lifetime.as_secs()
            );
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, message);
            return Err(error.param("sandbox").retry_after(Duration::from_secs(60)));
        }
        let expires = self.over();
        let kept = Kept { owner: owner.to_owned(), episode: None, busy: true, expires };
        by_id.insert(id.clone(), kept);
        Ok(Lease { all: Arc::clone(self), id, episode: None })
    }

    /// Uses a sandbox of this caller.
    pub(super) fn resume(self: &Arc<Self>, owner: &str, id: &str) -> Result<Lease, ApiError> {
        let mut by_id = self.lock();
        let kept = by_id.get_mut(id).filter(|kept| kept.owner == owner && kept.episode.is_some());
        let Some(kept) = kept.filter(|kept| kept.busy || !kept.expires.has_passed()) else {
            let message = format!("there is no kept sandbox {id:?}; it may have been forgotten");
            let error = ApiError::new(StatusCode::NOT_FOUND, message).param("sandbox");
            return Err(error.code("sandbox_not_found"));
        };
        if kept.busy {
            let message = format!("the sandbox {id:?} is being used by another request");
            let error = ApiError::new(StatusCode::CONFLICT, message).param("sandbox");
            return Err(error.code("sandbox_busy"));
        }
        kept.busy = true;
        let episode = kept.episode.clone();
        Ok(Lease { all: Arc::clone(self), id: id.to_owned(), episode })
    }

    /// Forgets the sandboxes whose time is over. Returns the episodes whose files are no longer needed.
    pub(super) fn expire(&self) -> Vec<String> {
        let mut over = Vec::new();
        let mut by_id = self.lock();
        by_id.retain(|_, kept| {
            let is_over = !kept.busy && kept.expires.has_passed();
            if is_over {
                over.extend(kept.episode.take());
            }
            !is_over
        });
        if !over.is_empty() {
            self.record(&by_id);
        }
        over
    }
}

impl Lease {
    /// The id by which the client names the sandbox.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The files of this episode are the sandbox from now on. Returns the episode whose files are no longer needed.
    pub(super) fn finish(self, episode: &str) -> Option<String> {
        let mut by_id = self.all.lock();
        let kept = by_id.get_mut(&self.id)?;
        kept.expires = self.all.over();
        let previous = kept.episode.replace(episode.to_owned());
        self.all.record(&by_id);
        previous
    }
}

impl Lease {
    /// Forgets the sandbox: what it was cannot be continued. Returns the episode whose files are no longer needed.
    pub(super) fn forget(self) -> Option<String> {
        let mut by_id = self.all.lock();
        let kept = by_id.remove(&self.id)?;
        self.all.record(&by_id);
        kept.episode
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut by_id = self.all.lock();
        let Some(kept) = by_id.get_mut(&self.id) else { return };
        kept.busy = false;
        if kept.episode.is_none() {
            by_id.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(dir: &tempfile::TempDir, lifetime: u64) -> Arc<KeptSandboxes> {
        let file = dir.path().join("kept.json");
        Arc::new(KeptSandboxes::open(file, Duration::from_millis(lifetime)))
    }

    #[test]
    fn a_sandbox_is_its_callers_and_used_by_one_request_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let all = kept(&dir, 60_000);
        let lease = all.begin("ann", "one".into()).unwrap();
        assert!(all.resume("ann", "one").is_err());
        assert_eq!(lease.finish("first"), None);
        let lease = all.resume("ann", "one").unwrap();
        assert_eq!(lease.episode.as_deref(), Some("first"));
        assert_eq!(all.resume("ann", "one").unwrap_err().status(), 409);
        assert_eq!(all.resume("bob", "one").unwrap_err().status(), 404);
        assert_eq!(lease.finish("second").as_deref(), Some("first"));
        // One that fails leaves the sandbox as it was.
        drop(all.resume("ann", "one").unwrap());
        assert_eq!(all.resume("ann", "one").unwrap().episode.as_deref(), Some("second"));
        // Another process knows it too, and not what never ended.
        let _unfinished = all.begin("ann", "two".into()).unwrap();
        let again = kept(&dir, 60_000);
        assert_eq!(again.resume("ann", "one").unwrap().episode.as_deref(), Some("second"));
        assert_eq!(again.lock().len(), 1);
    }

    #[test]
    fn what_never_ended_and_what_is_old_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let all = kept(&dir, 0);
        drop(all.begin("ann", "one".into()).unwrap());
        assert!(all.lock().is_empty());
        all.begin("ann", "two".into()).unwrap().finish("first");
        assert_eq!(all.resume("ann", "two").unwrap_err().status(), 404);
        assert_eq!(all.expire(), ["first"]);
        assert!(all.lock().is_empty() && kept(&dir, 0).lock().is_empty());
    }

    /// As on a full disk.
    #[test]
    fn a_record_that_cannot_be_written_loses_nothing_until_the_process_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (missing, lifetime) = (dir.path().join("none"), Duration::from_secs(60));
        let all = Arc::new(KeptSandboxes::open(missing.join("kept.json"), lifetime));
        all.begin("ann", "one".into()).unwrap().finish("first");
        let lease = all.resume("ann", "one").unwrap();
        assert_eq!(lease.finish("second").as_deref(), Some("first"));
        fs::create_dir(&missing).unwrap();
        // The next record has all of it.
        all.begin("ann", "two".into()).unwrap().finish("third");
        let again = Arc::new(KeptSandboxes::open(missing.join("kept.json"), lifetime));
        assert_eq!(again.resume("ann", "one").unwrap().episode.as_deref(), Some("second"));
    }

    #[test]
    fn a_caller_has_only_so_many() {
        let dir = tempfile::tempdir().unwrap();
        let all = kept(&dir, 60_000);
        let leases: Vec<_> =
            (0..MAX_OF_CALLER).map(|n| all.begin("ann", n.to_string()).unwrap()).collect();
        assert_eq!(all.begin("ann", "more".into()).unwrap_err().status(), 429);
        assert!(all.begin("bob", "bobs".into()).is_ok());
        drop(leases);
        assert!(all.begin("ann", "more".into()).is_ok());
    }
}
