//! Mode `llm`: one reply without tools, which is the answer. Its events are written as those of an episode are.

use std::time::Instant;

use agent::Watch;
use model::{Error, Model, Request, Sampling, Silent};
use sandbox::Runtime;
use serde_json::Value;
use trajectory::{Ended, Event, Message, Outcome, Replied, Spent, Stop};

use crate::{
    PolicyModel, Sampler,
    episode::{Job, Trouble, Worked, unless_stopped, unwritten},
    journal::Record,
    stage::Shared,
};

impl<R: Runtime> Shared<R> {
    /// Asks once.
    pub(crate) async fn plain<S: Sampler>(
        &self,
        job: &Job,
        policy: &PolicyModel<S>,
        record: &Record,
        watch: &Watch,
    ) -> Result<Worked, Trouble> {
        let messages = vec![Message::user(self.task.plain(&job.problem))];
        let started = self.started(&job.problem, messages.clone(), Value::Null);
        record.add(Event::Started(Box::new(started))).map_err(unwritten)?;
        let limits = &self.method.limits;
        let request = Request {
            messages: &messages,
            tools: &[],
            sampling: &Sampling::default(),
            max_tokens: limits.tokens_per_call.min(limits.tokens),
        };
        let began = Instant::now();
        let asking = async {
            let asked = policy.complete(&request, &Silent);
            match limits.time {
                Some(time) => tokio::time::timeout(time, asked).await.ok(),
                None => Some(asked.await),
            }
        };
        let (reply, outcome) = match unless_stopped(asking, watch).await? {
            None => (None, Outcome::Deadline),
            Some(Ok(reply)) if reply.stop == Stop::Length => (Some(reply), Outcome::MaxTokens),
            Some(Ok(reply)) => (Some(reply), Outcome::Submitted),
            Some(Err(Error::Overflow { .. })) => (None, Outcome::ContextFull),
            Some(Err(error)) => {
                let outcome = Outcome::Infrastructure { cause: error.with_causes() };
                // The failure itself says more than that its record cannot be written either.
                let _ = record.add(Event::Ended(Ended { outcome, spent: Spent::default() }));
                return Err(Trouble::of_call(policy.fault(), error.with_causes()));
            }
        };
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut spent = Spent { model_ms: millis, ..Spent::default() };
        let mut answer = String::new();
        if let Some(reply) = reply {
            let (message, stop, usage) = (reply.message, reply.stop, reply.usage);
            (spent.turns, spent.usage, spent.context) = (1, usage, usage.total());
            answer.clone_from(&message.text);
            let replied =
                Replied { turn: 1, message, stop, usage, cost: None, millis, from_cache: false };
            record.add(Event::Replied(Box::new(replied))).map_err(unwritten)?;
        }
        let ended = Ended { outcome: outcome.clone(), spent };
        record.add(Event::Ended(ended)).map_err(unwritten)?;
        Ok(Worked { outcome, answer, why: None })
    }
}
