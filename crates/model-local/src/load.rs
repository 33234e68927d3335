//! Loads a model file, and reports what is wrong with it.
//!
//! Problems are detected before llama.cpp is called, where possible.

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
    memory::{self, MemoryEstimate},
};

/// How a model is loaded and run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Compute threads. Default: all of the machine's.
    pub threads: Option<NonZeroU32>,
    /// Context length of one conversation in tokens, response included. Default: the model's, at most 16,384.
    pub context: Option<NonZeroU32>,
    /// Conversations that are evaluated or cached at the same time. Each has its own KV cache for the whole context.
    pub sequences: NonZeroU32,
    /// A LoRA adapter to apply, a GGUF file.
    pub adapter: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: None, context: None, sequences: DEFAULT_SEQUENCES, adapter: None }
    }
}

const DEFAULT_SEQUENCES: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// A model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the model file {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The file has another format.
    #[error("{path} is not a GGUF file")]
    NotGguf {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged, incomplete, or of an architecture llama.cpp does not know.
    #[error(
        "llama.cpp cannot load {path}: {why}; if the file is damaged or incomplete, fetch it again"
    )]
    Refused {
        /// The file.
        path: PathBuf,
        /// llama.cpp's message.
        why: String,
    },
    /// The adapter is damaged, or was made for another model.
    #[error("the adapter {adapter} cannot be used with the model {model}: {why}")]
    Adapter {
        /// The file of the adapter.
        adapter: PathBuf,
        /// The file of the model.
        model: PathBuf,
        /// llama.cpp's message.
        why: String,
    },
    /// llama.cpp was built for other processors.
    #[error(
        "this processor does not support {0}, which the program was built for; build it here with RUSTFLAGS=\"-C \
         target-cpu=native\", or use a model at a server"
    )]
    Processor(&'static str),
    /// The model does not generate text.
    #[error("{path} is not a text generation model (its architecture is {architecture:?})")]
    NotGenerative {
        /// The file.
        path: PathBuf,
        /// The architecture in its header.
        architecture: String,
    },
    /// The requested context is longer than the model was trained on.
    #[error("the model supports at most {most} tokens of context, not {requested}")]
    ContextTooLong {
        /// The requested context in tokens.
        requested: u32,
        /// The model's maximum.
        most: u32,
    },
    /// Not enough memory for the model and its KV caches.
    #[error(
        "about {} MiB of memory are needed ({} for the model, {} for {sequences} conversations of {context} tokens), \
         but {} are available; use a smaller model, a shorter context or fewer concurrent conversations",
        mebibytes(*needed), mebibytes(*weights), mebibytes(needed.saturating_sub(*weights)), mebibytes(*free)
    )]
    NoMemory {
        /// Bytes in total.
        needed: u64,
        /// Bytes of the model alone.
        weights: u64,
        /// Bytes available.
        free: u64,
        /// Concurrent conversations.
        sequences: u32,
        /// Context length of each in tokens.
        context: u32,
    },
    /// Loading was cancelled.
    #[error("loading {path} was cancelled")]
    Cancelled {
        /// The file.
        path: PathBuf,
    },
    /// llama.cpp cannot allocate the KV caches.
    #[error(
        "cannot allocate {sequences} conversations of {context} tokens: {why}; use a shorter context or fewer \
         concurrent conversations"
    )]
    CannotAllocate {
        /// Concurrent conversations.
        sequences: u32,
        /// Context length of each in tokens.
        context: u32,
        /// llama.cpp's message.
        why: String,
    },
    /// The chat template in the file cannot be used.
    #[error("cannot use {path}")]
    Template {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: TemplateError,
    },
    /// The engine thread cannot be started, or it died.
    #[error("cannot start the engine thread of the local model")]
    Fingerprint(#[source] io::Error),
}

fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Cancels loading a model, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Cancels loading.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A loaded model and the thread that runs it.
pub(crate) struct Loaded {
    pub(crate) model: Arc<LlamaModel>,
    pub(crate) context: u32,
    pub(crate) jobs: mpsc::Sender<Job>,
    pub(crate) thread: JoinHandle<()>,
}

