//! A language model as judge: asked so often as votes are wanted, each reply kept at once. Replies are a
//! server's words: they are read by the grader, never trusted.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use model::{Error, Model, Request, Sampling, Silent};
use problems::{Grade, JudgeJob};
use results::{Folder, Judgement, Key, VERSION};
use trajectory::Message;

use crate::gate::Gated;

/// A longer reply is nonsense, and not kept whole.
const LONGEST: usize = 256 << 10;

/// A judge that could not be reached is left alone for this long.
const PAUSE: Duration = Duration::from_secs(60);

/// Who judges.
#[derive(Debug)]
pub(crate) struct Judge<M> {
    model: Gated<M>,
    reached: Mutex<Reached>,
    /// After so many failures in a row it is left alone for a while.
    limit: u32,
    /// How long a vote may take.
    patience: Option<Duration>,
}

/// Whether a judge can be reached.
#[derive(Debug, Default)]
struct Reached {
    /// How often in a row it could not be.
    failures: u32,
    /// When it is asked again.
    rests_until: Option<Instant>,
}

impl Reached {
    /// Whether it may be asked. After a rest one may, and shows the others how it is.
    fn may_ask(&mut self, now: Instant) -> bool {
        match self.rests_until {
            Some(until) if now < until => false,
            Some(_) => {
                self.rests_until = Some(now + PAUSE);
                true
            }
            None => true,
        }
    }

    fn failed(&mut self, limit: u32, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= limit {
            self.rests_until = Some(now + PAUSE);
        }
    }
}

impl<M: Model> Judge<M> {
    /// A judge that is asked by so many at once.
    pub(crate) fn new(model: M, calls: usize, limit: u32, patience: Option<Duration>) -> Self {
        let (model, reached) = (Gated::new(model, calls), Mutex::default());
        Self { model, reached, limit: limit.max(1), patience }
    }

    /// What it says of an answer, or why it says nothing. Votes that were given before are not asked for again.
    pub(crate) async fn grade(
        &self,
        folder: &Folder,
        key: &Key,
        job: &JudgeJob,
    ) -> Result<Grade, String> {
        let judge = self.model.name().to_owned();
        let known = folder.judgement(key);
        let known = known.filter(|known| known.judge == judge && known.prompt == job.prompt);
        let mut judgement = known.unwrap_or_else(|| Judgement {
            v: VERSION,
            judge,
            prompt: job.prompt.clone(),
            replies: Vec::new(),
        });
        judgement.replies.truncate(job.votes);
        let mut votes: Vec<Option<String>> = judgement.replies.iter().cloned().map(Some).collect();
        while votes.len() < job.votes {
            let Some(reply) = self.ask(job).await? else {
                votes.push(None);
                continue;
            };
            judgement.replies.push(reply.clone());
            votes.push(Some(reply));
            let kept = folder.keep_judgement(key, &judgement);
            kept.map_err(|error| format!("cannot keep the judge's words: {error}"))?;
        }
        let mut grade = job.grade(&votes);
        if let serde_json::Value::Object(details) = &mut grade.details {
            details.insert("judge".into(), judgement.judge.into());
        }
        Ok(grade)
    }

    /// One vote; none where the prompt is too long for the judge.
    async fn ask(&self, job: &JudgeJob) -> Result<Option<String>, String> {
        if !self.reached().may_ask(Instant::now()) {
            return Err(
                "the judge could not be reached before, and is left alone for a while".into()
            );
        }
        let messages = [Message::user(job.prompt.as_str())];
        let sampling = Sampling { temperature: Some(job.temperature), ..Sampling::default() };
        let request = Request {
            messages: &messages,
            tools: &[],
            sampling: &sampling,
            max_tokens: u64::from(job.max_tokens),
        };
        let _place = self.model.place().await;
        let asked = self.model.complete(&request, &Silent);
        let replied = match self.patience {
            None => asked.await,
            Some(patience) => match tokio::time::timeout(patience, asked).await {
                Ok(replied) => replied,
                Err(_) => {
                    self.reached().failed(self.limit, Instant::now());
                    return Err(format!("the judge did not finish within {patience:?}"));
                }
            },
        };
        match replied {
            Ok(reply) => {
                *self.reached() = Reached::default();
                Ok(Some(ending(&reply.message.text).to_owned()))
            }
            Err(Error::Overflow { .. }) => {
                *self.reached() = Reached::default();
                Ok(None)
            }
            Err(error) => {
                match error {
                    // Whoever refuses one prompt is there, and may well answer the others.
                    Error::Refused { .. } => *self.reached() = Reached::default(),
                    _ => self.reached().failed(self.limit, Instant::now()),
                }
                Err(format!("the judge does not answer: {}", error.with_causes()))
            }
        }
    }

    fn reached(&self) -> MutexGuard<'_, Reached> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a reply: the last word decides.
fn ending(text: &str) -> &str {
    let from = text.len().saturating_sub(LONGEST);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_that_was_down_is_tried_again_by_one() {
        let (mut reached, now) = (Reached::default(), Instant::now());
        reached.failed(2, now);
        assert!(reached.may_ask(now));
        reached.failed(2, now);
        assert!(!reached.may_ask(now));
        let later = now + PAUSE;
        assert!(reached.may_ask(later));
        assert!(!reached.may_ask(later), "the others wait for what it finds");
        assert!(reached.may_ask(later + PAUSE));
    }
}
