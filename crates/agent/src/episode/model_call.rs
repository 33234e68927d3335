//! One call to the model: the request, its accounting, and the record of the response.

use std::{
    marker::PhantomData,
    ops::ControlFlow::{self, Break, Continue},
    time::Instant,
};

use model::{Delta, LastFailure, Listener, Model, Permit, Request, Response};
use sandbox::Sandbox;
use tracing::debug;
use trajectory::{Assistant, Event, Fault, Message, Outcome, Replied};

use super::{Episode, Turn, millis_since, until_stopped};
use crate::Journal;

/// The most bytes a token stands for on average, whatever the tokenizer. Bounds what a server can undercount.
const MAX_BYTES_PER_TOKEN: u64 = 32;

impl<M: Model, S: Sandbox, J: Journal<S>> Episode<'_, M, S, J> {
    /// Asks the model for its next response and adds it to the conversation.
    pub(crate) async fn query_model(&mut self) -> ControlFlow<Outcome, Assistant> {
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
        self.conversation.push(Message::Assistant(message.clone()));
        self.record(Event::Replied(Box::new(Replied {
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
