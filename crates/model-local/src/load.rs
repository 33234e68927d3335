//! Opening a model file, and what can be wrong with it.
//!
//! Errors are told before llama.cpp could stumble over them, where that is possible.

use std::{
    fs::File,
    io::{self, Read},
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

use llama_cpp_2::{
    LlamaModelLoadError,
    context::{LlamaContext, params::LlamaContextParams},
    llama_backend::LlamaBackend,
    model::{LlamaLoraAdapter, LlamaModel, params::LlamaModelParams},
};

use crate::{
    TemplateError,
    engine::{BATCH, Engine, Job},
    log,
    memory::{self, Need},
};

/// How a model is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that compute; all of the machine's where absent.
    pub threads: Option<NonZeroU32>,
    /// Tokens of one conversation, reply included; where absent, as many as the model takes, but no more
    /// than 16,384.
    pub context: Option<NonZeroU32>,
    /// Conversations that are evaluated, or kept, at the same time. Each has a cache of its own for the
    /// whole context.
    pub sequences: NonZeroU32,
    /// A LoRA adapter to apply, as a GGUF file.
    pub adapter: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: None, context: None, sequences: FOUR, adapter: None }
    }
}

const FOUR: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// A model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the model file {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The file is something else.
    #[error("{path} is not a GGUF file")]
    NotGguf {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged, incomplete, or of an architecture llama.cpp does not know.
    #[error(
        "llama.cpp cannot load {path}: {why} (a file that is damaged or incomplete is fetched again)"
    )]
    Refused {
        /// The file.
        path: PathBuf,
        /// llama.cpp's words.
        why: String,
    },
    /// llama.cpp was built for other processors.
    #[error(
        "this processor has no {0}, which the program was built for; build it here with RUSTFLAGS=\"-C \
         target-cpu=native\", or use a model at a server"
    )]
    Processor(&'static str),
    /// The model does something other than writing text.
    #[error("{path} holds no model that writes text (its architecture is {architecture:?})")]
    WritesNothing {
        /// The file.
        path: PathBuf,
        /// What it says it is.
        architecture: String,
    },
    /// More context is asked for than the model was trained on.
    #[error("the model takes at most {most} tokens of context, not {asked}")]
    ContextTooLong {
        /// What was asked for.
        asked: u32,
        /// What the model takes.
        most: u32,
    },
    /// There is not enough memory for the model and its conversations.
    #[error(
        "about {} MiB of memory are needed ({} for the model, {} for {sequences} conversations of {context} tokens), \
         and {} are free; use a smaller model, a shorter context or fewer conversations at once",
        mebibytes(*needed), mebibytes(*weights), mebibytes(needed.saturating_sub(*weights)), mebibytes(*free)
    )]
    NoMemory {
        /// Bytes in all.
        needed: u64,
        /// Bytes of the model alone.
        weights: u64,
        /// Bytes there are.
        free: u64,
        /// Conversations at once.
        sequences: u32,
        /// Tokens of each.
        context: u32,
    },
    /// Somebody gave it up.
    #[error("loading {path} was given up")]
    Cancelled {
        /// The file.
        path: PathBuf,
    },
    /// There is no memory for the conversations.
    #[error(
        "no room for {sequences} conversations of {context} tokens: {why}; use a shorter context or fewer \
         at once"
    )]
    NoRoom {
        /// How many.
        sequences: u32,
        /// Tokens of each.
        context: u32,
        /// llama.cpp's words.
        why: String,
    },
    /// The chat template in the file is of no use.
    #[error("cannot use {path}")]
    Template {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: TemplateError,
    },
    /// The system gives us no thread, or it died.
    #[error("cannot start the thread of the model")]
    Thread(#[source] io::Error),
}

fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Gives up loading a model, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Nobody wants the model any more.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a loaded model consists of for those who ask it.
pub(crate) struct Loaded {
    pub(crate) model: Arc<LlamaModel>,
    pub(crate) context: u32,
    pub(crate) jobs: mpsc::Sender<Job>,
    pub(crate) thread: JoinHandle<()>,
}

