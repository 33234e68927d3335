//! Mode `llm`: one plain call without tools, whose response is the answer. Its events are those of an episode.

use std::time::Instant;

use agent::Journal;
use model::{Delta, Error, LastFailure, Listener, Model, Request, Response};
use sandbox::Runtime;
use serde_json::Value;
use trajectory::{Ended, Event, Fault, Message, Outcome, Responded, Spent, Stop, error_chain};

use crate::{
    EventLog, Play,
    failure::Failure,
    now_ms,
    play::{Answered, ms_since},
};

/// Queries the model once.
pub(crate) async fn answer<M: Model, R: Runtime>(
    play: &Play<'_, M, R>,
    events: &EventLog,
) -> Result<Answered, Failure> {
    let _permit = play.unless_cancelled(play.model.permit()).await?;
    let (started_ms, start) = (now_ms(), Instant::now());
    let messages = vec![Message::user(play.task.plain_prompt(play.problem))];
    let started = play.started(messages.clone(), Value::Null);
    append(events, Event::Started(Box::new(started)))?;
    let (response, outcome) = query(play, events, &messages).await?;
    let usage = usage(play, response.as_ref(), ms_since(start));
    let mut answer = String::new();
    if let Some(Response { message, stop, usage: tokens, from_cache }) = response {
        let text = message.raw.as_ref().unwrap_or(&message.text);
        answer = play.task.plain_answer(text).to_owned();
        let (cost, millis) = (usage.cost, usage.model_ms);
        let replied = Responded { turn: 1, message, stop, usage: tokens, cost, millis, from_cache };
        append(events, Event::Responded(Box::new(replied)))?;
    }
    append(events, Event::Ended(Ended { outcome: outcome.clone(), spent: usage }))?;
    Ok(Answered { answer, outcome, usage, started_ms, wall_ms: ms_since(start), peak_memory: None })
}

/// The response, where there is one, and how the attempt ends with it.
async fn query<M: Model, R: Runtime>(
    play: &Play<'_, M, R>,
    events: &EventLog,
    messages: &[Message],
) -> Result<(Option<Response>, Outcome), Failure> {
    let sampling = play.sampling();
    let request = Request {
        messages,
        tools: &[],
        sampling: &sampling,
        max_tokens: play.settings.limits.plain_tokens,
    };
    let listener = Recorder { events, failure: LastFailure::default() };
    let calling = async {
        let call = play.model.complete(&request, &listener);
        match play.settings.limits.time {
            Some(limit) => tokio::time::timeout(limit, call).await.ok(),
            None => Some(call.await),
        }
    };
    let called = play.unless_cancelled(calling).await?;
    Ok(match (called, listener.failure.take()) {
        // A server that fails says nothing about the model.
        (None, Some(why)) => {
            let cause =
                format!("the time limit was reached while calls to the model failed: {why}");
            return Err(failed(events, Fault::ModelServer, cause));
        }
        (None, None) => (None, Outcome::Deadline),
        (Some(Ok(response)), _) if response.stop == Stop::Length => {
            (Some(response), Outcome::MaxTokens)
        }
        (Some(Ok(response)), _) => (Some(response), Outcome::Submitted),
        (Some(Err(Error::Overflow { .. })), _) => (None, Outcome::ContextFull),
        (Some(Err(error)), _) => return Err(failed(events, error.fault(), error_chain(&error))),
    })
}

fn usage<M: Model, R: Runtime>(
    play: &Play<'_, M, R>,
    response: Option<&Response>,
    model_ms: u64,
) -> Spent {
    let Some(response) = response else { return Spent { model_ms, ..Spent::default() } };
    let cost = play.settings.price.map(|price| match response.from_cache {
        true => 0.0,
        false => price.cost(&response.usage),
    });
    let (usage, context) = (response.usage, response.usage.total());
    Spent { turns: 1, usage, context, cost, model_ms, tool_ms: 0 }
}

fn append(events: &EventLog, event: Event) -> Result<(), Failure> {
    events.append(event).map_err(|error| {
        let cause = format!("cannot write the events: {}", error_chain(&error));
        Failure::Infrastructure { fault: Fault::Storage, cause, usage: Box::default() }
    })
}

/// Ends the record of a call that failed.
fn failed(events: &EventLog, fault: Fault, cause: String) -> Failure {
    let outcome = Outcome::Infrastructure { cause: cause.clone(), fault };
    // The failure itself says more than that its record cannot be written either.
    let _ = events.append(Event::Ended(Ended { outcome, spent: Spent::default() }));
    Failure::Infrastructure { fault, cause, usage: Box::default() }
}

/// Records calls that failed and are repeated.
struct Recorder<'a> {
    events: &'a EventLog,
    failure: LastFailure,
}

impl Listener for Recorder<'_> {
    fn on_delta(&self, delta: Delta<'_>) {
        self.failure.note(delta);
        if let Delta::Retry { attempt, wait, why } = delta {
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let event = Event::Retried { turn: 1, attempt, wait_ms, why: why.to_owned() };
            // The response that follows is recorded as well, and a failure noticed then.
            let _ = Journal::<()>::record(self.events, event);
        }
        self.events.on_delta(delta);
    }
}
