//! One episode: its conversation, what it has used up, and the single acts the loop is made of.
//!
//! Each act records what happened before it returns. An act that finds the end breaks off with it.

use std::{
    borrow::Cow,
    future::Future,
    ops::ControlFlow::{self, Break, Continue},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use model::{Delta, LastFailure, Listener, Model, Place, Price, Request, Sampling, ToolSpec};
use sandbox::{EntryKind, Error, Sandbox};
use trajectory::{
    Assistant, Content, Ended, Event, Message, Observed, Outcome, Replied, Spent, Started, Stop,
    ToolCall, ToolResult,
};

use crate::{
    Journal, Limits, Watch,
    compact::Compaction,
    tools::{Done, Observation, Tools},
};

/// No token stands for more bytes, on the whole.
const MOST_BYTES: u64 = 32;

/// No sensible reply wants more done at once.
const MOST_CALLS: usize = 32;

/// What the model of a resumed episode is told.
const RESTARTED: &str = "Your computer was restarted. The files are as you left them; variables, the current \
                         directory of the shell and running programs are gone.";

/// What a model is told that does the same again and sees the same. Small ones go on with it to the end.
const REPEATED: &str =
    "[the same call gave the same result before: do something else, or submit if all is done]";

/// The temperature of a reply after a repetition.
const RESTLESS: f64 = 0.8;

/// What an episode starts from.
#[derive(Debug)]
pub enum Opening {
    /// A new conversation.
    Fresh(Box<Started>),
    /// One that broke off, as it was after its last complete turn.
    Resumed {
        /// The messages.
        history: Vec<Message>,
        /// What it had used up.
        spent: Spent,
        /// How many of the first messages the model saw shortened.
        compacted: usize,
    },
}

/// Everything one episode needs.
#[derive(Debug)]
pub struct Episode<'a, M, S, J> {
    /// Who thinks.
    model: &'a M,
    /// The computer.
    sandbox: &'a S,
    /// Who keeps the record.
    journal: &'a J,
    settings: &'a Settings,
    watch: Watch,
    opening: Option<Opening>,
    specs: Vec<ToolSpec>,
    history: Vec<Message>,
    spent: Spent,
    /// Replies in a row that led to nothing.
    misses: u32,
    /// Calls of this turn that could be made sense of.
    understood: u32,
    /// Calls in a row that repeated the one before, with the same result.
    repeats: u32,
    /// The last call, and what came of it.
    last: Option<(ToolCall, Vec<Content>)>,
    /// Calls carried out so far; numbers the files of long outputs.
    calls: u32,
    /// Why the model's last reply ended.
    stop: Stop,
    /// Calls of this turn so far.
    carried_out: usize,
    /// What the model still has to get to see in this turn.
    open: usize,
    /// How many of the first messages the model sees shortened.
    compacted: usize,
    deadline: Option<tokio::time::Instant>,
    /// Whether the model was asked if it means to submit nothing.
    doubted: Doubted,
}

/// Whether the model was asked if it means to submit nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubted {
    NotYet,
    Once,
}

/// How an episode is played.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What it may use up.
    pub limits: Limits,
    /// How the tools behave.
    pub tools: Tools,
    /// How the model chooses its words.
    pub sampling: Sampling,
    /// What the model costs, where that is known.
    pub price: Option<Price>,
    /// Whether and when old results are shortened.
    pub compaction: Option<Compaction>,
    /// Where results belong. A model that submits with no file there is asked once whether it means it.
    pub deliver_to: Option<PathBuf>,
}

impl<'a, M: Model, S: Sandbox, J: Journal<S>> Episode<'a, M, S, J> {
    /// An episode about to be played.
    pub fn new(
        model: &'a M,
        sandbox: &'a S,
        journal: &'a J,
        settings: &'a Settings,
        opening: Opening,
        watch: Watch,
    ) -> Self {
        let specs = settings.tools.specs();
        Self {
            model,
            sandbox,
            journal,
            settings,
            watch,
            opening: Some(opening),
            specs,
            history: Vec::new(),
            spent: Spent::default(),
            misses: 0,
            understood: 0,
            repeats: 0,
            last: None,
            calls: 0,
            stop: Stop::End,
            carried_out: 0,
            open: 0,
            compacted: 0,
            deadline: None,
            doubted: Doubted::NotYet,
        }
    }

