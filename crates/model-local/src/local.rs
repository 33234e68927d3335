//! The local model: sends rendered prompts to the engine and assembles the response from its pieces.
//!
//! Rendering and evaluation happen elsewhere.

use std::{
    fmt,
    path::Path,
    sync::{Arc, mpsc::Sender},
    thread::JoinHandle,
};

use chat_template::{Guard, Template};
use llama_cpp_2::{model::LlamaModel, token::LlamaToken};
use model::{Delta, Error, Listener, Model, Request, Response, think::Piece};
use tokio::sync::mpsc;
use tracing::debug;
use trajectory::Assistant;

use crate::{
    Cancel, LoadError, Options,
    engine::{Job, Output, Wanted},
    load::{self, Loaded},
    prompt::{Permits, Prompt, PromptBuilder},
};

/// A model in this process. Clones share one loaded file and one engine thread; any number of requests may be made
/// concurrently.
#[derive(Clone)]
pub struct LocalModel {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    name: String,
    pub(crate) prompts: Arc<PromptBuilder>,
    pub(crate) engine: EngineThread,
}

impl LocalModel {
    /// Loads a GGUF file. Blocks until the file is read.
    pub fn load(name: &str, path: &Path, options: &Options) -> Result<Self, LoadError> {
        Self::load_cancellable(name, path, options, &Cancel::default())
    }

    /// Like [`LocalModel::load`], but can be cancelled from another thread.
    pub fn load_cancellable(
        name: &str,
        path: &Path,
        options: &Options,
        cancel: &Cancel,
    ) -> Result<Self, LoadError> {
        let Loaded { model, context, jobs, thread } = load::load(path, options, cancel)?;
        let engine = EngineThread { jobs: Some(jobs), thread: Some(thread) };
        let source = model.chat_template(None).ok().and_then(|template| template.to_string().ok());
        let vocabulary = model.vocab();
        let text = |token| token_text(&model, token);
        let template = Template::new(source, text(vocabulary.bos()), text(vocabulary.eos()))
            .map_err(|source| LoadError::Template { path: path.to_owned(), source })?;
        // Some files have ordinary tokens that end a turn.
        let is_control =
            |token: &LlamaToken| vocabulary.is_control(*token) || vocabulary.is_eog(*token);
        let controls = vocabulary.tokens().filter(is_control);
        let guard = Guard::new(controls.map(text));
        let name = name.to_owned();
        let prompts =
            PromptBuilder { model, template, guard, context, permits: Permits::default() };
        Ok(Self { shared: Arc::new(Shared { name, prompts: Arc::new(prompts), engine }) })
    }

    /// The context length of one conversation in tokens, response included.
    pub fn context(&self) -> u32 {
        self.shared.prompts.context
    }
}

impl Model for LocalModel {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn supports_shapes(&self) -> bool {
        true
    }

    #[tracing::instrument(name = "model_call", level = "debug", skip_all, fields(model = self.name(), max_tokens = request.max_tokens))]
    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        let Prompt { tokens, fingerprint, max_tokens, constraint, mut splitter } =
            self.shared.prompts.build(request).await?;
        let (output, mut outputs) = mpsc::unbounded_channel();
        let wanted = Wanted::Text { sampling: Box::new(request.sampling.clone()), constraint };
        let job = Job { prompt: tokens, fingerprint, max_tokens, wanted, output };
        self.shared.engine.submit(job)?;
        let mut message = Assistant::default();
        let mut push = |piece: Piece<'_>| match piece {
            Piece::Reasoning(piece) if !piece.is_empty() => {
                listener.on_delta(Delta::Reasoning(piece));
                message.reasoning.push_str(piece);
            }
            Piece::Text(piece) if !piece.is_empty() => {
                listener.on_delta(Delta::Text(piece));
                message.text.push_str(piece);
            }
            Piece::Reasoning(_) | Piece::Text(_) => {}
        };
        while let Some(output) = outputs.recv().await {
            match output {
                Output::Text(piece) => splitter.push(&piece, &mut push),
                Output::Done(stop, usage) => {
                    splitter.finish(&mut push);
                    debug!(
                        input_tokens = usage.input,
                        cached = usage.cached,
                        output_tokens = usage.output,
                        ?stop,
                        "response complete"
                    );
                    return Ok(Response { message, stop, usage, from_cache: false });
                }
                Output::Failed(why) => return Err(Error::Cut(why)),
                // Only where tokens were requested.
                Output::Token(..) => {}
            }
        }
        Err(engine_ended())
    }
}

impl fmt::Debug for LocalModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalModel")
            .field("name", &self.shared.name)
            .field("context", &self.context())
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // llama.cpp must not tokenize while the process exits.
        self.prompts.permits.close();
    }
}

/// The engine's thread. It ends when the sender of jobs is dropped.
pub(crate) struct EngineThread {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl EngineThread {
    pub(crate) fn submit(&self, job: Job) -> Result<(), Error> {
        let sent = self.jobs.as_ref().and_then(|jobs| jobs.send(job).ok());
        sent.ok_or_else(engine_ended)
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.jobs = None;
        // llama.cpp must not compute while the process exits. This waits for at most one step.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A retry would not help.
fn engine_ended() -> Error {
    Error::Refused { status: 500, message: "the engine thread of the local model ended".into() }
}

/// The text of a token; empty where the model has no such token.
pub(crate) fn token_text(model: &LlamaModel, token: LlamaToken) -> String {
    if token.0 < 0 || token.0 >= model.n_vocab() {
        return String::new();
    }
    let bytes = model.vocab().token_to_piece(token, true, None);
    String::from_utf8(bytes).unwrap_or_default()
}