/// Loads a model on a thread of its own, where it stays.
pub(crate) fn load(path: &Path, options: &Options, cancel: &Cancel) -> Result<Loaded, LoadError> {
    check_processor()?;
    check(path)?;
    if let Some(adapter) = &options.adapter {
        check(adapter)?;
    }
    if let (Some(need), Some(free)) = (memory::needed(path, options), memory::free()) {
        enough(need, free, options)?;
    }
    let (jobs, inbox) = mpsc::channel();
    let (ready, loaded) = mpsc::sync_channel(1);
    let (file, options, cancel) = (path.to_owned(), options.clone(), cancel.clone());
    let main = move || serve(&Order { path: &file, options: &options, cancel }, &ready, &inbox);
    let thread =
        thread::Builder::new().name("model".into()).spawn(main).map_err(LoadError::Thread)?;
    let died = |_| LoadError::Thread(io::Error::other("it ended while loading the model"));
    match loaded.recv().map_err(died).flatten() {
        Ok((model, context)) => Ok(Loaded { model, context, jobs, thread }),
        Err(error) => {
            // Whoever hears of the failure may end the process, and llama.cpp must not be at work then.
            let _ = thread.join();
            Err(error)
        }
    }
}

fn enough(need: Need, free: u64, options: &Options) -> Result<(), LoadError> {
    if need.all() <= free {
        return Ok(());
    }
    Err(LoadError::NoMemory {
        needed: need.all(),
        weights: need.weights,
        free,
        sequences: options.sequences.get(),
        context: need.context,
    })
}

/// What to load, and how.
struct Order<'a> {
    path: &'a Path,
    options: &'a Options,
    cancel: Cancel,
}

type Ready = Result<(Arc<LlamaModel>, u32), LoadError>;

/// The life of the thread.
fn serve(order: &Order<'_>, ready: &mpsc::SyncSender<Ready>, inbox: &mpsc::Receiver<Job>) {
    // Nobody hears it where the caller is gone, and then nobody needs to.
    let tell = |result| ready.send(result).is_ok();
    let options = order.options;
    let opened = open(order).and_then(|(model, adapter)| {
        let context = context_length(&model, options)?;
        Ok((model, adapter, context))
    });
    let (model, mut adapter, length) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            tell(Err(error));
            return;
        }
    };
    match make_context(&model, adapter.as_mut(), length, options) {
        Err(error) => {
            tell(Err(error));
        }
        Ok(context) => {
            let engine = Engine::new(&model, context, options.sequences.get());
            if tell(Ok((Arc::clone(&model), length))) {
                engine.run(inbox);
            }
        }
    }
}

/// llama.cpp is set up once, and never torn down.
fn backend() -> Option<&'static LlamaBackend> {
    static BACKEND: OnceLock<Option<LlamaBackend>> = OnceLock::new();
    BACKEND.get_or_init(|| LlamaBackend::init().ok()).as_ref()
}

/// ggml takes for granted what it was compiled for.
#[cfg(target_arch = "x86_64")]
fn check_processor() -> Result<(), LoadError> {
    let lacks = [
        ("AVX2", std::is_x86_feature_detected!("avx2")),
        ("FMA", std::is_x86_feature_detected!("fma")),
        ("F16C", std::is_x86_feature_detected!("f16c")),
    ];
    let missing = lacks.iter().find(|(_, there)| !there);
    missing.map_or(Ok(()), |(name, _)| Err(LoadError::Processor(name)))
}

#[cfg(not(target_arch = "x86_64"))]
fn check_processor() -> Result<(), LoadError> {
    Ok(())
}

/// Whether a file is there and looks like what it should be.
fn check(path: &Path) -> Result<(), LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    let kind = file.metadata().map_err(unreadable)?;
    if !kind.is_file() {
        return Err(unreadable(io::Error::other("it is not a file")));
    }
    let mut magic = [0; 4];
    match file.read_exact(&mut magic) {
        Ok(()) if &magic == b"GGUF" => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(unreadable(error)),
        _ => Err(LoadError::NotGguf { path: path.to_owned() }),
    }
}

