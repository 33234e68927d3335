//! `POST /v1/completions` with token ids, as samplers of rollouts need it.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Response, StatusCode},
};
use futures_util::stream;
use model::{Error, Model, Overflow};
use openai_wire::{
    ApiError,
    parameters::{Delivery, StreamUsage},
    sse::{self, event_stream},
};
use sampling::{OnToken, SampleError, SampleRequest, Sampled};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    admission::QueueSlot,
    app::{App, json},
    chat,
    completions_request::{CompletionsRequest, Ends, parse},
    completions_response::{Completion, Pair},
    generation::broken,
    tokens::TokenModel,
};

/// Handles one request. Dropped when the client disconnects, which stops the generation.
pub(crate) async fn complete<M: Model>(
    State(app): State<Arc<App<M>>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let (mut request, permit) = app.read(request, parse).await?;
    let served =
        app.models.get(app.find(&request.model)?).ok_or_else(|| chat::unknown(&request.model))?;
    let model = served.tokens.clone().ok_or_else(|| {
        let message = "this model does not continue token sequences; use /v1/chat/completions";
        ApiError::new(StatusCode::NOT_FOUND, message)
    })?;
    let name = match request.model.as_str() {
        "" => served.names.first().map_or("", String::as_str),
        name => name,
    };
    if request.ends == Ends::Heeded {
        request.stop_tokens.extend(model.ends());
    }
    let (tokens, context) = (request.prompt.len(), model.context());
    // Before it is queued: what cannot be served shall not hold memory until its turn.
    if tokens >= context {
        return Err(failed(SampleError::TooLong { tokens, context }));
    }
    let completion = Completion::new(name, model.clone(), &request);
    let delivery = request.delivery;
    let slot = app.admission.enqueue(permit)?;
    let running = Running::start(model, request, slot);
    match delivery {
        Delivery::Whole => Ok(json(&running.whole(completion).await?)),
        Delivery::Stream(usage) => {
            let heartbeat = app.options.heartbeat;
            Streamed { running, completion, usage, heartbeat, ended: false }.respond().await
        }
    }
}

/// A running generation, aborted on drop.
struct Running {
    events: UnboundedReceiver<Progress>,
    task: JoinHandle<()>,
}

enum Progress {
    Token(Pair),
    Done(Box<Result<Sampled, ApiError>>),
}

impl Running {
    /// Starts the generation as soon as admission allows.
    fn start(model: TokenModel, request: CompletionsRequest, slot: QueueSlot) -> Self {
        // The upper half: a sampler may also serve rollouts of its own process, which count from the bottom.
        static CONVERSATION: AtomicU64 = AtomicU64::new(1 << 63);
        let (sender, events) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let _permit = slot.run().await;
            let sample = SampleRequest {
                conversation: CONVERSATION.fetch_add(1, Ordering::Relaxed),
                tokens: request.prompt.into(),
                max_tokens: request.max_tokens,
                params: request.params,
                stop_tokens: request.stop_tokens,
                until: None,
            };
            let tokens = sender.clone();
            let on_token: OnToken = Box::new(move |token, logprob| {
                // Without a receiver, this task is about to be aborted.
                let _ = tokens.send(Progress::Token(Pair { token, logprob }));
            });
            let done = model.sample(sample, on_token).await.map_err(failed);
            let _ = sender.send(Progress::Done(Box::new(done)));
        });
        Self { events, task }
    }

    async fn whole(mut self, mut completion: Completion) -> Result<Value, ApiError> {
        while let Some(event) = self.events.recv().await {
            if let Progress::Done(done) = event {
                return Ok(completion.whole(&(*done)?));
            }
        }
        Err(broken())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A response that is sent as server-sent events.
struct Streamed {
    running: Running,
    completion: Completion,
    usage: StreamUsage,
    heartbeat: Duration,
    ended: bool,
}

impl Streamed {
    /// Starts the stream. One that fails before its first token gets an error status instead.
    async fn respond(mut self) -> Result<Response<Body>, ApiError> {
        let first = match timeout(self.heartbeat, self.running.events.recv()).await {
            Err(_) => HEARTBEAT.to_owned(),
            Ok(None) => return Err(broken()),
            Ok(Some(Progress::Done(done))) => self.finish(Ok((*done)?)),
            Ok(Some(Progress::Token(pair))) => self.tokens(pair),
        };
        let body = stream::unfold((Some(first), self), |(first, mut this)| async {
            let bytes = match first {
                Some(first) => first,
                None => this.next().await?,
            };
            Some((Ok::<_, Infallible>(bytes), (None, this)))
        });
        Ok(event_stream(Body::from_stream(body)))
    }

    /// The next bytes, or `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if self.ended {
            return None;
        }
        Some(match timeout(self.heartbeat, self.running.events.recv()).await {
            Err(_) => HEARTBEAT.to_owned(),
            Ok(None) => self.finish(Err(broken())),
            Ok(Some(Progress::Done(done))) => self.finish(*done),
            Ok(Some(Progress::Token(pair))) => self.tokens(pair),
        })
    }

    /// A chunk with this token and those that wait behind it: a slow reader gets what has accumulated at once.
    fn tokens(&mut self, first: Pair) -> String {
        let mut pairs = vec![first];
        let mut done = None;
        while pairs.len() < MAX_TOKENS_PER_CHUNK
            && done.is_none()
            && let Ok(event) = self.running.events.try_recv()
        {
            match event {
                Progress::Token(pair) => pairs.push(pair),
                Progress::Done(result) => done = Some(result),
            }
        }
        let mut text = event(&self.completion.chunk(&pairs, None));
        if let Some(done) = done {
            text.push_str(&self.finish(*done));
        }
        text
    }

    fn finish(&mut self, done: Result<Sampled, ApiError>) -> String {
        self.ended = true;
        match done {
            Err(failure) => event(&failure.json()),
            Ok(sampled) => {
                let mut text = event(&self.completion.chunk(&[], Some(&sampled)));
                if self.usage == StreamUsage::Included {
                    text.push_str(&event(&self.completion.usage_chunk(&sampled)));
                }
                text + sse::DONE
            }
        }
    }
}

/// Keeps a connection open.
const HEARTBEAT: &str = ": still writing\n\n";

const MAX_TOKENS_PER_CHUNK: usize = 256;

/// An event. Line breaks are escaped in JSON, so it is one line.
fn event(json: &Value) -> String {
    format!("data: {json}\n\n")
}

/// The error of a sampler, for the client.
fn failed(error: SampleError) -> ApiError {
    let text = error.to_string();
    match error {
        SampleError::TooLong { tokens, context } => {
            let (context, prompt) = (Some(context as u64), Some(tokens as u64));
            let numbers = Overflow { context, prompt, output: None };
            ApiError::from(Error::Overflow { numbers, message: text }).param("prompt")
        }
        SampleError::Empty | SampleError::UnknownToken { .. } => ApiError::field("prompt", text),
        SampleError::InvalidParameter { .. } => ApiError::new(StatusCode::BAD_REQUEST, text),
        SampleError::Stopped => ApiError::busy("the model is being shut down"),
        SampleError::Failed(source) => {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}: {source}"))
        }
        SampleError::NotFinite | SampleError::Panicked | SampleError::Exhausted => {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
}

/// An id of a completion.
pub(crate) fn id() -> String {
    format!("cmpl-{:032x}", fastrand::u128(..))
}

/// The usage object.
pub(crate) fn usage(prompt: usize, response: usize) -> Value {
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": response,
        "total_tokens": prompt + response,
    })
}
