//! The sandboxes by name, who uses them, and since when nobody does.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sandbox::{Network, Sandbox};
use tokio::{
    sync::{Notify, RwLock},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{Name, error::Failure};

/// What a sandbox was created with, and a fork of it gets as well.
#[derive(Clone, Debug)]
pub(crate) struct Traits {
    pub(crate) image: String,
    pub(crate) network: Network,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) stall_timeout: Duration,
}

/// A registered sandbox.
pub(crate) struct Entry<S> {
    pub(crate) name: Name,
    pub(crate) id: String,
    pub(crate) traits: Traits,
    /// In seconds since 1970.
    pub(crate) created: u64,
    /// `None` once it is removed. Operations hold it for reading, its removal for writing.
    pub(crate) sandbox: RwLock<Option<S>>,
    /// Cancels operations when the sandbox is removed.
    pub(crate) removed: CancellationToken,
}

/// How a sandbox is used.
#[derive(Clone, Copy)]
pub(crate) struct Activity {
    /// Operations in progress.
    pub(crate) operations: usize,
    /// When the last one ended.
    pub(crate) since: Instant,
}

enum Slot<S> {
    /// It is being created.
    Reserved,
    Ready(Arc<Entry<S>>, Activity),
}

struct State<S> {
    slots: BTreeMap<Name, Slot<S>>,
    connections: usize,
    /// When the last sandbox or client left.
    quiet_since: Instant,
    ending: bool,
    broken: bool,
}

impl<S> State<S> {
    fn is_quiet(&self) -> bool {
        self.slots.is_empty() && self.connections == 0
    }

    /// Notes that a sandbox or a client left.
    fn left(&mut self) {
        self.quiet_since = Instant::now();
    }
}

struct Shared<S> {
    state: Mutex<State<S>>,
    changed: Notify,
}

impl<S> Shared<S> {
    /// Locks, ignoring poison: nothing here panics while holding the lock.
    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Registry<S>(Arc<Shared<S>>);

/// A connection that is counted.
pub(crate) struct ConnectionGuard<S>(Arc<Shared<S>>);

impl<S> Drop for ConnectionGuard<S> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.connections -= 1;
        state.left();
        drop(state);
        self.0.changed.notify_waiters();
    }
}

/// A name for a sandbox that is being created; free again when this is dropped.
pub(crate) struct Reservation<S> {
    shared: Arc<Shared<S>>,
    name: Name,
}

impl<S> Drop for Reservation<S> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let Some(Slot::Reserved) = state.slots.get(&self.name) {
            state.slots.remove(&self.name);
            state.left();
        }
        drop(state);
        self.shared.changed.notify_waiters();
    }
}

impl<S: Sandbox> Reservation<S> {
    /// Registers the sandbox under the reserved name. `Err` with the sandbox if the supervisor is ending.
    pub(crate) fn fill(self, sandbox: S, traits: Traits) -> Result<(), S> {
        let mut state = self.shared.state();
        if state.ending {
            return Err(sandbox);
        }
        let entry = Entry {
            name: self.name.clone(),
            id: sandbox.id().to_owned(),
            traits,
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs()),
            sandbox: RwLock::new(Some(sandbox)),
            removed: CancellationToken::new(),
        };
        let activity = Activity { operations: 0, since: Instant::now() };
        state.slots.insert(self.name.clone(), Slot::Ready(Arc::new(entry), activity));
        Ok(())
    }
}

/// An operation on a sandbox, which is not idle meanwhile.
pub(crate) struct Operation<S> {
    shared: Arc<Shared<S>>,
    pub(crate) entry: Arc<Entry<S>>,
}

impl<S> Drop for Operation<S> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        // It may have been removed, and another may have got its name.
        if let Some(Slot::Ready(entry, activity)) = state.slots.get_mut(&self.entry.name)
            && Arc::ptr_eq(entry, &self.entry)
        {
            activity.operations -= 1;
            activity.since = Instant::now();
        }
        drop(state);
        self.shared.changed.notify_waiters();
    }
}

