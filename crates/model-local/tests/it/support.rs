//! The models of the tests, and helpers to call it.

use std::{
    env,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

use lis_model_local::{LocalModel, Options};
use model::{Delta, Error, Listener, Model, Request, Response, Sampling};
use trajectory::Message;

/// Tokens of a conversation in these tests.
const CONTEXT: u32 = 2048;

/// The file of an instructed model, Qwen2.5-Coder 1.5B: for what depends on the quality of responses.
pub(crate) fn file() -> Option<PathBuf> {
    file_of("LIS_TEST_GGUF")
}

/// The file of SmolLM2 135M, ten times as fast: for everything else.
pub(crate) fn tiny_file() -> Option<PathBuf> {
    file_of("LIS_TEST_TINY_GGUF")
}

/// The file a variable names. Announces a skip where there is none, or fails where it is required.
#[expect(clippy::disallowed_methods, reason = "test runs are configured by the environment")]
fn file_of(variable: &str) -> Option<PathBuf> {
    if let Some(path) = env::var_os(variable) {
        return Some(path.into());
    }
    let required = env::var("LIS_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == "gguf");
    assert!(!required, "gguf is required, but {variable} names no file");
    eprintln!("skip: gguf: {variable} names no file");
    None
}

pub(crate) fn load(sequences: u32) -> Option<LocalModel> {
    Some(load_file("qwen2.5-coder-1.5b", &file()?, sequences))
}

pub(crate) fn load_tiny(sequences: u32) -> Option<LocalModel> {
    Some(load_file("smollm2-135m", &tiny_file()?, sequences))
}

fn load_file(name: &str, file: &Path, sequences: u32) -> LocalModel {
    LocalModel::load(name, file, &options(CONTEXT, sequences)).unwrap()
}

/// One thread: other tests run meanwhile, and several threads would mostly wait for each other.
pub(crate) fn options(context: u32, sequences: u32) -> Options {
    Options {
        threads: NonZeroU32::new(1),
        context: NonZeroU32::new(context),
        sequences: NonZeroU32::new(sequences).unwrap(),
        ..Options::default()
    }
}

/// Greedy, deterministic sampling.
pub(crate) fn greedy() -> Sampling {
    Sampling { temperature: Some(0.0), ..Sampling::default() }
}

pub(crate) async fn ask(
    model: &LocalModel,
    messages: &[Message],
    max_tokens: u64,
) -> Result<Response, Error> {
    ask_as(model, messages, max_tokens, &greedy(), &model::Silent).await
}

pub(crate) async fn ask_as(
    model: &LocalModel,
    messages: &[Message],
    max_tokens: u64,
    sampling: &Sampling,
    listener: &dyn Listener,
) -> Result<Response, Error> {
    let request = Request { messages, tools: &[], sampling, max_tokens };
    model.complete(&request, listener).await
}

/// Records the pieces, and when the first one arrived.
pub(crate) struct Recorder {
    began: Instant,
    received: Mutex<(Vec<String>, Option<Duration>)>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), received: Mutex::default() }
    }

    pub(crate) fn pieces(&self) -> Vec<String> {
        self.received.lock().unwrap().0.clone()
    }

    pub(crate) fn first(&self) -> Duration {
        self.received.lock().unwrap().1.unwrap()
    }
}

impl Listener for Recorder {
    fn on_delta(&self, delta: Delta<'_>) {
        let Delta::Text(text) = delta else { panic!("unexpected delta: {delta:?}") };
        let mut received = self.received.lock().unwrap();
        received.0.push(text.to_owned());
        received.1.get_or_insert(self.began.elapsed());
    }
}
