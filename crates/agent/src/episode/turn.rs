//! The two steps of a turn: a call to the model with its accounting, and the execution of a tool call.

use std::{
    marker::PhantomData,
    ops::ControlFlow::{self, Break, Continue},
    path::Path,
    time::Instant,
};

use model::{Delta, LastFailure, Listener, Model, Permit, Request, Response};
use sandbox::{Entry, EntryKind, Error, Sandbox};
use tracing::{debug, instrument};
use trajectory::{
    Assistant, Content, Event, Fault, Message, Outcome, Responded, ToolCall, ToolResult,
};

use super::{Episode, Turn, millis_since, until_stopped};
use crate::{
    Journal, text,
    tools::{Observation, ToolOutcome, short_name},
};

/// The most bytes a token stands for on average, whatever the tokenizer. Bounds what a server can undercount.
const MAX_BYTES_PER_TOKEN: u64 = 32;

/// The most tool calls of one response that are executed.
const MAX_TOOL_CALLS: usize = 32;

impl<M: Model, S: Sandbox, J: Journal<S>> Episode<'_, M, S, J> {
    /// Asks the model for its next response and adds it to the conversation.
    pub(super) async fn query_model(&mut self) -> ControlFlow<Outcome, Assistant> {
        let turn = self.next_turn();
        self.compact(turn)?;
        let _permit = self.permit().await?;
        let began = Instant::now();
        let messages = self.conversation.for_model();
        let sampling = self.repetition.sampling(&self.settings.sampling);
        let request = Request {
            messages: &messages,
            tools: self.tools.specs(),
            sampling: &sampling,
            max_tokens: self.settings.limits.next_response(&self.spent),
        };
        let failure = LastFailure::default();
        let listener =
            RecordRetries { journal: self.journal, turn, failure: &failure, sandbox: PhantomData };
        let call = self.model.complete(&request, &listener);
        let result = until_stopped(call, &self.cancel, self.deadline).await;
        let millis = millis_since(began);
        // A call that is cut short takes time as well.
        self.spent.model_ms = self.spent.model_ms.saturating_add(millis);
        let response = usable_response(result, failure.take())?;
        let sent: usize = messages.iter().map(Message::size).sum();
        drop(messages);
        let cost = self.charge(turn, &response, sent);
        let Response { message, stop, usage, from_cache, .. } = response;
        self.turn = Turn::new(stop.clone(), message.calls.len());
        self.turn.then_submit = message.then_submit;
        self.conversation.push(Message::Assistant(message.clone()));
        self.record(Event::Responded(Box::new(Responded {
            turn,
            message: message.clone(),
            stop,
            usage,
            cost,
            millis,
            from_cache,
        })))?;
        Continue(message)
    }

    /// Waits until the model may be called. Other episodes cause the wait, so the deadline moves by as much.
    async fn permit(&mut self) -> ControlFlow<Outcome, Permit> {
        let began = Instant::now();
        let permit = until_stopped(self.model.permit(), &self.cancel, None).await?;
        self.deadline = self.deadline.and_then(|deadline| deadline.checked_add(began.elapsed()));
        Continue(permit)
    }

    fn compact(&mut self, turn: u32) -> ControlFlow<Outcome> {
        let Some(compaction) = &self.settings.compaction else { return Continue(()) };
        let Some(messages) = self.conversation.compact(compaction, self.spent.context) else {
            return Continue(());
        };
        debug!(messages, "old results are shortened");
        self.record(Event::Compacted { turn, messages })
    }

    /// Adds a response to what the episode has spent, and returns its cost in dollars where the price is known.
    /// `sent` is the size of the request in bytes.
    fn charge(&mut self, turn: u32, response: &Response, sent: usize) -> Option<f64> {
        let cost = self.settings.price.as_ref().map(|price| match response.from_cache {
            true => 0.0,
            false => price.cost(&response.usage),
        });
        self.spent.turns = turn;
        self.spent.usage += response.usage;
        // A server that counts too few tokens, or none, must not make the conversation endless.
        let least = (sent + response.message.size()) as u64 / MAX_BYTES_PER_TOKEN;
        self.spent.context = response.usage.total().max(least);
        self.spent.cost = cost.map(|cost| cost + self.spent.cost.unwrap_or(0.0));
        cost
    }

    /// Executes a tool call and adds its result to the conversation.
    #[instrument(name = "tool_call", level = "debug", skip_all, fields(tool = short_name(&call.name)))]
    pub(super) async fn run_tool(&mut self, call: &ToolCall) -> ControlFlow<Outcome> {
        self.tool_calls = self.tool_calls.saturating_add(1);
        self.turn.calls += 1;
        if self.turn.calls > MAX_TOOL_CALLS {
            let refused = Observation::error(text::too_many_calls(MAX_TOOL_CALLS));
            return self.observe_result(call, refused, 0);
        }
        let began = Instant::now();
        let execution = self.tools.call(call, self.tool_calls, self.sandbox);
        let result = until_stopped(execution, &self.cancel, self.deadline).await;
        let millis = millis_since(began);
        self.spent.tool_ms = self.spent.tool_ms.saturating_add(millis);
        let outcome = match result? {
            Ok(outcome) => outcome,
            Err(error) => {
                let full = matches!(error, sandbox::Error::HostFull(_));
                let fault = if full { Fault::Storage } else { Fault::Sandbox };
                return Break(Outcome::infrastructure(fault, &error));
            }
        };
        let mut observation = match outcome {
            ToolOutcome::Observed(observation) => {
                self.turn.usable_calls += 1;
                observation
            }
            ToolOutcome::Refused(observation) => observation,
            ToolOutcome::Submitted => match self.objection_to_submit().await? {
                Some(objection) => {
                    self.turn.usable_calls += 1;
                    Observation::error(objection)
                }
                None => {
                    self.observe_result(call, Observation::text(text::SUBMITTED), millis)?;
                    return Break(Outcome::Submitted);
                }
            },
        };
        // A command that failed, or left no answer, is shown to the model instead.
        if self.turn.then_submit && self.turn.pending == 1 && observation.exit_code == Some(0) {
            if self.has_answer().await? {
                self.observe_result(call, observation, millis)?;
                return Break(Outcome::Submitted);
            }
            let objection = self.objection_to_submit().await?;
            observation.content.extend(objection.map(Content::text));
        }
        let comparable = self.without_call_number(&observation.content);
        if self.repetition.is_repeated(call, comparable) {
            debug!("the call and its result repeat the ones before");
            observation.content.push(Content::text(text::REPEATED));
        }
        self.observe_result(call, observation, millis)
    }

    /// What to answer instead of accepting a submission: once per episode, when the output directory holds nothing
    /// and the model can still change that.
    async fn objection_to_submit(&mut self) -> ControlFlow<Outcome, Option<String>> {
        let Some(dir) = &self.settings.output_dir else { return Continue(None) };
        let last_turn = self.spent.turns >= self.settings.limits.turns;
        if self.settings.tools.set.submits_answer() || self.objected || last_turn {
            return Continue(None);
        }
        let listing = self.sandbox.list(dir);
        let is_empty = match until_stopped(listing, &self.cancel, self.deadline).await? {
            Ok(entries) => !entries.iter().any(has_content),
            Err(Error::Path { .. }) => true,
            // Collecting the results will report it.
            Err(_) => false,
        };
        if !is_empty {
            return Continue(None);
        }
        debug!("the model submits without a result");
        self.objected = true;
        Continue(Some(text::nothing_to_submit(dir)))
    }

    /// Whether the answer is in its place. An episode without a place for it needs none.
    async fn has_answer(&self) -> ControlFlow<Outcome, bool> {
        let Some(output_dir) = &self.settings.output_dir else { return Continue(true) };
        let file = self.settings.answer_file.as_deref();
        let dir = file.and_then(Path::parent).unwrap_or(output_dir);
        let name = file.and_then(Path::file_name);
        let listing = self.sandbox.list(dir);
        let found = match until_stopped(listing, &self.cancel, self.deadline).await? {
            Ok(entries) => entries
                .iter()
                .any(|entry| has_content(entry) && name.is_none_or(|name| entry.name == name)),
            // A sandbox that failed is reported by the next call.
            Err(_) => false,
        };
        Continue(found)
    }

    /// A result with the same name for the file of its long output, whatever the number of the call.
    fn without_call_number(&self, content: &[Content]) -> Vec<Content> {
        let dir = self.settings.tools.spill.to_string_lossy();
        let (file, any) = (format!("{dir}/{}.std", self.tool_calls), format!("{dir}/N.std"));
        let renamed = |part: &Content| match part {
            Content::Text { text } => Content::text(text.replace(&file, &any)),
            Content::Image { .. } => part.clone(),
        };
        content.iter().map(renamed).collect()
    }

    fn observe_result(
        &mut self,
        call: &ToolCall,
        observation: Observation,
        millis: u64,
    ) -> ControlFlow<Outcome> {
        let Observation { content, is_error, exit_code } = observation;
        let (call_id, name) = (call.id.clone(), call.name.clone());
        let result = Message::Tool(ToolResult { call_id, name, content, is_error });
        self.observe(result, exit_code, millis)
    }
}

