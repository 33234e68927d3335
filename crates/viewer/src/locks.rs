//! Whether a process holds the lock of a file, without taking it: taking it, even for a moment, could refuse the process that is about
//! to.

use std::{
    collections::HashSet,
    fs::Metadata,
    os::unix::fs::MetadataExt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

/// How long the list of locks is used.
const FRESH: Duration = Duration::from_millis(500);
/// Files that changed so recently are being written, whatever the locks say: some file systems have none.
const RECENT: Duration = Duration::from_secs(20);

/// Numbers of locked files.
type Locked = (Instant, Arc<HashSet<u64>>);

static LOCKED: Mutex<Option<Locked>> = Mutex::new(None);

/// Whether a process works on a file: it is locked, or changed a moment ago.
pub(crate) fn is_in_use(about: &Metadata) -> bool {
    is_locked(about) || changed_recently(about)
}

/// Whether a process holds the lock of a file.
pub(crate) fn is_locked(about: &Metadata) -> bool {
    let mut known = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
    let locks = match &*known {
        Some((at, locks)) if at.elapsed() < FRESH => Arc::clone(locks),
        _ => {
            let locks = Arc::new(read());
            *known = Some((Instant::now(), Arc::clone(&locks)));
            locks
        }
    };
    locks.contains(&about.ino())
}

/// Whether a file changed a moment ago.
pub(crate) fn changed_recently(about: &Metadata) -> bool {
    let changed = about.modified().ok();
    let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
    age.is_some_and(|age| age < RECENT)
}

/// The kernel's list: `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`.
fn read() -> HashSet<u64> {
    let text = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let number = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let exclusive = fields.any(|field| field == "WRITE");
        let file = fields.nth(1).filter(|_| exclusive)?;
        file.rsplit(':').next()?.parse().ok()
    };
    text.lines().filter(|line| line.contains("FLOCK")).filter_map(number).collect()
}