/// Loads a model on its own thread, which then runs the engine.
pub(crate) fn load(path: &Path, options: &Options, cancel: &Cancel) -> Result<Loaded, LoadError> {
    check_processor()?;
    check(path)?;
    if let Some(adapter) = &options.adapter {
        check(adapter)?;
    }
    if let (Some(need), Some(free)) = (memory::estimate(path, options), memory::free()) {
        check_memory(need, free, options)?;
    }
    let (jobs, inbox) = mpsc::channel();
    let (ready, loaded) = mpsc::sync_channel(1);
    let (file, options, cancel) = (path.to_owned(), options.clone(), cancel.clone());
    let main = move || serve(&Order { path: &file, options: &options, cancel }, &ready, &inbox);
    let thread =
        thread::Builder::new().name("model".into()).spawn(main).map_err(LoadError::Fingerprint)?;
    let died = |_| LoadError::Fingerprint(io::Error::other("it ended while loading the model"));
    match loaded.recv().map_err(died).flatten() {
        Ok((model, context)) => Ok(Loaded { model, context, jobs, thread }),
        Err(error) => {
            // The caller may exit the process, and llama.cpp must not be working then.
            let _ = thread.join();
            Err(error)
        }
    }
}

fn check_memory(need: MemoryEstimate, free: u64, options: &Options) -> Result<(), LoadError> {
    if need.total() <= free {
        return Ok(());
    }
    Err(LoadError::NoMemory {
        needed: need.total(),
        weights: need.weights,
        free,
        sequences: options.sequences.get(),
        context: need.context,
    })
}

/// What to load.
struct Order<'a> {
    path: &'a Path,
    options: &'a Options,
    cancel: Cancel,
}

type Ready = Result<(Arc<LlamaModel>, u32), LoadError>;

/// The main function of the engine thread.
fn serve(order: &Order<'_>, ready: &mpsc::SyncSender<Ready>, inbox: &mpsc::Receiver<Job>) {
    // The receiver is gone where the caller is; then the result is not needed.
    let report = |result| ready.send(result).is_ok();
    let options = order.options;
    let opened = open(order).and_then(|(model, adapter)| {
        let context = context_length(&model, options)?;
        Ok((model, adapter, context))
    });
    let (model, mut adapter, length) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            report(Err(error));
            return;
        }
    };
    match make_context(&model, adapter.as_mut(), length, order) {
        Err(error) => {
            report(Err(error));
        }
        Ok(context) => {
            let engine = Engine::new(&model, context, options.sequences.get());
            if report(Ok((Arc::clone(&model), length))) {
                engine.run(inbox);
            }
        }
    }
}

/// llama.cpp's backend: initialized once, never shut down.
fn backend() -> Option<&'static LlamaBackend> {
    static BACKEND: OnceLock<Option<LlamaBackend>> = OnceLock::new();
    BACKEND.get_or_init(|| LlamaBackend::init().ok()).as_ref()
}

/// ggml assumes the instruction sets it was compiled for.
#[cfg(target_arch = "x86_64")]
fn check_processor() -> Result<(), LoadError> {
    let features = [
        ("AVX2", std::is_x86_feature_detected!("avx2")),
        ("FMA", std::is_x86_feature_detected!("fma")),
        ("F16C", std::is_x86_feature_detected!("f16c")),
    ];
    let missing = features.iter().find(|(_, present)| !present);
    missing.map_or(Ok(()), |(name, _)| Err(LoadError::Processor(name)))
}

#[cfg(not(target_arch = "x86_64"))]
fn check_processor() -> Result<(), LoadError> {
    Ok(())
}

