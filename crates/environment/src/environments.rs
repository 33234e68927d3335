//! [`Environments`]: the tasks that are served and the sessions at them.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use attempt::{Sandboxes, Settings};
use model::{Given, Permit, ToolFormat};
use sandbox::{Limits, Runtime};
use seeded::SplitMix64;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, GoneReason, RowId, Served, Snapshot,
    session::{NewSession, Session},
};

/// Letters of an id: as many bits as in a key.
const ID_LENGTH: usize = 26;
/// Gone sessions that are remembered, so that their clients learn why.
const MAX_GONE: usize = 4096;
/// When to try again where there are too many sessions.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long closing waits for the removal of a sandbox.
const CLOSING: Duration = Duration::from_secs(60);

/// Limits of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a session stays without a request; 15 minutes by default.
    pub lease: Duration,
    /// Most sessions at once, whatever they do; 4096 by default. Those beyond the permits for sandboxes wait.
    pub max_sessions: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { lease: Duration::from_secs(900), max_sessions: 4096 }
    }
}

/// How a session starts.
#[derive(Clone, Debug, Default)]
pub struct Reset {
    /// The task; may be absent where only one is served.
    pub task: Option<String>,
    /// The row.
    pub row: RowChoice,
    /// How tool calls are written and described. Only the native format has tools apart from the messages.
    pub format: ToolFormat,
    /// Most turns, where fewer than the task allows are wanted.
    pub turns: Option<u32>,
    /// Most tokens of the conversation, where fewer than the task allows are wanted.
    pub tokens: Option<u64>,
    /// Limits of the sandbox, in place of those of the settings.
    pub sandbox: Option<Limits>,
    /// Most sessions of its owner, where that is fewer than of all.
    pub most_of_owner: Option<usize>,
}

/// Which row a session plays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RowChoice {
    /// A random one.
    #[default]
    Any,
    /// The one that follows from this seed: the same seed chooses the same row.
    Seed(u64),
    /// The one with this place, from 0.
    Index(usize),
    /// The one with this id.
    Id(String),
}

/// The tasks that are served and the sessions at them. Clients are told apart by a name: each finds its own sessions only.
pub struct Environments<R: Runtime> {
    tasks: Vec<Served>,
    sandboxes: Arc<Sandboxes<R>>,
    options: Options,
    sessions: Mutex<Sessions>,
    closing: CancellationToken,
}

#[derive(Default)]
struct Sessions {
    live: HashMap<String, Arc<Session>>,
    gone: HashMap<String, (Arc<str>, GoneReason)>,
    /// The ids of `gone`, the oldest first.
    gone_order: VecDeque<String>,
}

impl<R: Runtime> Environments<R> {
    /// Serves these tasks. Each session takes one of the permits while it has a sandbox.
    pub fn new(
        runtime: Arc<R>,
        permits: Arc<Semaphore>,
        tasks: Vec<Served>,
        options: Options,
    ) -> Self {
        let sandboxes = Arc::new(Sandboxes::sharing(runtime, permits));
        Self {
            tasks,
            sandboxes,
            options,
            sessions: Mutex::default(),
            closing: CancellationToken::new(),
        }
    }

    /// The tasks that are served.
    pub fn tasks(&self) -> &[Served] {
        &self.tasks
    }

