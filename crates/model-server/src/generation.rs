//! A reply being written in a task of its own, which ends when nobody waits for it any more.
//!
//! Knows models. Knows neither HTTP nor how a reply is sent.

use std::sync::Arc;

use axum::http::StatusCode;
use model::{Calling, Delta, Listener, Model, Reply, Request, Sampling, Silent};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinHandle,
};
use trajectory::{Message, Stop, Usage};

use crate::{
    Served,
    admission::Place,
    failure::Failure,
    question::{Choice, Delivery, Parallel, Question},
};

/// What is heard of a reply.
#[derive(Debug)]
pub(crate) enum News {
    /// More thinking.
    Reasoning(String),
    /// More text.
    Text(String),
    /// All that was heard is void; it begins anew.
    Void,
    /// The end.
    Done(Box<Result<Reply, Failure>>),
}

/// A reply that is being written. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Generation {
    news: UnboundedReceiver<News>,
    task: JoinHandle<()>,
}

/// How often a model that must call a tool is asked.
const ATTEMPTS: u32 = 3;

impl Generation {
    /// Has the question answered as soon as it is its turn.
    pub(crate) fn start<M: Model>(
        models: Arc<Vec<Served<M>>>,
        which: usize,
        question: Question,
        place: Place,
    ) -> Self {
        let (to, news) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let _turn = place.turn().await;
            let Some(served) = models.get(which) else { return };
            let ear = Ear(to);
            // What a model says before it calls a tool it has to call may be said in vain.
            let heard = question.choice == Choice::Auto && question.delivery != Delivery::Whole;
            let listener: &dyn Listener = if heard { &ear } else { &Silent };
            let done = answer(served, question, listener).await;
            let _ = ear.0.send(News::Done(Box::new(done)));
        });
        Self { news, task }
    }

    /// What comes next; nothing after the end.
    pub(crate) async fn next(&mut self) -> Option<News> {
        self.news.recv().await
    }

    /// What has come already.
    pub(crate) fn ready(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// Waits for the end.
    pub(crate) async fn done(mut self) -> Result<Reply, Failure> {
        while let Some(news) = self.next().await {
            if let News::Done(done) = news {
                return *done;
            }
        }
        Err(broken())
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The model ended without a word: it panicked.
pub(crate) fn broken() -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the model failed")
}

async fn answer<M: Model>(
    served: &Served<M>,
    question: Question,
    listener: &dyn Listener,
) -> Result<Reply, Failure> {
    let Question { mut messages, tools, choice, parallel, sampling, max_tokens, .. } = question;
    let max_tokens = max_tokens.unwrap_or(served.max_tokens);
    let calling = match choice {
        Choice::Auto => Calling::Free,
        Choice::Required => Calling::Required,
    };
    let sampling = Sampling { calling, ..sampling };
    let mut usage = Usage::default();
    for _ in 0..ATTEMPTS {
        let request =
            Request { messages: &messages, tools: &tools, sampling: &sampling, max_tokens };
        let mut reply = served.model.complete(&request, listener).await?;
        usage += reply.usage;
        let offered = |name: &str| tools.iter().any(|tool| tool.name == name);
        if choice == Choice::Required {
            reply.message.calls.retain(|call| offered(&call.name));
        }
        if choice == Choice::Auto || !reply.message.calls.is_empty() {
            if parallel == Parallel::One {
                reply.message.calls.truncate(1);
            }
            return Ok(Reply { usage, ..reply });
        }
        if reply.stop == Stop::Length {
            let message = "tool_choice: the reply was cut off before its call was complete; allow more tokens";
            return Err(no_call(message.into()));
        }
        messages.push(Message::Assistant(reply.message));
        let how = served.model.how_to_call(&tools);
        messages.push(Message::user(format!("This reply has to be a call of a tool: {how}.")));
    }
    Err(no_call(format!("tool_choice: the model called none of the tools in {ATTEMPTS} attempts")))
}

fn no_call(message: String) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, message).code("no_tool_call")
}

struct Ear(UnboundedSender<News>);

impl Listener for Ear {
    fn hear(&self, delta: Delta<'_>) {
        let news = match delta {
            Delta::Reasoning(text) => News::Reasoning(text.to_owned()),
            Delta::Text(text) => News::Text(text.to_owned()),
            Delta::Retry { .. } => News::Void,
            // Calls are sent once they are whole and understood.
            Delta::Call(_) | Delta::Arguments(_) => return,
        };
        // Nobody listening means that this task is about to be ended.
        let _ = self.0.send(news);
    }
}