    /// Takes up the conversation.
    pub(crate) fn begin(&mut self) -> ControlFlow<Outcome> {
        match self.opening.take() {
            Some(Opening::Fresh(mut started)) => {
                self.settings.tools.set.tell(started.messages.last_mut());
                self.count_down(started.messages.last_mut());
                self.history.clone_from(&started.messages);
                self.record(Event::Started(started))?;
            }
            Some(Opening::Resumed { history, spent, compacted }) => {
                let calls = history.iter().map(|message| match message {
                    Message::Assistant(said) => said.calls.len(),
                    _ => 0,
                });
                self.calls = u32::try_from(calls.sum::<usize>()).unwrap_or(u32::MAX);
                self.history = history;
                self.spent = spent;
                self.compacted = compacted;
                self.record(Event::Resumed { turn: spent.turns })?;
                self.observe(Message::user(RESTARTED), None, 0)?;
            }
            None => {}
        }
        let used = self.spent.model_ms.saturating_add(self.spent.tool_ms);
        let used = Duration::from_millis(used);
        let left = self.settings.limits.time.map(|limit| limit.saturating_sub(used));
        self.deadline = left.and_then(|left| tokio::time::Instant::now().checked_add(left));
        Continue(())
    }

    /// Ends an episode that may not go on.
    pub(crate) fn within_limits(&self) -> ControlFlow<Outcome> {
        self.settings.limits.check(&self.spent, self.misses)
    }

    /// Asks the model for its next reply and adds it to the conversation.
    pub(crate) async fn ask(&mut self) -> ControlFlow<Outcome, Assistant> {
        let turn = self.spent.turns + 1;
        self.compact(turn)?;
        let _place = self.place().await?;
        let began = Instant::now();
        let shown = Compaction::apply(&self.history, self.compacted);
        let sampling = restless(&self.settings.sampling, std::mem::take(&mut self.repeats));
        let request = Request {
            messages: &shown,
            tools: &self.specs,
            sampling: &sampling,
            max_tokens: self.settings.limits.next_reply(&self.spent),
        };
        let (failure, _sandbox) = (LastFailure::default(), std::marker::PhantomData);
        let hearing = Hearing { journal: self.journal, turn, failure: &failure, _sandbox };
        let asked = self.model.complete(&request, &hearing);
        let asked = unless_stopped(asked, &mut self.watch, self.deadline).await;
        let millis = millis_since(began);
        // A call that is cut short took its time as well.
        self.spent.model_ms = self.spent.model_ms.saturating_add(millis);
        let asked = match (asked, failure.take()) {
            // A server that fails says nothing about the model.
            (Break(Outcome::Deadline), Some(why)) => {
                let cause = format!("time was up while calls to the model failed: {why}");
                return Break(Outcome::Infrastructure { cause });
            }
            (asked, _) => asked?,
        };
        let reply = match asked {
            Ok(reply) => reply,
            Err(model::Error::Overflow { .. }) => return Break(Outcome::ContextFull),
            Err(error) => return Break(infrastructure(&error)),
        };
        let sent: usize = shown.iter().map(Message::size).sum();
        drop(shown);
        let cost = match (&self.settings.price, reply.from_cache) {
            (Some(_), true) => Some(0.0),
            (Some(price), false) => Some(price.cost(&reply.usage)),
            (None, _) => None,
        };
        self.spent.turns = turn;
        self.spent.usage += reply.usage;
        // A server that counts too few tokens, or none, must not make the conversation endless.
        let least = (sent + reply.message.size()) as u64 / MOST_BYTES;
        self.spent.context = reply.usage.total().max(least);
        self.spent.cost = cost.map(|cost| cost + self.spent.cost.unwrap_or(0.0));
        let message = reply.message;
        self.open = message.calls.len().max(1);
        self.understood = 0;
        self.carried_out = 0;
        self.stop = reply.stop.clone();
        self.history.push(Message::Assistant(message.clone()));
        self.record(Event::Replied(Box::new(Replied {
            turn,
            message: message.clone(),
            stop: reply.stop,
            usage: reply.usage,
            cost,
            millis,
            from_cache: reply.from_cache,
        })))?;
        Continue(message)
    }

    /// Waits until the model may be asked. Others are why, so the deadline moves along.
    async fn place(&mut self) -> ControlFlow<Outcome, Place> {
        let began = Instant::now();
        let place = unless_stopped(self.model.place(), &mut self.watch, None).await?;
        self.deadline = self.deadline.and_then(|deadline| deadline.checked_add(began.elapsed()));
        Continue(place)
    }

