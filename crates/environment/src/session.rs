//! One session: its state, and the task that plays its attempt.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use attempt::{Attempt, EventLog, Mode, Play, Sandboxes, Settings};
use model::{Formatted, Given, Permit, ToolFormat};
use problems::{Problem, Task};
use sandbox::Runtime;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use trajectory::{Event, Outcome};

use crate::{
    Error, GoneReason, Phase, RowId, Score, Snapshot, Turn,
    driver::{Driver, Input},
    lease::Lease,
};

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    /// Whose it is.
    pub(crate) owner: Arc<str>,
    task: Arc<Task>,
    row: RowId,
    pub(crate) lease: Lease,
    pub(crate) cancel: CancellationToken,
    state: watch::Sender<State>,
    /// To the driver, which takes one at a time.
    input: mpsc::Sender<Input>,
    started: AtomicBool,
    score_wanted: Notify,
    /// Cancelled when the sandbox is gone and nothing runs any more.
    pub(crate) finished: CancellationToken,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    step: u32,
    /// The response that led to `turn`, or that is being executed.
    response: Option<u64>,
    turn: Option<Arc<Turn>>,
    outcome: Option<Outcome>,
    score: Option<Arc<Score>>,
    is_scoring: bool,
}

/// What a session is made of.
pub(crate) struct NewSession {
    pub(crate) id: String,
    pub(crate) owner: Arc<str>,
    pub(crate) task: Arc<Task>,
    pub(crate) problem: Arc<Problem>,
    pub(crate) row: RowId,
    pub(crate) settings: Arc<Settings>,
    pub(crate) format: ToolFormat,
    pub(crate) lease: Duration,
    /// Kept while the session has a sandbox, or may need one for grading.
    pub(crate) held: Permit,
}

impl Session {
    /// Starts a session. Its sandbox is created in the background.
    pub(crate) fn start<R: Runtime>(new: NewSession, sandboxes: Arc<Sandboxes<R>>) -> Arc<Self> {
        // One more than the driver takes: the message that ends the episode.
        let (input, inbox) = mpsc::channel(2);
        let state = State {
            phase: Phase::Starting,
            step: 0,
            response: None,
            turn: None,
            outcome: None,
            score: None,
            is_scoring: false,
        };
        let session = Arc::new(Self {
            id: new.id,
            owner: new.owner,
            task: Arc::clone(&new.task),
            row: new.row,
            lease: Lease::new(new.lease),
            cancel: CancellationToken::new(),
            state: watch::Sender::new(state),
            input,
            started: AtomicBool::new(false),
            score_wanted: Notify::new(),
            finished: CancellationToken::new(),
        });
        let driver = Driver { session: Arc::clone(&session), inbox: Mutex::new(inbox) };
        let played = Played {
            session: Arc::clone(&session),
            model: Formatted::new(driver, new.format),
            task: new.task,
            problem: new.problem,
            settings: new.settings,
            sandboxes,
        };
        tokio::spawn(played.run(new.held));
        session
    }

    /// Whether the first observation was published.
    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Publishes what the model sees next.
    pub(crate) fn observed(&self, turn: Turn) {
        self.started.store(true, Ordering::Relaxed);
        self.state.send_modify(|state| {
            if matches!(state.phase, Phase::Gone(_)) {
                return;
            }
            if state.phase == Phase::Stepping {
                state.step = state.step.saturating_add(1);
            }
            state.phase = Phase::Ready;
            state.turn = Some(Arc::new(turn));
        });
    }

    /// Publishes the end of the episode.
    fn ended(&self, attempt: &Attempt) {
        self.state.send_modify(|state| {
            if matches!(state.phase, Phase::Gone(_)) {
                return;
            }
            // An episode that the client ended has no new result.
            if state.phase == Phase::Stepping {
                state.step = state.step.saturating_add(1);
                state.turn = Some(Arc::new(last_turn(attempt)));
            }
            state.phase = Phase::Done;
            state.outcome = Some(attempt.outcome.clone());
        });
    }

    fn scored(&self, score: Score) {
        self.state.send_modify(|state| {
            state.score = Some(Arc::new(score));
            state.is_scoring = false;
        });
    }