    /// Limits of sessions.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.lock().live.len()
    }

    /// The task of this name; the only one where the name is absent.
    pub fn task(&self, name: Option<&str>) -> Result<&Served, Error> {
        let served = || {
            let names = self.tasks.iter().map(|served| served.task.name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        match (name, self.tasks.as_slice()) {
            (None, [only]) => Ok(only),
            (None, _) => Err(Error::NoTask { served: served() }),
            (Some(name), tasks) => {
                let found = tasks.iter().find(|served| served.task.name == name);
                let name: String = name.chars().take(100).collect();
                found.ok_or_else(|| Error::UnknownTask { name, served: served() })
            }
        }
    }

    /// Starts a session and waits for its first observation for up to `wait`. `held` is kept while it has a sandbox. The
    /// session ends if nobody waits for the result.
    pub async fn reset(
        self: &Arc<Self>,
        owner: &str,
        reset: Reset,
        held: Permit,
        wait: Duration,
    ) -> Result<Snapshot, Error> {
        let session = self.start(owner, reset, held)?;
        let _hold = session.lease.hold();
        // Nobody knows the id of a session whose client leaves before it is told.
        let unknown = EndOnDrop(Some(&session));
        let settled = session.settled(wait).await;
        unknown.disarm();
        settled
    }

    fn start(
        self: &Arc<Self>,
        owner: &str,
        reset: Reset,
        held: Permit,
    ) -> Result<Arc<Session>, Error> {
        let served = self.task(reset.task.as_deref())?;
        let index = choose(served, &reset.row)?;
        let problem = served.problems.get(index).ok_or_else(|| unknown(served, &index))?;
        let new = NewSession {
            id: random_id::letters(ID_LENGTH).map_err(no_random)?,
            owner: owner.into(),
            task: Arc::clone(&served.task),
            row: RowId { id: problem.id.clone(), index },
            problem: Arc::clone(problem),
            settings: narrowed(served, &reset),
            format: reset.format,
            lease: self.options.lease,
            held,
        };
        let mut sessions = self.lock();
        if self.closing.is_cancelled() {
            return Err(Error::Gone(GoneReason::ShuttingDown));
        }
        let own = sessions.live.values().filter(|session| &*session.owner == owner).count();
        let most = self.options.max_sessions;
        let most_of_owner = reset.most_of_owner.unwrap_or(most).min(most);
        if sessions.live.len() >= most || own >= most_of_owner {
            let sessions = if own >= most_of_owner { most_of_owner } else { most };
            return Err(Error::Busy { sessions, retry_after: RETRY_AFTER });
        }
        let session = Session::start(new, Arc::clone(&self.sandboxes));
        sessions.live.insert(session.id.clone(), Arc::clone(&session));
        drop(sessions);
        tokio::spawn(watch(Arc::clone(self), Arc::clone(&session)));
        Ok(session)
    }

    /// Sends a response of the policy and waits up to `wait` for what follows from it. The same number and response again
    /// give the same result, and nothing is executed twice.
    pub async fn step(
        &self,
        owner: &str,
        id: &str,
        number: Option<u32>,
        response: Given,
        wait: Duration,
    ) -> Result<Snapshot, Error> {
        let session = self.find(owner, id)?;
        let _hold = session.lease.hold();
        session.begin_step(number, response)?;
        session.settled(wait).await
    }

    /// Grades the answer and waits for the score for up to `wait`. An episode that still runs ends: its client writes
    /// nothing more, and what is in the sandbox is graded.
    pub async fn score(&self, owner: &str, id: &str, wait: Duration) -> Result<Snapshot, Error> {
        let session = self.find(owner, id)?;
        let _hold = session.lease.hold();
        let begun = tokio::time::Instant::now();
        match tokio::time::timeout(wait, session.begin_score()).await {
            Ok(begun) => begun?,
            // A step still runs. It has to be asked for again.
            Err(_) => return session.snapshot(),
        }
        session.settled(wait.saturating_sub(begun.elapsed())).await
    }

    /// The state of a session, once nothing is pending or after `wait`. Renews its lease.
    pub async fn get(&self, owner: &str, id: &str, wait: Duration) -> Result<Snapshot, Error> {
        let session = self.find(owner, id)?;
        let _hold = session.lease.hold();
        session.settled(wait).await
    }

    /// Renews the lease of a session.
    pub fn heartbeat(&self, owner: &str, id: &str) -> Result<Snapshot, Error> {
        let session = self.find(owner, id)?;
        drop(session.lease.hold());
        session.snapshot()
    }

    /// Ends a session and waits until its sandbox is gone. A session that is gone already is no error.
    pub async fn close(&self, owner: &str, id: &str) -> Result<GoneReason, Error> {
        let session = match self.find(owner, id) {
            Ok(session) => session,
            Err(Error::Gone(reason)) => return Ok(reason),
            Err(error) => return Err(error),
        };
        session.end(GoneReason::Closed);
        // Removing a sandbox that does not answer goes on without this client.
        let _ = tokio::time::timeout(CLOSING, session.finished.cancelled()).await;
        Ok(GoneReason::Closed)
    }

    /// Ends all sessions and refuses new ones. Their permits are free once their sandboxes are gone.
    pub fn shut_down(&self) {
        self.closing.cancel();
        for session in self.live() {
            session.end(GoneReason::ShuttingDown);
        }
    }

    /// Waits until the sessions are shut down.
    pub async fn shutting_down(&self) {
        self.closing.cancelled().await;
    }

    /// Ends the sessions of clients that are not to be kept.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        for session in self.live() {
            if !is_kept(&session.owner) {
                session.end(GoneReason::Closed);
            }
        }
    }

    fn live(&self) -> Vec<Arc<Session>> {
        self.lock().live.values().cloned().collect()
    }

    fn find(&self, owner: &str, id: &str) -> Result<Arc<Session>, Error> {
        let sessions = self.lock();
        if let Some(session) = sessions.live.get(id).filter(|session| &*session.owner == owner) {
            return Ok(Arc::clone(session));
        }
        match sessions.gone.get(id) {
            Some((whose, reason)) if &**whose == owner => Err(Error::Gone(reason.clone())),
            _ => Err(Error::UnknownSession(id.chars().take(100).collect())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a session unless it is disarmed.
struct EndOnDrop<'a>(Option<&'a Session>);

impl EndOnDrop<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.end(GoneReason::Closed);
        }
    }
}

impl Sessions {
    /// Forgets a session but for why it ended.
    fn bury(&mut self, session: &Session, reason: GoneReason) {
        self.live.remove(&session.id);
        self.gone.insert(session.id.clone(), (Arc::clone(&session.owner), reason));
        self.gone_order.push_back(session.id.clone());
        while self.gone_order.len() > MAX_GONE {
            if let Some(id) = self.gone_order.pop_front() {
                self.gone.remove(&id);
            }
        }
    }
}