/// Checks that a file exists and looks like a GGUF file.
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
        why: why.unwrap_or_else(|| "no reason given".into()),
    };
    let token = cancel.clone();
    let params = LlamaModelParams::default().with_progress_callback(move |_| !token.is_cancelled());
    let (model, why) = log::capture_errors(|| match backend() {
        Some(backend) => LlamaModel::load_from_file(backend, path, &params),
        None => Err(LlamaModelLoadError::NullResult),
    });
    if cancel.is_cancelled() {
        return Err(LoadError::Cancelled { path: path.to_path_buf() });
    }
    let mut model = model.map_err(|error| refused(path, why.or_else(|| explained(&error))))?;
    let architecture = model.meta_val_str("general.architecture").unwrap_or_default();
    if !is_generative(&architecture) || model.n_vocab() <= 0 {
        return Err(LoadError::NotGenerative { path: path.to_path_buf(), architecture });
    }
    let adapter = match &options.adapter {
        None => None,
        Some(file) => {
            let (adapter, why) = log::capture_errors(|| model.lora_adapter_init(file));
            Some(adapter.map_err(|_| unusable(file, path, why))?)
        }
    };
    Ok((Arc::new(model), adapter))
}

fn unusable(adapter: &Path, model: &Path, why: Option<String>) -> LoadError {
    let why = why.unwrap_or_else(|| "llama.cpp gives no reason".into());
    LoadError::Adapter { adapter: adapter.to_owned(), model: model.to_owned(), why }
}

fn explained(error: &LlamaModelLoadError) -> Option<String> {
    let unicode = matches!(error, LlamaModelLoadError::PathToStrError(_));
    unicode.then(|| "its path is not Unicode".into())
}

/// Whether an architecture generates text token by token. Others embed, encode and decode, or generate by diffusion.
fn is_generative(architecture: &str) -> bool {
    let other = architecture.contains("bert")
        || architecture.contains("embedding")
        || architecture.starts_with("t5")
        || matches!(architecture, "clip" | "wavtokenizer-dec" | "dream")
        || architecture.starts_with("llada")
        || architecture.starts_with("rnd1");
    !other
}

/// The default context in tokens: longer episodes are rare, and the KV cache is allocated at once.
pub(crate) const DEFAULT_CONTEXT: u32 = 16_384;

fn context_length(model: &LlamaModel, options: &Options) -> Result<u32, LoadError> {
    let most = model.n_ctx_train();
    match options.context.map(NonZeroU32::get) {
        None => Ok(most.min(DEFAULT_CONTEXT)),
        Some(requested) if requested > most => Err(LoadError::ContextTooLong { requested, most }),
        Some(requested) => Ok(requested),
    }
}

fn make_context<'m>(
    model: &'m LlamaModel,
    adapter: Option<&mut LlamaLoraAdapter>,
    length: u32,
    order: &Order<'_>,
) -> Result<LlamaContext<'m>, LoadError> {
    let options = order.options;
    let sequences = options.sequences.get();
    let cannot_allocate = |why: Option<String>| LoadError::CannotAllocate {
        sequences,
        context: length,
        why: why.unwrap_or_else(|| "llama.cpp gives no reason".into()),
    };
    let threads = options.threads.map(NonZeroU32::get).or_else(|| {
        let all = thread::available_parallelism().ok()?;
        u32::try_from(all.get()).ok()
    });
    let threads = threads.and_then(|threads| i32::try_from(threads).ok()).unwrap_or(1);
    // llama.cpp rounds the context of each conversation up to a multiple of this.
    let padded = length.checked_next_multiple_of(256).and_then(|one| one.checked_mul(sequences));
    let padded =
        padded.ok_or_else(|| cannot_allocate(Some("the number of tokens overflows".into())))?;
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(padded))
        .with_n_seq_max(sequences)
        .with_n_batch(BATCH)
        .with_n_ubatch(BATCH)
        .with_n_threads(threads)
        .with_n_threads_batch(threads)
        .with_kv_unified(false)
        .with_no_perf(true);
    let (context, why) = log::capture_errors(|| model.new_context(backend()?, params).ok());
    let mut context = context.ok_or_else(|| cannot_allocate(why))?;
    if let (Some(adapter), Some(path)) = (adapter, &options.adapter) {
        let (set, why) = log::capture_errors(|| context.lora_adapter_set(adapter, 1.0));
        set.map_err(|error| unusable(path, order.path, why.or_else(|| Some(error.to_string()))))?;
    }
    Ok(context)
}