    /// Ends the session. Whether it was not gone before.
    pub(crate) fn end(&self, reason: GoneReason) -> bool {
        let changed = self.state.send_if_modified(|state| {
            let changed = !matches!(state.phase, Phase::Gone(_));
            if changed {
                state.phase = Phase::Gone(reason);
                state.turn = None;
                state.is_scoring = false;
            }
            changed
        });
        self.cancel.cancel();
        changed
    }

    /// Starts a step, unless it runs already or is done: then it is the same step, sent again.
    pub(crate) fn begin_step(&self, number: Option<u32>, given: Given) -> Result<(), Error> {
        let mut hasher = DefaultHasher::new();
        given.hash(&mut hasher);
        let response = Some(hasher.finish());
        let mut result = Ok(());
        self.state.send_if_modified(|state| match state.check_step(number, response) {
            Err(error) => {
                result = Err(error);
                false
            }
            Ok(Repeated::Yes) => false,
            Ok(Repeated::No) => {
                // There is room: the driver has taken what came before.
                let _ = self.input.try_send(Input::Response(Box::new(given)));
                state.phase = Phase::Stepping;
                state.response = response;
                true
            }
        });
        result
    }

    /// Asks for the score. An episode that still runs ends first: its client writes nothing more.
    pub(crate) async fn begin_score(&self) -> Result<(), Error> {
        let mut states = self.state.subscribe();
        let may_end = |state: &State| !matches!(state.phase, Phase::Stepping);
        // The sender lives as long as the session.
        let _ = states.wait_for(may_end).await;
        let mut result = Ok(());
        self.state.send_if_modified(|state| {
            result = match &state.phase {
                Phase::Starting => Err(Error::Starting),
                Phase::Gone(reason) => Err(Error::Gone(reason.clone())),
                _ => Ok(()),
            };
            let is_new = result.is_ok() && state.score.is_none() && !state.is_scoring;
            if is_new {
                if state.phase == Phase::Ready {
                    let _ = self.input.try_send(Input::Stop);
                }
                state.is_scoring = true;
                self.score_wanted.notify_one();
            }
            is_new
        });
        result
    }

    /// The state once nothing is pending, or after `wait`.
    pub(crate) async fn settled(&self, wait: Duration) -> Result<Snapshot, Error> {
        let mut states = self.state.subscribe();
        let is_settled = |state: &State| {
            let pending = matches!(state.phase, Phase::Starting | Phase::Stepping);
            !pending && !state.is_scoring
        };
        let _ = tokio::time::timeout(wait, states.wait_for(is_settled)).await;
        self.snapshot()
    }

    /// The state now.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, Error> {
        let state = self.state.borrow();
        if let Phase::Gone(reason) = &state.phase {
            return Err(Error::Gone(reason.clone()));
        }
        Ok(Snapshot {
            id: self.id.clone(),
            task: self.task.name.clone(),
            row: self.row.clone(),
            phase: state.phase.clone(),
            step: state.step,
            turn: state.turn.clone(),
            outcome: state.outcome.clone(),
            score: state.score.clone(),
            is_scoring: state.is_scoring,
            lease: self.lease.length(),
            lease_left: self.lease.left(),
        })
    }
}

/// Whether a step was sent before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeated {
    Yes,
    No,
}

impl State {
    fn check_step(&self, number: Option<u32>, response: Option<u64>) -> Result<Repeated, Error> {
        if let Phase::Gone(reason) = &self.phase {
            return Err(Error::Gone(reason.clone()));
        }
        let next = self.step.saturating_add(1);
        let is_running = self.phase == Phase::Stepping;
        let known = if is_running { next } else { self.step };
        match number {
            // The reset is not a step.
            Some(number) if number == known && known > 0 => match self.response == response {
                true => Ok(Repeated::Yes),
                false => Err(Error::OtherMessage(number)),
            },
            _ if is_running => Err(Error::Running(next)),
            _ if self.phase == Phase::Starting => Err(Error::Starting),
            _ if self.phase == Phase::Done || self.is_scoring => Err(Error::Over(self.step)),
            Some(got) if got != next => Err(Error::WrongStep { got, next }),
            _ => Ok(Repeated::No),
        }
    }
}