fn open(order: &Order<'_>) -> Result<(Arc<LlamaModel>, Option<LlamaLoraAdapter>), LoadError> {
    let Order { path, options, cancel } = order;
    let refused = |path: &Path, why: Option<String>| LoadError::Refused {
        path: path.to_owned(),
        why: why.unwrap_or_else(|| "it does not say why".into()),
    };
    let asked = cancel.clone();
    let params = LlamaModelParams::default().with_progress_callback(move |_| !asked.is_cancelled());
    let (model, why) = log::listening(|| match backend() {
        Some(backend) => LlamaModel::load_from_file(backend, path, &params),
        None => Err(LlamaModelLoadError::NullResult),
    });
    if cancel.is_cancelled() {
        return Err(LoadError::Cancelled { path: path.to_path_buf() });
    }
    let mut model = model.map_err(|error| refused(path, why.or_else(|| explained(&error))))?;
    let architecture = model.meta_val_str("general.architecture").unwrap_or_default();
    if writes_nothing(&architecture) || model.n_vocab() <= 0 {
        return Err(LoadError::WritesNothing { path: path.to_path_buf(), architecture });
    }
    let adapter = match &options.adapter {
        None => None,
        Some(file) => {
            let (adapter, why) = log::listening(|| model.lora_adapter_init(file));
            Some(adapter.map_err(|_| refused(file, why))?)
        }
    };
    Ok((Arc::new(model), adapter))
}

fn explained(error: &LlamaModelLoadError) -> Option<String> {
    let unicode = matches!(error, LlamaModelLoadError::PathToStrError(_));
    unicode.then(|| "its path is not Unicode".into())
}

/// Architectures that turn text into numbers, or into other texts as a whole, or that write in no order.
fn writes_nothing(architecture: &str) -> bool {
    architecture.contains("bert")
        || architecture.contains("embedding")
        || architecture.starts_with("t5")
        || matches!(architecture, "clip" | "wavtokenizer-dec" | "dream")
        || architecture.starts_with("llada")
        || architecture.starts_with("rnd1")
}

/// Without a wish of the user: longer episodes are rare, and the cache takes memory at once.
pub(crate) const USUAL_CONTEXT: u32 = 16_384;

fn context_length(model: &LlamaModel, options: &Options) -> Result<u32, LoadError> {
    let most = model.n_ctx_train();
    match options.context.map(NonZeroU32::get) {
        None => Ok(most.min(USUAL_CONTEXT)),
        Some(asked) if asked > most => Err(LoadError::ContextTooLong { asked, most }),
        Some(asked) => Ok(asked),
    }
}

fn make_context<'m>(
    model: &'m LlamaModel,
    adapter: Option<&mut LlamaLoraAdapter>,
    length: u32,
    options: &Options,
) -> Result<LlamaContext<'m>, LoadError> {
    let sequences = options.sequences.get();
    let no_room = |why: Option<String>| LoadError::NoRoom {
        sequences,
        context: length,
        why: why.unwrap_or_else(|| "llama.cpp does not say why".into()),
    };
    let threads = options.threads.map(NonZeroU32::get).or_else(|| {
        let all = thread::available_parallelism().ok()?;
        u32::try_from(all.get()).ok()
    });
    let threads = threads.and_then(|threads| i32::try_from(threads).ok()).unwrap_or(1);
    // llama.cpp rounds each conversation's part up, to a multiple of this.
    let padded = length.checked_next_multiple_of(256).and_then(|one| one.checked_mul(sequences));
    let padded = padded.ok_or_else(|| no_room(Some("so many tokens cannot be counted".into())))?;
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(padded))
        .with_n_seq_max(sequences)
        .with_n_batch(BATCH)
        .with_n_ubatch(BATCH)
        .with_n_threads(threads)
        .with_n_threads_batch(threads)
        .with_kv_unified(false)
        .with_no_perf(true);
    let (context, why) = log::listening(|| model.new_context(backend()?, params).ok());
    let mut context = context.ok_or_else(|| no_room(why))?;
    if let (Some(adapter), Some(path)) = (adapter, &options.adapter) {
        let (set, why) = log::listening(|| context.lora_adapter_set(adapter, 1.0));
        set.map_err(|error| LoadError::Refused {
            path: path.clone(),
            why: why.unwrap_or_else(|| error.to_string()),
        })?;
    }
    Ok(context)
}
