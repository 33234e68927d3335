//! The model of the tests, and helpers to call it.

use std::{
    env,
    num::NonZeroU32,
    path::PathBuf,
    sync::Mutex,
    time::{Duration, Instant},
};

use lis_model_local::{LocalModel, Options};
use model::{Delta, Error, Listener, Model, Request, Response, Sampling};
use trajectory::Message;

/// Tokens of a conversation in these tests.
pub(crate) const CONTEXT: u32 = 2048;

/// The model's file. Announces a skip where there is none, or fails where it is required.
#[expect(clippy::disallowed_methods, reason = "test runs are configured by the environment")]
pub(crate) fn file() -> Option<PathBuf> {
    if let Some(path) = env::var_os("LIS_TEST_GGUF") {
        return Some(path.into());
    }
    let required = env::var("LIS_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == "gguf");
    assert!(!required, "gguf is required, but LIS_TEST_GGUF names no file");
    eprintln!("skip: gguf: LIS_TEST_GGUF names no file");
    None
}

pub(crate) fn load(sequences: u32) -> Option<LocalModel> {
    let options = Options {
        context: NonZeroU32::new(CONTEXT),
        sequences: NonZeroU32::new(sequences).unwrap(),
        ..Options::default()
    };
    Some(LocalModel::load("qwen2.5-coder-1.5b", &file()?, &options).unwrap())
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
