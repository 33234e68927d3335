//! Mode `llm`: one plain call without tools. Its events are written as those of an episode are.

use std::time::Instant;

use agent::Journal;
use model::{Delta, Error, LastFailure, Listener, Model, Reply, Request};
use sandbox::Runtime;
use serde_json::Value;
use trajectory::{Ended, Event, Message, Outcome, Replied, Spent, Started, Stop};

use crate::{
    attempt::{Played, Trouble},
    journal::Record,
    plan::Job,
    run::Shared,
};

impl<M: Model, R: Runtime> Shared<M, R> {
    /// Asks once.
    pub(crate) async fn plain(&self, job: &Job, record: &Record) -> Result<Played, Trouble> {
        let (task, problem) = self.plan.of(job);
        let _place = self.unless_stopped(self.model.place()).await?;
        let (started, began) = (crate::now(), Instant::now());
        let messages = vec![Message::user(task.plain(problem))];
        write(record, Event::Started(Box::new(self.started(problem, &messages, Value::Null))))?;
        let sampling = self.plan.method.sampling(&job.key);
        let request = Request {
            messages: &messages,
            tools: &[],
            sampling: &sampling,
            max_tokens: self.plan.method.caps.plain_tokens,
        };
        let hearing = Hearing { record, failure: LastFailure::default() };
        let asked = self.model.complete(&request, &hearing);
        let asked = self.unless_stopped(self.in_time(asked)).await?;
        let (reply, outcome) = match (asked, hearing.failure.take()) {
            // A server that fails says nothing about the model.
            (None, Some(why)) => {
                let why = format!("time was up while calls to the model failed: {why}");
                return Err(fails(record, why));
            }
            (None, None) => (None, Outcome::Deadline),
            (Some(Ok(reply)), _) if reply.stop == Stop::Length => (Some(reply), Outcome::MaxTokens),
            (Some(Ok(reply)), _) => (Some(reply), Outcome::Submitted),
            (Some(Err(Error::Overflow { .. })), _) => (None, Outcome::ContextFull),
            (Some(Err(error)), _) => return Err(fails(record, error.with_causes())),
        };
        let spent = self.spent(reply.as_ref(), crate::millis_since(began));
        let mut answer = String::new();
        if let Some(Reply { message, stop, usage, from_cache }) = reply {
            answer = message.said.clone().unwrap_or_else(|| message.text.clone());
            let (cost, millis) = (spent.cost, spent.model_ms);
            let replied = Replied { turn: 1, message, stop, usage, cost, millis, from_cache };
            write(record, Event::Replied(Box::new(replied)))?;
        }
        write(record, Event::Ended(Ended { outcome: outcome.clone(), spent }))?;
        Ok(Played {
            grading: task.grading(problem, &answer),
            answer,
            outcome,
            spent,
            started,
            wall_ms: crate::millis_since(began),
            peak_memory: None,
        })
    }

    fn spent(&self, reply: Option<&Reply>, model_ms: u64) -> Spent {
        let Some(reply) = reply else { return Spent { model_ms, ..Spent::default() } };
        let price = self.plan.method.price;
        let cost = price.map(|price| match reply.from_cache {
            true => 0.0,
            false => price.cost(&reply.usage),
        });
        let (usage, context) = (reply.usage, reply.usage.total());
        Spent { turns: 1, usage, context, cost, model_ms, tool_ms: 0 }
    }

    /// How an episode began.
    pub(crate) fn started(
        &self,
        problem: &problems::Problem,
        messages: &[Message],
        protection: Value,
    ) -> Started {
        let method = &self.plan.method;
        Started {
            problem_statement: problem.statement.clone(),
            messages: messages.to_vec(),
            model: self.model.name().to_owned(),
            settings: method.settings.clone(),
            protection,
            program: method.program.clone(),
        }
    }

    /// Waits for something, unless the run is to stop.
    pub(crate) async fn unless_stopped<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, Trouble> {
        let mut watch = self.watch.clone();
        tokio::select! {
            biased;
            () = watch.stopped() => Err(Trouble::Stopped),
            done = work => Ok(done),
        }
    }

    /// Waits for something as long as an attempt may take.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        match self.plan.method.caps.time {
            Some(time) => tokio::time::timeout(time, work).await.ok(),
            None => Some(work.await),
        }
    }
}

fn write(record: &Record, event: Event) -> Result<(), Trouble> {
    let written = record.add(event);
    written.map_err(|error| Trouble::failed(format!("cannot write the record: {error}")))
}

/// Ends the record of a call that failed on our side.
fn fails(record: &Record, cause: String) -> Trouble {
    let outcome = Outcome::Infrastructure { cause: cause.clone() };
    // The failure itself says more than that its record cannot be written either.
    let _ = record.add(Event::Ended(Ended { outcome, spent: Spent::default() }));
    Trouble::failed(cause)
}

/// Records calls that failed and are made again.
struct Hearing<'a> {
    record: &'a Record,
    failure: LastFailure,
}

impl Listener for Hearing<'_> {
    fn hear(&self, delta: Delta<'_>) {
        self.failure.note(delta);
        if let Delta::Retry { attempt, wait, why } = delta {
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let event = Event::Retried { turn: 1, attempt, wait_ms, why: why.to_owned() };
            // The reply that follows is recorded as well, and a failure noticed then.
            let _ = Journal::<()>::record(self.record, event);
        }
    }
}