    /// Tells a model that called no tool how to go on.
    pub(crate) fn remind(&mut self, reply: &Assistant) -> ControlFlow<Outcome> {
        let said = match (&self.stop, reply.text.trim()) {
            (Stop::Length, _) => "too long and was cut off",
            (_, "") => "empty",
            _ => "without a tool call",
        };
        let shorter = if self.stop == Stop::Length { " Be brief." } else { "" };
        let text = format!(
            "Your reply was {said}, so nothing was done.{shorter} Go on: {}. Nobody reads what you write \
             besides; submit when your work is complete and in its place.",
            self.model.how_to_call(&self.specs)
        );
        self.observe(Message::user(text), None, 0)
    }

    /// Does what the model asks for and adds what came of it to the conversation.
    pub(crate) async fn carry_out(&mut self, call: &ToolCall) -> ControlFlow<Outcome> {
        self.calls = self.calls.saturating_add(1);
        self.carried_out += 1;
        if self.carried_out > MOST_CALLS {
            let text = format!("Not done: a reply may hold {MOST_CALLS} calls. Make it again.");
            return self.observe(result(call, vec![Content::text(text)], true), None, 0);
        }
        let began = Instant::now();
        let doing = self.settings.tools.call(call, self.calls, self.sandbox);
        let done = unless_stopped(doing, &mut self.watch, self.deadline).await;
        let millis = millis_since(began);
        self.spent.tool_ms = self.spent.tool_ms.saturating_add(millis);
        let done = match done? {
            Ok(done) => done,
            Err(error) => return Break(infrastructure(&error)),
        };
        let Observation { mut content, is_error, exit_code } = match done {
            Done::Observed(observation) => {
                self.understood += 1;
                observation
            }
            Done::Refused(observation) => observation,
            Done::Submitted if self.is_doubtful().await? => {
                self.understood += 1;
                self.doubted = Doubted::Once;
                Observation::error(self.doubt())
            }
            Done::Submitted => {
                let result = result(call, vec![Content::text("submitted")], false);
                self.observe(result, None, millis)?;
                return Break(Outcome::Submitted);
            }
        };
        let seen = self.without_number(&content);
        let last = self.last.replace((call.clone(), seen.clone()));
        if last.is_some_and(|(last, before)| is_same(&last, call) && before == seen) {
            content.push(Content::text(REPEATED));
            self.repeats += 1;
        }
        self.observe(result(call, content, is_error), exit_code, millis)
    }

    /// Whether nothing lies where results belong, and the model can still do something about it.
    async fn is_doubtful(&mut self) -> ControlFlow<Outcome, bool> {
        let Some(dir) = &self.settings.deliver_to else { return Continue(false) };
        if self.settings.tools.set.submits_answer() {
            return Continue(false);
        }
        if self.doubted == Doubted::Once || self.spent.turns >= self.settings.limits.turns {
            return Continue(false);
        }
        let listing = self.sandbox.list(dir);
        Continue(match unless_stopped(listing, &mut self.watch, self.deadline).await? {
            Ok(entries) => !entries.iter().any(|entry| match entry.kind {
                EntryKind::File => entry.size > 0,
                EntryKind::Link => true,
                EntryKind::Directory | EntryKind::Other => false,
            }),
            Err(Error::Path { .. }) => true,
            // Bringing the results back will tell.
            Err(_) => false,
        })
    }

    fn doubt(&self) -> String {
        let dir = self.settings.deliver_to.as_deref().unwrap_or(Path::new("")).display();
        format!(
            "Not submitted yet: no file with anything in it lies in {dir}, so your answer would be lost. If a \
             command failed, mend it; then leave the answer there and submit. To end without one, submit again."
        )
    }

    /// What came of a call, with the same name for the file of its long output whatever its number.
    fn without_number(&self, content: &[Content]) -> Vec<Content> {
        let dir = self.settings.tools.spill.to_string_lossy();
        let (file, any) = (format!("{dir}/{}.std", self.calls), format!("{dir}/N.std"));
        let named = |part: &Content| match part {
            Content::Text { text } => Content::text(text.replace(&file, &any)),
            Content::Image { .. } => part.clone(),
        };
        content.iter().map(named).collect()
    }

    /// Ends the turn: counts what led to nothing, and lets the record save the files.
    pub(crate) async fn close_turn(&mut self) -> ControlFlow<Outcome> {
        self.misses = if self.understood == 0 { self.misses + 1 } else { 0 };
        let saving = self.journal.turn_over(self.spent.turns, self.sandbox);
        unless_stopped(saving, &mut self.watch, self.deadline).await
    }

