//! One episode: the main loop, what it starts from, and its state. The steps of a turn are in `turn.rs`.
//!
//! Every step records its events before it returns. A step that ends the episode breaks with the [`Outcome`].

mod changes;
mod conversation;
mod repetition;
mod turn;

use std::{
    convert::Infallible,
    future::Future,
    ops::ControlFlow::{self, Break, Continue},
    path::PathBuf,
    time::{Duration, Instant},
};

use model::{Model, Price, Sampling};
use sandbox::Sandbox;
use tokio_util::sync::CancellationToken;
use tracing::{debug, instrument, warn};
use trajectory::{
    Assistant, Ended, Event, Fault, Message, Observed, Outcome, Spent, Started, Stop,
};

use self::{
    changes::Tracker,
    conversation::{Conversation, append_line},
    repetition::Repetition,
};
use crate::{
    Compaction, Journal, Limits, text,
    tools::{Tool, Toolbox, Tools},
};

/// Runs an episode to its end. A failure of the infrastructure is an outcome as well.
#[instrument(name = "episode", skip_all)]
pub async fn run<M: Model, S: Sandbox, J: Journal<S>>(mut episode: Episode<'_, M, S, J>) -> Ended {
    let ControlFlow::Break(outcome) = run_turns(&mut episode).await;
    episode.save(&outcome).await;
    episode.end(outcome)
}

async fn run_turns<M: Model, S: Sandbox, J: Journal<S>>(
    episode: &mut Episode<'_, M, S, J>,
) -> ControlFlow<Outcome, Infallible> {
    episode.start()?;
    // In boxes, as a rare part of a future that all of a program's attempts are made of: it is moved, and its size is that of
    // its largest part.
    Box::pin(episode.note_files()).await?;
    loop {
        episode.check_limits()?;
        run_turn(episode).await?;
    }
}

#[instrument(name = "turn", skip_all, fields(turn = episode.next_turn()))]
async fn run_turn<M: Model, S: Sandbox, J: Journal<S>>(
    episode: &mut Episode<'_, M, S, J>,
) -> ControlFlow<Outcome> {
    let response = episode.query_model().await?;
    if response.calls.is_empty() {
        episode.remind(&response)?;
    }
    for call in &response.calls {
        let done = episode.run_tool(call).await;
        if let Break(Outcome::Submitted) = done {
            Box::pin(episode.record_changes()).await?;
        }
        done?;
    }
    if !response.calls.is_empty() {
        Box::pin(episode.record_changes()).await?;
    }
    episode.finish_turn().await
}

/// Settings of an episode.
#[derive(Clone, Debug, Default)]
pub struct EpisodeSettings {
    /// When the episode ends without the model's consent.
    pub limits: Limits,
    /// The built-in tools.
    pub tools: Tools,
    /// How the model's output is sampled.
    pub sampling: Sampling,
    /// What the model costs. `None` where that is not known; the cost limit then has no effect.
    pub price: Option<Price>,
    /// When old tool results are shortened. `None`: never.
    pub compaction: Option<Compaction>,
    /// The directory for results inside the sandbox. The first submission with no file in it is sent back to the
    /// model. `None`: every submission is accepted.
    pub output_dir: Option<PathBuf>,
    /// The file for the answer inside the sandbox. A block of commands that ends with `submit` submits only if this
    /// file has content. `None`: any file in `output_dir`.
    pub answer_file: Option<PathBuf>,
    /// Whether the files that each turn changes are recorded.
    pub changes: FileChanges,
}

/// What is recorded of the files that turns change below the working directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileChanges {
    /// Nothing.
    #[default]
    Ignored,
    /// Their names, and the content of small text files, as [`Event::Changed`], where the runtime can tell.
    Recorded,
}

