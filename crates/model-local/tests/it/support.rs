//! The model of the tests, loaded once for all that share a process, and how it is asked.

use std::{
    env,
    num::NonZeroU32,
    path::PathBuf,
    sync::Mutex,
    time::{Duration, Instant},
};

use model::{Delta, Error, Listener, Model, Reply, Request, Sampling};
use model_local::{LocalModel, Options};
use trajectory::Message;

/// Tokens of a conversation in these tests.
pub(crate) const CONTEXT: u32 = 2048;

/// The model's file. Announces a skip where there is none, or fails where it is required.
#[expect(clippy::disallowed_methods, reason = "how tests are run is told by the environment")]
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

/// The likeliest reply, always the same.
pub(crate) fn greedy() -> Sampling {
    Sampling { temperature: Some(0.0), ..Sampling::default() }
}

pub(crate) async fn ask(
    model: &LocalModel,
    messages: &[Message],
    max_tokens: u64,
) -> Result<Reply, Error> {
    ask_as(model, messages, max_tokens, &greedy(), &model::Silent).await
}

pub(crate) async fn ask_as(
    model: &LocalModel,
    messages: &[Message],
    max_tokens: u64,
    sampling: &Sampling,
    listener: &dyn Listener,
) -> Result<Reply, Error> {
    let request = Request { messages, tools: &[], sampling, max_tokens };
    model.complete(&request, listener).await
}

/// Writes down what it hears, and when it heard the first of it.
pub(crate) struct Ear {
    began: Instant,
    heard: Mutex<(Vec<String>, Option<Duration>)>,
}

impl Ear {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), heard: Mutex::default() }
    }

    pub(crate) fn pieces(&self) -> Vec<String> {
        self.heard.lock().unwrap().0.clone()
    }

    pub(crate) fn first(&self) -> Duration {
        self.heard.lock().unwrap().1.unwrap()
    }
}

impl Listener for Ear {
    fn hear(&self, delta: Delta<'_>) {
        let Delta::Text(text) = delta else { panic!("only text is spoken: {delta:?}") };
        let mut heard = self.heard.lock().unwrap();
        heard.0.push(text.to_owned());
        heard.1.get_or_insert(self.began.elapsed());
    }
}