    /// Writes down how it ended.
    pub(crate) fn end(self, outcome: Outcome) -> Ended {
        let ended = Ended { outcome, spent: self.spent };
        match self.record(Event::Ended(ended.clone())) {
            // The first failure says more than that the record cannot be written either.
            Break(outcome) if !matches!(ended.outcome, Outcome::Infrastructure { .. }) => {
                Ended { outcome, spent: self.spent }
            }
            _ => ended,
        }
    }

    fn observe(
        &mut self,
        mut message: Message,
        exit_code: Option<i32>,
        millis: u64,
    ) -> ControlFlow<Outcome> {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.count_down(Some(&mut message));
        }
        self.history.push(message.clone());
        let turn = self.spent.turns;
        self.record(Event::Observed(Box::new(Observed { turn, message, exit_code, millis })))
    }

    /// Tells the model how many steps it has left.
    fn count_down(&self, message: Option<&mut Message>) {
        let content = match message {
            Some(Message::User { content }) => content,
            Some(Message::Tool(result)) => &mut result.content,
            _ => return,
        };
        let countdown = self.settings.limits.countdown(&self.spent);
        match content.iter_mut().rev().find_map(|part| match part {
            Content::Text { text } => Some(text),
            Content::Image { .. } => None,
        }) {
            Some(text) => {
                let gap = if text.ends_with('\n') { "" } else { "\n" };
                text.push_str(gap);
                text.push_str(&countdown);
            }
            None => content.push(Content::Text { text: countdown }),
        }
    }

    fn compact(&mut self, turn: u32) -> ControlFlow<Outcome> {
        let Some(compaction) = &self.settings.compaction else { return Continue(()) };
        let messages = compaction.plan(&self.history, self.spent.context, self.compacted);
        if messages > self.compacted {
            self.compacted = messages;
            self.record(Event::Compacted { turn, messages })?;
        }
        Continue(())
    }

    fn record(&self, event: Event) -> ControlFlow<Outcome> {
        match self.journal.record(event) {
            Ok(()) => Continue(()),
            Err(error) => Break(Outcome::Infrastructure {
                cause: format!("cannot write the record: {error}"),
            }),
        }
    }
}

/// Passes the model's words on; a failed attempt is also recorded.
struct Hearing<'a, S, J> {
    journal: &'a J,
    turn: u32,
    failure: &'a LastFailure,
    _sandbox: std::marker::PhantomData<fn(&S)>,
}

impl<S, J: Journal<S>> Listener for Hearing<'_, S, J> {
    fn hear(&self, delta: Delta<'_>) {
        self.failure.note(delta);
        if let Delta::Retry { attempt, wait, why } = delta {
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let event = Event::Retried { turn: self.turn, attempt, wait_ms, why: why.to_owned() };
            // The reply that follows is recorded as well, and a failure noticed then.
            let _ = self.journal.record(event);
        }
        self.journal.hear(delta);
    }
}

/// Waits for something, unless somebody stops the episode or its time is up.
async fn unless_stopped<T>(
    work: impl Future<Output = T>,
    watch: &mut Watch,
    deadline: Option<tokio::time::Instant>,
) -> ControlFlow<Outcome, T> {
    let time_is_up = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = watch.stopped() => Break(Outcome::Cancelled),
        () = time_is_up => Break(Outcome::Deadline),
        done = work => Continue(done),
    }
}

fn result(call: &ToolCall, content: Vec<Content>, is_error: bool) -> Message {
    let ToolCall { id, name, .. } = call;
    Message::Tool(ToolResult { call_id: id.clone(), name: name.clone(), content, is_error })
}

/// The whole chain of causes in one line.
fn infrastructure(error: &dyn std::error::Error) -> Outcome {
    let chain = std::iter::successors(Some(error), |error| error.source());
    let words: Vec<String> = chain.map(ToString::to_string).collect();
    Outcome::Infrastructure { cause: words.join(": ") }
}

/// A model that repeats itself would go on to: its next reply is more random, where it hardly was at all.
fn restless(sampling: &Sampling, repeats: u32) -> Cow<'_, Sampling> {
    match sampling.temperature {
        Some(usual) if repeats > 0 && usual < RESTLESS => {
            Cow::Owned(Sampling { temperature: Some(RESTLESS), ..sampling.clone() })
        }
        _ => Cow::Borrowed(sampling),
    }
}

fn is_same(one: &ToolCall, other: &ToolCall) -> bool {
    one.name == other.name && one.arguments == other.arguments
}

fn millis_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}