/// What an episode starts from.
#[derive(Debug)]
pub enum Opening {
    /// A new conversation.
    Fresh(Box<Started>),
    /// An interrupted conversation, as it was after its last complete turn.
    Resumed {
        /// The messages.
        history: Vec<Message>,
        /// What the episode has spent so far.
        spent: Spent,
        /// How many of the first messages the model saw shortened.
        compacted: usize,
        /// Where the files of the sandbox come from.
        files: RestoredFiles,
    },
}

/// Where the files of a resumed episode's sandbox come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoredFiles {
    /// They were saved after the last turn of the conversation.
    Saved,
    /// All commands of the conversation were run again.
    Repeated,
}

/// An episode: one task, solved by a model in a sandbox. Pass it to [`run()`].
#[derive(Debug)]
pub struct Episode<'a, M, S, J> {
    model: &'a M,
    sandbox: &'a S,
    journal: &'a J,
    settings: &'a EpisodeSettings,
    cancel: CancellationToken,
    tools: Toolbox<'a, S>,
    opening: Option<Opening>,
    conversation: Conversation,
    spent: Spent,
    deadline: Option<tokio::time::Instant>,
    turn: Turn,
    repetition: Repetition,
    tracker: Tracker,
    /// Turns in a row without a usable tool call.
    misses: u32,
    /// Tool calls so far. The number names the files of long outputs.
    tool_calls: u32,
    /// Whether a submission was sent back to the model because it had no result.
    objected: bool,
}

/// The state of one turn: a response and the results of its tool calls.
#[derive(Debug)]
struct Turn {
    /// Why the response ended.
    stop: Stop,
    /// Tool calls so far.
    calls: usize,
    /// Those of them with a known tool and valid arguments.
    usable_calls: u32,
    /// Messages the model still gets in this turn.
    pending: usize,
    /// Whether the response submits once its calls have succeeded.
    then_submit: bool,
}

impl Turn {
    fn new(stop: Stop, calls: usize) -> Self {
        // A response without calls gets a reminder.
        Self { stop, calls: 0, usable_calls: 0, pending: calls.max(1), then_submit: false }
    }
}

