//! The model as others see it: a conversation goes in, and pieces of text become a reply.
//!
//! How conversations become tokens, and tokens text, is others' business.

use std::{
    fmt,
    path::Path,
    sync::{Arc, mpsc::Sender},
    thread::JoinHandle,
};

use chat_template::{Guard, Template};
use llama_cpp_2::{model::LlamaModel, token::LlamaToken};
use model::{Delta, Error, Listener, Model, Reply, Request, think::Piece};
use tokio::sync::mpsc;
use trajectory::Assistant;

use crate::{
    Cancel, LoadError, Options,
    engine::{Job, News},
    load::{self, Loaded},
    reader::{Conversation, Reader, Turns},
};

/// A model in this process. Its clones share one loaded file and one thread, and any number of
/// conversations can be held at the same time.
#[derive(Clone)]
pub struct LocalModel {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    reader: Arc<Reader>,
    engine: EngineThread,
}

impl LocalModel {
    /// Loads a GGUF file. This blocks for as long as reading the file takes.
    pub fn load(name: &str, path: &Path, options: &Options) -> Result<Self, LoadError> {
        Self::load_unless(name, path, options, &Cancel::default())
    }

    /// The same, unless somebody gives it up meanwhile.
    pub fn load_unless(
        name: &str,
        path: &Path,
        options: &Options,
        cancel: &Cancel,
    ) -> Result<Self, LoadError> {
        let Loaded { model, context, jobs, thread } = load::load(path, options, cancel)?;
        let engine = EngineThread { jobs: Some(jobs), thread: Some(thread) };
        let source = model.chat_template(None).ok().and_then(|template| template.to_string().ok());
        let vocabulary = model.vocab();
        let text = |token| written(&model, token);
        let template = Template::new(source, text(vocabulary.bos()), text(vocabulary.eos()))
            .map_err(|source| LoadError::Template { path: path.to_owned(), source })?;
        // Some files have ordinary tokens that end a turn.
        let is_mark =
            |token: &LlamaToken| vocabulary.is_control(*token) || vocabulary.is_eog(*token);
        let controls = vocabulary.tokens().filter(is_mark);
        let guard = Guard::new(controls.map(text));
        let name = name.to_owned();
        let reader = Reader { model, template, guard, context, turns: Turns::default() };
        Ok(Self { shared: Arc::new(Shared { name, reader: Arc::new(reader), engine }) })
    }

    /// Tokens of one conversation, reply included.
    pub fn context(&self) -> u32 {
        self.shared.reader.context
    }
}

impl Model for LocalModel {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn can_be_held(&self) -> bool {
        true
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, Error> {
        let Conversation { tokens, thread, most, form, mut splitter } =
            self.shared.reader.read(request).await?;
        let (to, mut news) = mpsc::unbounded_channel();
        let sampling = request.sampling.clone();
        let job = Job { prompt: tokens, thread, most, sampling, form, to };
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
        f.debug_struct("LocalModel")
            .field("name", &self.shared.name)
            .field("context", &self.context())
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // llama.cpp must not read on either while the process is being taken down.
        self.reader.turns.close();
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

/// Nothing changes by asking again.
fn ended() -> Error {
    Error::Refused { status: 500, message: "the thread of the model ended".into() }
}

/// The text of a token; empty where the model has no such token.
pub(crate) fn written(model: &LlamaModel, token: LlamaToken) -> String {
    if token.0 < 0 || token.0 >= model.n_vocab() {
        return String::new();
    }
    let bytes = model.vocab().token_to_piece(token, true, None);
    String::from_utf8(bytes).unwrap_or_default()
}