impl<S: Sandbox> Registry<S> {
    pub(crate) fn new() -> Self {
        let state = State {
            slots: BTreeMap::new(),
            connections: 0,
            quiet_since: Instant::now(),
            ending: false,
            broken: false,
        };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() }))
    }

    /// Completes at the next change, also if that happens before it is awaited.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> {
        let mut changed = Box::pin(self.0.changed.notified());
        changed.as_mut().enable();
        changed
    }

    async fn until(&self, holds: impl Fn(&State<S>) -> bool) {
        loop {
            let changed = self.changed();
            if holds(&self.0.state()) {
                return;
            }
            changed.await;
        }
    }

    /// Counts a connection; `None` if the supervisor is ending.
    pub(crate) fn connected(&self) -> Option<ConnectionGuard<S>> {
        let mut state = self.0.state();
        if state.ending {
            return None;
        }
        state.connections += 1;
        Some(ConnectionGuard(Arc::clone(&self.0)))
    }

    pub(crate) async fn until_no_connections(&self) {
        self.until(|state| state.connections == 0).await;
    }

    /// Completes when every sandbox is gone.
    pub(crate) async fn until_empty(&self) {
        self.until(|state| state.slots.is_empty()).await;
    }

    /// Number of sandboxes, including those being created.
    pub(crate) fn count(&self) -> usize {
        self.0.state().slots.len()
    }

    /// Reserves a name.
    pub(crate) fn reserve(&self, name: &Name) -> Result<Reservation<S>, Failure> {
        let mut state = self.0.state();
        if state.ending {
            return Err(Failure::Ending);
        }
        if state.slots.contains_key(name) {
            return Err(Failure::Exists(name.clone()));
        }
        state.slots.insert(name.clone(), Slot::Reserved);
        Ok(Reservation { shared: Arc::clone(&self.0), name: name.clone() })
    }

    /// Begins an operation on a sandbox.
    pub(crate) fn begin(&self, name: &Name) -> Result<Operation<S>, Failure> {
        match self.0.state().slots.get_mut(name) {
            Some(Slot::Ready(entry, activity)) => {
                activity.operations += 1;
                Ok(Operation { shared: Arc::clone(&self.0), entry: Arc::clone(entry) })
            }
            _ => Err(Failure::Unknown(name.clone())),
        }
    }

    /// Takes a sandbox out of the registry.
    pub(crate) fn take(&self, name: &Name) -> Result<Arc<Entry<S>>, Failure> {
        let mut state = self.0.state();
        let taken = match state.slots.get(name) {
            Some(Slot::Ready(entry, _)) => Arc::clone(entry),
            _ => return Err(Failure::Unknown(name.clone())),
        };
        state.slots.remove(name);
        state.left();
        drop(state);
        self.0.changed.notify_waiters();
        Ok(taken)
    }

    /// Takes every sandbox out of the registry.
    pub(crate) fn take_all(&self) -> Vec<Arc<Entry<S>>> {
        let names: Vec<_> = self.all().iter().map(|entry| entry.name.clone()).collect();
        names.iter().filter_map(|name| self.take(name).ok()).collect()
    }

    /// Takes out those that have been idle for too long.
    pub(crate) fn take_expired(&self) -> Vec<Arc<Entry<S>>> {
        let now = Instant::now();
        let mut state = self.0.state();
        let due = |slot: &Slot<S>| match slot {
            Slot::Ready(entry, activity)
                if deadline(entry, activity).is_some_and(|at| at <= now) =>
            {
                Some(Arc::clone(entry))
            }
            _ => None,
        };
        let expired: Vec<_> = state.slots.values().filter_map(due).collect();
        for entry in &expired {
            state.slots.remove(&entry.name);
            state.left();
        }
        expired
    }

    /// When something will be due.
    pub(crate) fn next_deadline(&self, linger: Duration) -> Option<Instant> {
        let state = self.0.state();
        let end = state.is_quiet().then(|| state.quiet_since + linger);
        let idle = state.slots.values().filter_map(|slot| match slot {
            Slot::Ready(entry, activity) => deadline(entry, activity),
            Slot::Reserved => None,
        });
        idle.chain(end).min()
    }

    /// Whether it is time to end; from then on no connection is accepted and no sandbox created.
    pub(crate) fn should_end(&self, linger: Duration) -> bool {
        let mut state = self.0.state();
        if state.is_quiet() && state.quiet_since.elapsed() >= linger {
            state.ending = true;
        }
        state.ending
    }

    /// Makes the supervisor end.
    pub(crate) fn begin_to_end(&self) {
        self.0.state().ending = true;
        self.0.changed.notify_waiters();
    }

    /// Notes that the runtime has failed for good: every sandbox is lost, and the supervisor ends.
    pub(crate) fn break_down(&self) {
        self.0.state().broken = true;
        self.begin_to_end();
    }

    /// Whether the runtime has failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.state().broken
    }

    /// Every sandbox, sorted by name.
    pub(crate) fn all(&self) -> Vec<Arc<Entry<S>>> {
        self.all_active().into_iter().map(|(entry, _)| entry).collect()
    }

    /// Every sandbox and its use, sorted by name.
    pub(crate) fn all_active(&self) -> Vec<(Arc<Entry<S>>, Activity)> {
        let state = self.0.state();
        let ready = state.slots.values().filter_map(|slot| match slot {
            Slot::Ready(entry, activity) => Some((Arc::clone(entry), *activity)),
            Slot::Reserved => None,
        });
        ready.collect()
    }
}

/// When a sandbox has been idle for too long; `None` while it is used.
fn deadline<S>(entry: &Entry<S>, activity: &Activity) -> Option<Instant> {
    (activity.operations == 0).then_some(())?;
    activity.since.checked_add(entry.traits.idle_timeout?)
}