impl<'a, M: Model, S: Sandbox, J: Journal<S>> Episode<'a, M, S, J> {
    /// An episode with the built-in tools. It ends with [`Outcome::Cancelled`] once `cancel` is cancelled.
    pub fn new(
        model: &'a M,
        sandbox: &'a S,
        journal: &'a J,
        settings: &'a EpisodeSettings,
        opening: Opening,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            model,
            sandbox,
            journal,
            settings,
            cancel,
            tools: Toolbox::new(&settings.tools),
            opening: Some(opening),
            conversation: Conversation::default(),
            spent: Spent::default(),
            deadline: None,
            turn: Turn::new(Stop::End, 0),
            repetition: Repetition::default(),
            tracker: Tracker::default(),
            misses: 0,
            tool_calls: 0,
            objected: false,
        }
    }

    /// Adds tools to the built-in ones. A tool replaces the one of the same name.
    pub fn with_tools(mut self, tools: &'a [&'a dyn Tool<S>]) -> Self {
        self.tools.add(tools);
        self
    }

    /// Records the start, or the resumption, and sets the deadline.
    fn start(&mut self) -> ControlFlow<Outcome> {
        match self.opening.take() {
            Some(Opening::Fresh(mut started)) => {
                if let Some(task) = started.messages.last_mut() {
                    self.settings.tools.set.append_note(task);
                    append_line(task, self.countdown());
                }
                self.conversation = Conversation::new(started.messages.clone(), 0);
                self.record(Event::Started(started))?;
            }
            Some(Opening::Resumed { history, spent, compacted, files }) => {
                self.conversation = Conversation::new(history, compacted);
                self.tool_calls = self.conversation.tool_calls();
                self.spent = spent;
                self.record(Event::Resumed { turn: spent.turns })?;
                self.observe(Message::user(text::restarted(files)), None, 0)?;
            }
            None => {}
        }
        let used = self.spent.model_ms.saturating_add(self.spent.tool_ms);
        let used = Duration::from_millis(used);
        let left = self.settings.limits.time.map(|limit| limit.saturating_sub(used));
        self.deadline = left.and_then(|left| tokio::time::Instant::now().checked_add(left));
        Continue(())
    }

    /// Ends the episode if a limit is reached.
    fn check_limits(&self) -> ControlFlow<Outcome> {
        let check = self.settings.limits.check(&self.spent, self.misses);
        if let Break(limit) = &check {
            debug!(limit = limit.name(), "limit reached");
        }
        check
    }

    /// The number of the turn that comes next, from 1.
    fn next_turn(&self) -> u32 {
        self.spent.turns + 1
    }

    /// Tells a model that called no tool how to do so.
    fn remind(&mut self, response: &Assistant) -> ControlFlow<Outcome> {
        debug!(stop = ?self.turn.stop, "no tool call: the model is reminded");
        let hint = self.model.tool_call_hint(self.tools.specs());
        let reminder = text::reminder(&self.turn.stop, &response.text, hint);
        self.observe(Message::user(reminder), None, 0)
    }

    /// Counts turns without a usable tool call, and lets the journal save files.
    async fn finish_turn(&mut self) -> ControlFlow<Outcome> {
        self.misses = if self.turn.usable_calls == 0 { self.misses + 1 } else { 0 };
        let saving = self.journal.on_turn_end(self.spent.turns, self.sandbox);
        until_stopped(saving, &self.cancel, self.deadline).await
    }

    /// Lets the journal save files before the end, unless the last turn is incomplete.
    async fn save(&self, outcome: &Outcome) {
        if self.spent.turns > 0 && self.turn.pending == 0 {
            self.journal.on_end(self.spent.turns, outcome, self.sandbox).await;
        }
    }

    /// Records the outcome.
    fn end(self, outcome: Outcome) -> Ended {
        if let Outcome::Infrastructure { cause, fault } = &outcome {
            warn!(cause, ?fault, "infrastructure failure");
        } else {
            debug!(outcome = outcome.name(), turns = self.spent.turns, "episode ended");
        }
        let ended = Ended { outcome, spent: self.spent };
        match self.record(Event::Ended(ended.clone())) {
            // A failure before this one says more than that it cannot be recorded either.
            Break(outcome) if !matches!(ended.outcome, Outcome::Infrastructure { .. }) => {
                Ended { outcome, spent: self.spent }
            }
            _ => ended,
        }
    }

    /// Adds a message for the model to the conversation; the last one of a turn ends with the countdown.
    fn observe(
        &mut self,
        mut message: Message,
        exit_code: Option<i32>,
        millis: u64,
    ) -> ControlFlow<Outcome> {
        self.turn.pending = self.turn.pending.saturating_sub(1);
        if self.turn.pending == 0 {
            append_line(&mut message, self.countdown());
        }
        self.conversation.push(message.clone());
        let turn = self.spent.turns;
        self.record(Event::Observed(Box::new(Observed { turn, message, exit_code, millis })))
    }

    fn countdown(&self) -> String {
        text::countdown(self.settings.limits.turns.saturating_sub(self.spent.turns))
    }

    fn record(&self, event: Event) -> ControlFlow<Outcome> {
        match self.journal.record(event) {
            Ok(()) => Continue(()),
            Err(error) => Break(Outcome::Infrastructure {
                cause: format!("cannot write the record: {error}"),
                fault: Fault::Storage,
            }),
        }
    }
}

/// Waits for `work`, unless the episode is cancelled or its deadline passes first.
async fn until_stopped<T>(
    work: impl Future<Output = T>,
    cancel: &CancellationToken,
    deadline: Option<tokio::time::Instant>,
) -> ControlFlow<Outcome, T> {
    let deadline = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = cancel.cancelled() => Break(Outcome::Cancelled),
        () = deadline => Break(Outcome::Deadline),
        done = work => Continue(done),
    }
}

fn millis_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}
