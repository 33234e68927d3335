//! What the kernel counts by user: queued signals with POSIX timers, message queues, locked memory, watched files.
//!
//! What a process takes in a user namespace is also counted for the user who created the namespace, up to the limit that
//! process had then; and so on for that user's namespace. Three things follow. Each sandbox has a creator of its own
//! where there are users to choose from (`Identity`), so that its share is its own. An ordinary user's sandboxes get half
//! of what the user has, so that the user's other programs keep the other half. Where a sandbox has only one user, that
//! user's limit is the sandbox's.

use std::{fs, path::Path};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Users;

/// The resources, with the most that a sandbox may take of each.
const SHARED: [(Resource, u64); 2] = [
    // Each POSIX timer has one of these.
    (Resource::Sigpending, 4096),
    // In bytes; the usual limit of a user.
    (Resource::Msgqueue, 819_200),
];

/// What each sandbox may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares([u64; 2]);

impl Shares {
    /// Lowers this process's limits to those of the namespaces that it creates, for the caller's limits `before`.
    pub(crate) fn prepare(users: Users, before: &CallerLimits) -> Self {
        let mut shares = [0; 2];
        for (i, (resource, most)) in SHARED.into_iter().enumerate() {
            shares[i] = share_of(users, before.0[i], most);
            if users != Users::Single {
                lower(resource, shares[i]);
            }
        }
        Self(shares)
    }

    /// Lowers this process's limits, PID 1's of a sandbox, to the sandbox's share. Its commands inherit them.
    pub(crate) fn apply(self) {
        for (share, (resource, _)) in self.0.into_iter().zip(SHARED) {
            lower(resource, share);
        }
    }
}

/// The share of one sandbox in what the caller has.
fn share_of(users: Users, limit: u64, most: u64) -> u64 {
    match users {
        // Nothing is counted for the caller.
        Users::Shifted | Users::SameAsHost => limit.min(most),
        Users::Subordinate | Users::Single => (limit / 4).min(most),
    }
}

/// The caller's limits, before any was lowered.
pub(crate) struct CallerLimits([u64; 2]);

impl CallerLimits {
    /// Reads them.
    pub(crate) fn read() -> Self {
        Self(SHARED.map(|(resource, _)| getrlimit(resource).current.unwrap_or(u64::MAX)))
    }
}

/// Lowers this process's limits to half, before it creates a user namespace.
pub(crate) fn halve() {
    for resource in [Resource::Sigpending, Resource::Msgqueue, Resource::Memlock] {
        if let Some(limit) = getrlimit(resource).current {
            lower(resource, limit / 2);
        }
    }
}

/// Lowers the limits of this process's new user namespace to half of what the user may watch, for all sandboxes together.
/// That holds for those whose namespaces one user creates; others are counted apart here.
pub(crate) fn halve_watches() {
    for (name, of_the_user) in [
        ("max_inotify_instances", "/proc/sys/fs/inotify/max_user_instances"),
        ("max_inotify_watches", "/proc/sys/fs/inotify/max_user_watches"),
    ] {
        let limit = fs::read_to_string(of_the_user).unwrap_or_default();
        if let Ok(limit) = limit.trim().parse::<u64>() {
            let half = (limit / 2).to_string();
            // Without it, the limits of each sandbox still hold.
            let _ = fs::write(Path::new("/proc/sys/user").join(name), half);
        }
    }
}

/// Lowers a limit. What cannot be lowered is as low already.
fn lower(resource: Resource, to: u64) {
    let Rlimit { current, maximum } = getrlimit(resource);
    let lowered = |limit: Option<u64>| Some(limit.map_or(to, |limit| limit.min(to)));
    let limit = Rlimit { current: lowered(current), maximum: lowered(maximum) };
    let _ = setrlimit(resource, limit);
}

/// Keeps a crash in a sandbox from starting the machine's program for core dumps: the kernel starts it whatever the
/// limit on their size, except where that is 1. Commands cannot change it, see the filter. Returns whether the limit is
/// in force.
pub(crate) fn forbid_core_dumps() -> bool {
    let one = Rlimit { current: Some(1), maximum: Some(1) };
    setrlimit(Resource::Core, one).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_users_sandbox_gets_a_part() {
        assert_eq!(share_of(Users::Shifted, 96_349, 4096), 4096);
        assert_eq!(share_of(Users::Shifted, 819_200, 819_200), 819_200);
        assert_eq!(share_of(Users::Single, 96_349, 4096), 4096);
        assert_eq!(share_of(Users::Single, 2000, 4096), 500);
        assert_eq!(share_of(Users::Subordinate, 819_200, 819_200), 204_800);
        assert_eq!(share_of(Users::Single, u64::MAX, 4096), 4096);
    }
}
