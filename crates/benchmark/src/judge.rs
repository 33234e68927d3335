//! A language model as judge: queried once per vote, each vote stored at once. Responses are untrusted text that only the
//! grader reads.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use model::{Error, Model, Request, Sampling, Silent};
use problems::{Grade, JudgeRequest};
use results::{AttemptKey, Judgement, ResultsDir, VERSION};
use trajectory::{Message, error_chain};

use crate::limited_model::LimitedModel;

/// The part of a response that is stored, in bytes; the verdict is at its end.
const MAX_VOTE: usize = 256 << 10;

/// A judge that failed too often is not queried for this long.
const PAUSE: Duration = Duration::from_secs(60);

/// A judge.
#[derive(Debug)]
pub(crate) struct Judge<M> {
    model: LimitedModel<M>,
    health: Mutex<Health>,
    /// Consecutive failures before it is not queried for a while.
    max_failures: u32,
    /// The time limit of a vote.
    time_limit: Option<Duration>,
}

/// Whether a judge can be reached.
#[derive(Debug, Default)]
struct Health {
    /// Consecutive failures.
    failures: u32,
    /// Not queried before this time.
    paused_until: Option<Instant>,
}

impl Health {
    /// Whether it may be queried. After a pause one caller may, and finds out for the others.
    fn may_query(&mut self, now: Instant) -> bool {
        match self.paused_until {
            Some(until) if now < until => false,
            Some(_) => {
                self.paused_until = Some(now + PAUSE);
                true
            }
            None => true,
        }
    }

    fn failed(&mut self, limit: u32, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= limit {
            self.paused_until = Some(now + PAUSE);
        }
    }
}

impl<M: Model> Judge<M> {
    /// A judge that takes `calls` calls at once.
    pub(crate) fn new(
        model: M,
        calls: usize,
        max_failures: u32,
        time_limit: Option<Duration>,
    ) -> Self {
        let (model, health) = (LimitedModel::new(model, calls), Mutex::default());
        Self { model, health, max_failures: max_failures.max(1), time_limit }
    }

    /// The grade of an answer, or why there is none. Stored votes are used again.
    pub(crate) async fn grade(
        &self,
        dir: &ResultsDir,
        key: &AttemptKey,
        request: &JudgeRequest,
    ) -> Result<Grade, String> {
        let judge = self.model.name().to_owned();
        let stored = dir.judgement(key);
        let stored =
            stored.filter(|stored| stored.judge == judge && stored.prompt == request.prompt);
        let mut judgement = stored.unwrap_or_else(|| Judgement {
            v: VERSION,
            judge,
            prompt: request.prompt.clone(),
            replies: Vec::new(),
        });
        judgement.replies.truncate(request.votes);
        let mut votes: Vec<Option<String>> = judgement.replies.iter().cloned().map(Some).collect();
        while votes.len() < request.votes {
            let Some(vote) = self.vote(request).await? else {
                votes.push(None);
                continue;
            };
            judgement.replies.push(vote.clone());
            votes.push(Some(vote));
            let saved = dir.save_judgement(key, &judgement);
            saved.map_err(|error| format!("cannot store the vote: {}", error_chain(&error)))?;
        }
        let mut grade = request.grade(&votes);
        if let serde_json::Value::Object(details) = &mut grade.details {
            details.insert("judge".into(), judgement.judge.into());
        }
        Ok(grade)
    }

    /// One vote; none where the prompt is too long for the judge.
    async fn vote(&self, judge_request: &JudgeRequest) -> Result<Option<String>, String> {
        if !self.health().may_query(Instant::now()) {
            return Err("the judge failed repeatedly and is not queried for a minute".into());
        }
        let messages = [Message::user(judge_request.prompt.as_str())];
        let sampling =
            Sampling { temperature: Some(judge_request.temperature), ..Sampling::default() };
        let request = Request {
            messages: &messages,
            tools: &[],
            sampling: &sampling,
            max_tokens: u64::from(judge_request.max_tokens),
        };
        let _permit = self.model.permit().await;
        let call = self.model.complete(&request, &Silent);
        let called = match self.time_limit {
            None => call.await,
            Some(limit) => match tokio::time::timeout(limit, call).await {
                Ok(called) => called,
                Err(_) => {
                    self.health().failed(self.max_failures, Instant::now());
                    return Err(format!("the judge did not finish within {limit:?}"));
                }
            },
        };
        match called {
            Ok(response) => {
                *self.health() = Health::default();
                Ok(Some(ending(&response.message.text).to_owned()))
            }
            Err(Error::Overflow { .. }) => {
                *self.health() = Health::default();
                Ok(None)
            }
            Err(error) => {
                match error {
                    // A judge that refuses one prompt can be reached, and may answer the others.
                    Error::Refused { .. } => *self.health() = Health::default(),
                    _ => self.health().failed(self.max_failures, Instant::now()),
                }
                Err(format!("the judge failed: {}", error_chain(&error)))
            }
        }
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a response: the last verdict decides.
fn ending(text: &str) -> &str {
    let from = text.len().saturating_sub(MAX_VOTE);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_that_was_down_is_queried_again_by_one_caller() {
        let (mut health, now) = (Health::default(), Instant::now());
        health.failed(2, now);
        assert!(health.may_query(now));
        health.failed(2, now);
        assert!(!health.may_query(now));
        let later = now + PAUSE;
        assert!(health.may_query(later));
        assert!(!health.may_query(later), "the others wait for what it finds");
        assert!(health.may_query(later + PAUSE));
    }
}
