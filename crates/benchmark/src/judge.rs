//! A language model as judge: asked so often as votes are wanted, each reply kept at once. Replies are a
//! server's words: they are read by the grader, never trusted.

use std::sync::atomic::{AtomicU32, Ordering};

use model::{Error, Model, Request, Sampling, Silent};
use problems::{Grade, JudgeJob};
use results::{Folder, Judgement, Key, VERSION};
use trajectory::Message;

use crate::gate::Gated;

/// A longer reply is nonsense, and not kept whole.
const LONGEST: usize = 256 << 10;

/// Who judges.
#[derive(Debug)]
pub(crate) struct Judge<M> {
    model: Gated<M>,
    /// How often in a row it could not be reached.
    failures: AtomicU32,
    /// After so many it is not asked any more.
    limit: u32,
}

impl<M: Model> Judge<M> {
    /// A judge that is asked by so many at once.
    pub(crate) fn new(model: M, calls: usize, limit: u32) -> Self {
        Self { model: Gated::new(model, calls), failures: AtomicU32::new(0), limit: limit.max(1) }
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
        if self.failures.load(Ordering::Relaxed) >= self.limit {
            return Err("the judge could not be reached before, and is not asked any more".into());
        }
        let messages = [Message::user(job.prompt.as_str())];
        let sampling = Sampling { temperature: Some(job.temperature), ..Sampling::default() };
        let request = Request {
            messages: &messages,
            tools: &[],
            sampling: &sampling,
            max_tokens: u64::from(job.max_tokens),
        };
        match self.model.complete(&request, &Silent).await {
            Ok(reply) => {
                self.failures.store(0, Ordering::Relaxed);
                Ok(Some(ending(&reply.message.text).to_owned()))
            }
            Err(Error::Overflow { .. }) => Ok(None),
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                Err(format!("the judge does not answer: {}", error.with_causes()))
            }
        }
    }
}

/// The end of a reply: the last word decides.
fn ending(text: &str) -> &str {
    let from = text.len().saturating_sub(LONGEST);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[from..]
}