/// What the model would have seen after the last response.
fn last_turn(attempt: &Attempt) -> Turn {
    let mut turn = Turn { outcome: Some(attempt.outcome.clone()), ..Turn::default() };
    for line in &attempt.events {
        match &line.event {
            Event::Responded(responded) => {
                turn.message = Some(responded.message.clone());
                turn.messages.clear();
            }
            Event::Observed(observed) => turn.messages.push(observed.message.clone()),
            _ => {}
        }
    }
    turn
}

/// The attempt behind a session.
struct Played<R: Runtime> {
    session: Arc<Session>,
    model: Formatted<Driver>,
    task: Arc<Task>,
    problem: Arc<Problem>,
    settings: Arc<Settings>,
    sandboxes: Arc<Sandboxes<R>>,
}

impl<R: Runtime> Played<R> {
    async fn run(self, held: Permit) {
        let session = Arc::clone(&self.session);
        // Also where a defect ends this task: a session that answers nothing would keep its clients.
        let _guard = FinishGuard(&session);
        let play = Play {
            problem: &self.problem,
            task: &self.task,
            mode: Mode::Sandbox,
            model: &self.model,
            sandboxes: &self.sandboxes,
            settings: &self.settings,
            seed: None,
            cancel: session.cancel.clone(),
        };
        let mut attempt = attempt::answer(&play, EventLog::in_memory()).await;
        // A grader that runs in a sandbox takes the place of the episode's.
        let held = Some(held).filter(|_| !self.task.grader.is_immediate() && attempt.is_answered());
        session.ended(&attempt);
        attempt.events = Vec::new();
        tokio::select! {
            biased;
            () = session.cancel.cancelled() => return,
            () = session.score_wanted.notified() => {}
        }
        if attempt.is_answered() {
            let graded = attempt::grade(&play, &attempt.answer).await;
            attempt.apply(graded);
        }
        attempt.answer = String::new();
        drop(held);
        session.scored(Score::of(&attempt));
        session.cancel.cancelled().await;
    }
}

/// Marks a session as finished, however its task ends.
struct FinishGuard<'a>(&'a Session);

impl Drop for FinishGuard<'_> {
    fn drop(&mut self) {
        self.0.end(GoneReason::Failed);
        self.0.finished.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(phase: Phase, step: u32) -> State {
        State {
            phase,
            step,
            response: Some(7),
            turn: None,
            outcome: None,
            score: None,
            is_scoring: false,
        }
    }

    #[test]
    fn a_step_is_taken_once_and_in_order() {
        let check = |phase: Phase, number, response| {
            let checked = state(phase, 2).check_step(number, Some(response));
            checked.map(|repeated| repeated == Repeated::Yes)
        };
        assert_eq!(check(Phase::Ready, Some(3), 8), Ok(false));
        assert_eq!(check(Phase::Ready, None, 8), Ok(false));
        assert_eq!(check(Phase::Ready, Some(2), 7), Ok(true));
        assert_eq!(check(Phase::Ready, Some(2), 8), Err(Error::OtherMessage(2)));
        assert_eq!(check(Phase::Ready, Some(1), 7), Err(Error::WrongStep { got: 1, next: 3 }));
        assert_eq!(check(Phase::Ready, Some(4), 7), Err(Error::WrongStep { got: 4, next: 3 }));
        assert_eq!(check(Phase::Stepping, Some(3), 7), Ok(true));
        assert_eq!(check(Phase::Stepping, Some(3), 8), Err(Error::OtherMessage(3)));
        assert_eq!(check(Phase::Stepping, None, 7), Err(Error::Running(3)));
        assert_eq!(check(Phase::Done, Some(2), 7), Ok(true), "the last result is kept");
        assert_eq!(check(Phase::Done, Some(3), 8), Err(Error::Over(2)));
        assert_eq!(check(Phase::Starting, None, 8), Err(Error::Starting));
        let reset = state(Phase::Ready, 0).check_step(Some(0), Some(7));
        assert_eq!(reset.err(), Some(Error::WrongStep { got: 0, next: 1 }));
    }
}