/// Whether an entry of a directory may hold a result. Links are not followed.
fn has_content(entry: &Entry) -> bool {
    match entry.kind {
        EntryKind::File => entry.size > 0,
        EntryKind::Link => true,
        EntryKind::Directory | EntryKind::Other => false,
    }
}

/// The response, or the outcome an episode ends with for lack of one. `failure` is the last failed attempt of the
/// call.
fn usable_response(
    result: ControlFlow<Outcome, Result<Response, model::Error>>,
    failure: Option<String>,
) -> ControlFlow<Outcome, Response> {
    let result = match (result, failure) {
        // A failing server says nothing about the model.
        (Break(Outcome::Deadline), Some(why)) => {
            let cause =
                format!("the time limit was reached while calls to the model failed: {why}");
            return Break(Outcome::Infrastructure { cause, fault: Fault::ModelServer });
        }
        (result, _) => result?,
    };
    match result {
        Ok(response) => Continue(response),
        Err(model::Error::Overflow { .. }) => Break(Outcome::ContextFull),
        Err(model::Error::InvalidHistory(why)) => {
            debug!(why, "the model's own output makes the conversation unusable");
            Break(Outcome::NoToolCalls)
        }
        Err(error) => Break(Outcome::infrastructure(error.fault(), &error)),
    }
}

/// Passes streamed output on to the journal, and also records failed attempts.
struct RecordRetries<'a, S, J> {
    journal: &'a J,
    turn: u32,
    failure: &'a LastFailure,
    sandbox: PhantomData<fn(&S)>,
}

impl<S, J: Journal<S>> Listener for RecordRetries<'_, S, J> {
    fn on_delta(&self, delta: Delta<'_>) {
        self.failure.note(delta);
        if let Delta::Retry { attempt, wait, why } = delta {
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            debug!(attempt, wait_ms, why, "a call to the model failed");
            let event = Event::Retried { turn: self.turn, attempt, wait_ms, why: why.to_owned() };
            // The response that follows is recorded as well; a journal that fails is noticed then.
            let _ = self.journal.record(event);
        }
        self.journal.on_delta(delta);
    }
}
