//! What an engine is asked, what it answers, and why it may refuse. Refuses to know how it works.

use std::sync::Arc;

use tch::TchError;

/// How large an engine is.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Conversations that are remembered, and continued at once.
    pub slots: usize,
    /// The most tokens of a sequence, reply included.
    pub length: usize,
    /// Whether steps are recorded as CUDA graphs.
    pub recording: Recording,
    /// Bytes it may need at most, as [`super::Engine::memory`] counts them; none: as much as the device has.
    pub most_memory: Option<u64>,
    /// Whether text that several conversations begin with is evaluated once.
    pub sharing: Sharing,
}

/// Whether text that several conversations begin with is evaluated once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// It is. How a reply is rounded then depends on who else is served.
    On,
    /// Each is evaluated alone, so that it is rounded the same whoever else is served.
    Off,
}

/// Whether the kernels of a step are recorded and replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// Where the device can.
    WherePossible,
    /// Never.
    Never,
}

/// One question.
pub struct Ask {
    /// Which conversation it belongs to. What extends the remembered sequence of that conversation costs only its new
    /// part. Two questions of one conversation are answered one after the other.
    pub conversation: u64,
    /// The whole sequence so far; not empty.
    pub tokens: Arc<[u32]>,
    /// The most tokens to add; at least 1. The context may allow fewer.
    pub most: usize,
    /// How they are chosen.
    pub choice: Choice,
    /// Tokens that end the reply.
    pub ends: Vec<u32>,
    /// Hears every token that is added, in order and on the engine's thread, and may end the reply after it.
    pub until: Option<Until>,
}

/// Hears the tokens of a reply and says whether it goes on. Everybody's replies wait for it.
pub type Until = Box<dyn FnMut(u32) -> Flow + Send>;

/// Whether a reply goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Continue,
    /// It ends after this token.
    Stop,
}

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Randomness: 0 always takes the likeliest token, else from 0.001 to 100.
    pub temperature: f64,
    /// Only the likeliest tokens that together have this probability; 1 is all.
    pub top_p: f64,
    /// Only this many of the likeliest tokens.
    pub top_k: Option<usize>,
    /// The same seed and the same sequence give the same tokens, whoever else is served meanwhile: always on a processor,
    /// and on a GPU but for rounding.
    pub seed: u64,
}

/// What was added to a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The tokens, one that ends the reply included.
    pub tokens: Vec<u32>,
    /// The log-probability of each at the temperature asked for (at 1 where that is 0), before `top_p` and `top_k`.
    pub logprobs: Vec<f32>,
    /// Why there are no more.
    pub end: SampleEnd,
}

/// Why a continuation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleEnd {
    /// Its last token is one of [`Ask::ends`].
    Token,
    /// [`Ask::until`] said so.
    Until,
    /// There were to be no more, or the context is full.
    Length,
}

/// A sequence cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// There is nothing to continue.
    #[error("the sequence has no tokens")]
    Empty,
    /// It has no room for a reply.
    #[error("the sequence has {tokens} tokens, and the context is {context}")]
    TooLong {
        /// What it has.
        tokens: usize,
        /// What there is.
        context: usize,
    },
    /// It holds what the net has no embedding for.
    #[error("there is no token {token} in a vocabulary of {vocabulary}")]
    NoSuchToken {
        /// The token.
        token: u32,
        /// How many there are.
        vocabulary: i64,
    },
    /// The way of choosing makes no sense.
    #[error("{name} cannot be {value}")]
    Choice {
        /// Which number of the question.
        name: &'static str,
        /// What it is.
        value: f64,
    },
    /// The net's scores are no numbers.
    #[error("the net's scores are not finite; did its weights diverge?")]
    NotFinite,
    /// The caller's own function broke.
    #[error("the function that hears the tokens panicked")]
    Panicked,
    /// libtorch failed, for everybody who waited.
    #[error("libtorch failed: {0}")]
    Torch(Arc<str>),
    /// The engine is gone.
    #[error("the engine has stopped")]
    Stopped,
}

/// An engine cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A setting is out of bounds.
    #[error("{name} is {value}, and must lie between 1 and {most}")]
    Setting {
        /// Which setting.
        name: &'static str,
        /// What it is.
        value: usize,
        /// The largest that works.
        most: usize,
    },
    /// There is too little memory.
    #[error(
        "{slots} conversations of {length} tokens need {needed} bytes, and {there} are there; ask for fewer or shorter ones"
    )]
    Memory {
        /// Conversations asked for.
        slots: usize,
        /// Tokens of each.
        length: usize,
        /// What they need.
        needed: u64,
        /// What there is.
        there: u64,
    },
    /// The new net is of another shape.
    #[error("the net is not of the shape this engine was started with")]
    OtherShape,
    /// libtorch refused.
    #[error("libtorch refused")]
    Torch(#[from] TchError),
    /// The thread could not be started.
    #[error("its thread does not start")]
    Thread(#[source] std::io::Error),
    /// The thread is gone.
    #[error("the engine has stopped")]
    Stopped,
}
