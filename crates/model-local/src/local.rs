//! The model as others see it: conversations become tokens here, and pieces of text become replies.

use std::{
    fmt,
    path::Path,
    sync::{Arc, mpsc::Sender},
    thread::JoinHandle,
};

use llama_cpp_2::{model::LlamaModel, token::LlamaToken};
use model::{
    Delta, Error, Listener, Model, Overflow, Reply, Request,
    think::{self, Piece, Splitter},
};
use tokio::sync::mpsc;
use trajectory::Assistant;

use crate::{
    LoadError, Options,
    engine::{Job, News},
    grammar::Form,
    guard::{Guard, SPLIT},
    load::{self, Loaded},
    template::Template,
};

/// A model in this process. Its clones share one loaded file and one thread, and any number of
/// conversations can be held at the same time.
#[derive(Clone)]
pub struct LocalModel {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    model: Arc<LlamaModel>,
    template: Template,
    guard: Guard,
    context: u32,
    engine: EngineThread,
}

impl LocalModel {
    /// Loads a GGUF file. This blocks for as long as reading the file takes.
    pub fn load(name: &str, path: &Path, options: &Options) -> Result<Self, LoadError> {
        let Loaded { model, context, jobs, thread } = load::load(path, options)?;
        let engine = EngineThread { jobs: Some(jobs), thread: Some(thread) };
        let source = model.chat_template(None).ok().and_then(|template| template.to_string().ok());
        let vocabulary = model.vocab();
        let text = |token| written(&model, token);
        let template = Template::new(source, text(vocabulary.bos()), text(vocabulary.eos()))
            .map_err(|source| LoadError::Template { path: path.to_owned(), source })?;
        let controls = vocabulary.tokens().filter(|token| vocabulary.is_control(*token));
        let guard = Guard::new(controls.map(text));
        let name = name.to_owned();
        Ok(Self { shared: Arc::new(Shared { name, model, template, guard, context, engine }) })
    }

    /// Tokens of one conversation, reply included.
    pub fn context(&self) -> u32 {
        self.shared.context
    }

    /// The tokens of a conversation, and how its reply begins.
    fn prompt(&self, request: &Request<'_>) -> Result<(Vec<LlamaToken>, Splitter), Error> {
        let Shared { model, template, guard, .. } = &*self.shared;
        let refused = |message: String| Error::Refused { status: 400, message };
        let text = template
            .render(request.messages, request.tools, guard)
            .map_err(|error| refused(error.to_string()))?;
        // What cannot fit is not even counted: that takes long and much memory.
        if text.len() as u64 > u64::from(self.shared.context).saturating_mul(MOST_BYTES) {
            let context = u64::from(self.shared.context);
            let numbers = Overflow { context: Some(context), prompt: None, output: None };
            let message =
                format!("it has {} bytes, and the context is {context} tokens", text.len());
            return Err(Error::Overflow { numbers, message });
        }
        let vocabulary = model.vocab();
        let bos = written(model, vocabulary.bos());
        // Most templates write the first token themselves; a second one confuses models.
        let mut add_first = bos.is_empty() || !text.starts_with(&bos);
        let mut tokens = Vec::new();
        for part in text.split(SPLIT) {
            tokens.extend(vocabulary.tokenize(part.as_bytes(), add_first, true));
            add_first = false;
        }
        if tokens.is_empty() {
            return Err(refused("the conversation is empty".into()));
        }
        // Templates of models that always think may open the thinking themselves.
        let thinks = text.trim_end().ends_with(think::OPEN);
        Ok((tokens, if thinks { Splitter::inside() } else { Splitter::default() }))
    }

    /// How many tokens a reply may have.
    fn room(&self, prompt: usize, most: u64) -> Result<u64, Error> {
        let (context, prompt) = (u64::from(self.shared.context), prompt as u64);
        let room = context.saturating_sub(prompt);
        if room < most.min(LEAST) || room == 0 {
            let message = format!("it has {prompt} tokens, and the context is {context}");
            let numbers = Overflow { context: Some(context), prompt: Some(prompt), output: None };
            return Err(Error::Overflow { numbers, message });
        }
        Ok(room.min(most))
    }
}

/// No token stands for more bytes, on the whole.
const MOST_BYTES: u64 = 32;

/// A reply cut off after fewer tokens helps nobody: the conversation has to be made shorter.
const LEAST: u64 = 64;

impl Model for LocalModel {
    fn name(&self) -> &str {
        &self.shared.name
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        let (prompt, mut splitter) = self.prompt(request)?;
        let most = self.room(prompt.len(), request.max_tokens)?;
        let (to, mut news) = mpsc::unbounded_channel();
        let shape = request.sampling.shape.as_ref();
        let form = shape.map(|shape| Form::compile(shape, &self.shared.model)).transpose();
        let form = form.map_err(|message| Error::Refused { status: 400, message })?;
        let job = Job { prompt, most, sampling: request.sampling.clone(), form, to };
        self.shared.engine.ask(job)?;
        let mut message = Assistant::default();
        let mut say = |piece: Piece<'_>| match piece {
            Piece::Reasoning(piece) if !piece.is_empty() => {
                listener.hear(Delta::Reasoning(piece));
                message.reasoning.push_str(piece);
            }
            Piece::Text(piece) if !piece.is_empty() => {
                listener.hear(Delta::Text(piece));
                message.text.push_str(piece);
            }
            Piece::Reasoning(_) | Piece::Text(_) => {}
        };
        while let Some(news) = news.recv().await {
            match news {
                News::Text(piece) => splitter.push(&piece, &mut say),
                News::Done(stop, usage) => {
                    splitter.finish(&mut say);
                    return Ok(Reply { message, stop, usage, from_cache: false });
                }
                News::Failed(why) => return Err(Error::Cut(why)),
            }
        }
        Err(ended())
    }
}

impl fmt::Debug for LocalModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, context, .. } = &*self.shared;
        f.debug_struct("LocalModel")
            .field("name", name)
            .field("context", context)
            .finish_non_exhaustive()
    }
}

/// The thread of the engine. It ends when nobody can ask it any more.
struct EngineThread {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl EngineThread {
    fn ask(&self, job: Job) -> Result<(), Error> {
        let sent = self.jobs.as_ref().and_then(|jobs| jobs.send(job).ok());
        sent.ok_or_else(ended)
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.jobs = None;
        // llama.cpp must not compute any more while the process is being taken down. This waits for a step.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ended() -> Error {
    Error::Cut("the thread of the model ended".into())
}

/// The text of a token; empty where the model has no such token.
fn written(model: &LlamaModel, token: LlamaToken) -> String {
    if token.0 < 0 || token.0 >= model.n_vocab() {
        return String::new();
    }
    let bytes = model.vocab().token_to_piece(token, true, None);
    String::from_utf8(bytes).unwrap_or_default()
}