/// Ends a session when its lease expires, and forgets it when it has ended.
async fn watch<R: Runtime>(environments: Arc<Environments<R>>, session: Arc<Session>) {
    tokio::select! {
        () = session.lease.expired() => {
            session.end(GoneReason::LeaseExpired(session.lease.length()));
        }
        () = session.cancel.cancelled() => {}
    }
    let reason = match session.snapshot() {
        Err(Error::Gone(reason)) => reason,
        _ => GoneReason::Failed,
    };
    environments.lock().bury(&session, reason);
}

/// The settings of a session: those of the task, with limits that may only be lower.
fn narrowed(served: &Served, reset: &Reset) -> Arc<Settings> {
    if reset.turns.is_none() && reset.tokens.is_none() && reset.sandbox.is_none() {
        return Arc::clone(&served.settings);
    }
    let mut settings = Settings::clone(&served.settings);
    let usual = settings.limits(&served.task);
    settings.limits.turns = Some(reset.turns.unwrap_or(u32::MAX).clamp(1, usual.turns.max(1)));
    settings.limits.tokens = Some(reset.tokens.unwrap_or(u64::MAX).clamp(1, usual.tokens.max(1)));
    if let Some(limits) = &reset.sandbox {
        settings.sandbox.limits = limits.clone();
    }
    Arc::new(settings)
}

fn choose(served: &Served, row: &RowChoice) -> Result<usize, Error> {
    let count = served.problems.len();
    let drawn = |seed: u64| SplitMix64::new(seed).below(count);
    match row {
        RowChoice::Any => {
            let mut seed = [0; 8];
            random_id::fill(&mut seed).map_err(no_random)?;
            Ok(drawn(u64::from_le_bytes(seed)))
        }
        RowChoice::Seed(seed) => Ok(drawn(*seed)),
        RowChoice::Index(index) if *index < count => Ok(*index),
        RowChoice::Index(index) => Err(unknown(served, index)),
        RowChoice::Id(id) => {
            let shown: String = id.chars().take(100).collect();
            served.by_id.get(id).copied().ok_or_else(|| unknown(served, &format!("`{shown}`")))
        }
    }
}

fn unknown(served: &Served, row: &dyn fmt::Display) -> Error {
    Error::UnknownRow { task: served.task.name.clone(), row: row.to_string() }
}

fn no_random(error: std::io::Error) -> Error {
    Error::Random(error.to_string())
}

impl<R: Runtime> fmt::Debug for Environments<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environments").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use problems::{Problem, Task};
    use serde_json::json;

    use super::*;

    fn served() -> Served {
        let rows = ["a", "b", "c"].map(|id| {
            let row = json!({"id": id, "problem_statement": "?", "ground_truth": "1"});
            Problem::from_row(row).unwrap()
        });
        Served::new(Task::builtin("math").unwrap(), rows.into(), Settings::default()).unwrap()
    }

    #[test]
    fn rows_are_chosen_by_place_id_or_seed() {
        let served = served();
        let choose = |row| choose(&served, &row);
        assert_eq!(choose(RowChoice::Index(2)), Ok(2));
        assert_eq!(choose(RowChoice::Id("b".into())), Ok(1));
        assert!(choose(RowChoice::Index(3)).is_err() && choose(RowChoice::Id("d".into())).is_err());
        assert_eq!(choose(RowChoice::Seed(5)), choose(RowChoice::Seed(5)));
        let drawn = (0..50).map(|seed| choose(RowChoice::Seed(seed)).unwrap());
        assert_eq!(drawn.collect::<std::collections::BTreeSet<_>>().len(), 3);
        assert!(choose(RowChoice::Any).unwrap() < 3);
    }

    #[test]
    fn clients_lower_limits_and_never_raise_them() {
        let served = served();
        let usual = served.settings.limits(&served.task);
        let limits = |turns, tokens| {
            let settings = narrowed(&served, &Reset { turns, tokens, ..Reset::default() });
            let limits = settings.limits(&served.task);
            (limits.turns, limits.tokens)
        };
        assert_eq!(limits(Some(3), None), (3, usual.tokens));
        assert_eq!(limits(Some(u32::MAX), Some(u64::MAX)), (usual.turns, usual.tokens));
        assert_eq!(limits(Some(0), Some(0)), (1, 1));
    }

    #[test]
    fn a_task_that_needs_a_judge_is_refused() {
        let row = json!({"id": "a", "problem_statement": "?", "ground_truth": "1"});
        let problem = Problem::from_row(row).unwrap();
        let task = Task::builtin("physics").unwrap();
        let refused = Served::new(task, vec![problem], Settings::default()).err();
        assert_eq!(refused, Some(crate::ServedError::Judge("physics".into())));
        let task = Task::builtin("math").unwrap();
        let empty = Served::new(task, Vec::new(), Settings::default()).err();
        assert_eq!(empty, Some(crate::ServedError::NoRows("math".into())));
    }
}
