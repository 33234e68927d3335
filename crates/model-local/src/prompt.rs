//! Builds prompts: renders conversations with the chat template and tokenizes them, on separate threads, since that
//! takes long for long conversations and must not block the runtime.
//!
//! Renders, tokenizes and compiles grammars. Evaluates nothing.

use std::{sync::Arc, thread, time::Duration};

use chat_template::{Guard, SPLIT, Template};
use llama_cpp_2::{model::LlamaModel, token::LlamaToken};
use model::{
    Error, Overflow, Request, Shape, ToolSpec,
    think::{self, Splitter},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use trajectory::{Content, Message};

use crate::{grammar::Constraint, local::token_text, slots::Fingerprint, thinking::ResponseStart};

/// Prompts that are built at the same time.
const MAX_CONCURRENT: usize = 4;

/// Stack size of a thread: some of llama.cpp's tokenizers recurse once per character of a word, and take less than
/// 1 KiB of stack per byte of a [chunk](gguf::tokenizer_chunks).
const STACK_SIZE: usize = 64 << 20;

/// On average, no token stands for more bytes.
const MAX_BYTES_PER_TOKEN: u64 = 32;

/// A response cut off after fewer tokens is useless: the conversation has to be shortened instead.
const MIN_OUTPUT: u64 = 64;

/// Builds the prompts of one model.
pub(crate) struct PromptBuilder {
    pub(crate) model: Arc<LlamaModel>,
    pub(crate) template: Template,
    pub(crate) guard: Guard,
    /// The context length of a conversation in tokens.
    pub(crate) context: u32,
    pub(crate) permits: Permits,
}

/// Bounds how many prompts are built at once.
pub(crate) struct Permits(Arc<Semaphore>);

impl Default for Permits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CONCURRENT)))
    }
}

impl Permits {
    async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.ok()
    }

    /// Waits for the running builds, and lets no new one begin.
    pub(crate) fn close(&self) {
        self.0.close();
        while self.0.available_permits() < MAX_CONCURRENT {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A prompt for the engine.
pub(crate) struct Prompt {
    pub(crate) tokens: Vec<LlamaToken>,
    pub(crate) fingerprint: Fingerprint,
    /// Maximum output tokens.
    pub(crate) max_tokens: u64,
    pub(crate) constraint: Option<Constraint>,
    /// Separates thinking from text.
    pub(crate) splitter: Splitter,
}

/// The owned part of a request that a build needs.
struct PromptRequest {
    messages: Vec<Message>,
    tools: Vec<ToolSpec>,
    shape: Option<Shape>,
    max_tokens: u64,
}

impl PromptBuilder {
    /// Builds the prompt for a request.
    pub(crate) async fn build(self: &Arc<Self>, request: &Request<'_>) -> Result<Prompt, Error> {
        self.check_size(text_bytes(request.messages))?;
        let failed = |why: String| Error::Refused { status: 500, message: why };
        let permit = self.permits.acquire().await;
        let permit = permit.ok_or_else(|| failed("the local model is shutting down".into()))?;
        let owned = PromptRequest {
            messages: request.messages.to_vec(),
            tools: request.tools.to_vec(),
            shape: request.sampling.shape.clone(),
            max_tokens: request.max_tokens,
        };
        let (sender, built) = oneshot::channel();
        let builder = Arc::clone(self);
        let build = move || {
            let prompt = builder.prompt(&owned);
            drop((builder, permit));
            // The receiver is gone where the request was dropped.
            let _ = sender.send(prompt);
        };
        let thread = thread::Builder::new().name("prompt".into()).stack_size(STACK_SIZE);
        thread.spawn(build).map_err(|error| {
            failed(format!("cannot start a thread to build the prompt: {error}"))
        })?;
        built.await.unwrap_or_else(|_| Err(failed("building the prompt failed".into())))
    }

    fn prompt(&self, request: &PromptRequest) -> Result<Prompt, Error> {
        let (tokens, start) = self.tokenize(request)?;
        let max_tokens = self.room(tokens.len(), request.max_tokens)?;
        let compile = |shape| Constraint::compile(shape, &self.model, start);
        let constraint = request.shape.as_ref().map(compile).transpose().map_err(refused)?;
        let splitter = match start {
            ResponseStart::Thinking => Splitter::inside(),
            ResponseStart::Fresh => Splitter::default(),
        };
        let fingerprint = Fingerprint::of(&request.messages);
        Ok(Prompt { tokens, fingerprint, max_tokens, constraint, splitter })
    }

    /// The tokens of a conversation, and how its response begins.
    fn tokenize(&self, request: &PromptRequest) -> Result<(Vec<LlamaToken>, ResponseStart), Error> {
        let text = self
            .template
            .render(&request.messages, &request.tools, &self.guard)
            .map_err(|error| refused(error.to_string()))?;
        self.check_size(text.len())?;
        let vocabulary = self.model.vocab();
        let bos = token_text(&self.model, vocabulary.bos());
        // Most templates write the BOS token themselves; a second one confuses models.
        let mut add_bos = bos.is_empty() || !text.starts_with(&bos);
        let mut tokens = Vec::new();
        for chunk in text.split(SPLIT).flat_map(gguf::tokenizer_chunks) {
            tokens.extend(vocabulary.tokenize(chunk.as_bytes(), add_bos, true));
            add_bos = false;
        }
        if tokens.is_empty() {
            return Err(refused("the conversation is empty".into()));
        }
        // Templates of reasoning models may open the thinking themselves.
        let thinks = text.trim_end().ends_with(think::OPEN);
        Ok((tokens, if thinks { ResponseStart::Thinking } else { ResponseStart::Fresh }))
    }

    /// Rejects what cannot fit before tokenizing it, which takes time and memory.
    fn check_size(&self, bytes: usize) -> Result<(), Error> {
        let context = u64::from(self.context);
        if bytes as u64 <= context.saturating_mul(MAX_BYTES_PER_TOKEN) {
            return Ok(());
        }
        let numbers = Overflow { context: Some(context), prompt: None, output: None };
        let message = format!("it has {bytes} bytes, and the context is {context} tokens");
        Err(Error::Overflow { numbers, message })
    }

    /// The output tokens that fit after the prompt, at most `max_tokens`.
    fn room(&self, prompt: usize, max_tokens: u64) -> Result<u64, Error> {
        let (context, prompt) = (u64::from(self.context), prompt as u64);
        let room = context.saturating_sub(prompt);
        if room < max_tokens.min(MIN_OUTPUT) || room == 0 {
            let message = format!("it has {prompt} tokens, and the context is {context}");
            let numbers = Overflow { context: Some(context), prompt: Some(prompt), output: None };
            return Err(Error::Overflow { numbers, message });
        }
        Ok(room.min(max_tokens))
    }
}

/// Bytes of text in a conversation, without the model's messages, which templates may shorten.
fn text_bytes(messages: &[Message]) -> usize {
    let text = |content: &[Content]| {
        content.iter().filter_map(Content::as_text).map(str::len).sum::<usize>()
    };
    let bytes = messages.iter().map(|message| match message {
        Message::System { text } => text.len(),
        Message::User { content } => text(content),
        Message::Tool(result) => text(&result.content),
        Message::Assistant(_) => 0,
    });
    bytes.sum()
}

fn refused(message: String) -> Error {
    Error::Refused { status: 400, message }
}
