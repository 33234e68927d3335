//! What a local model costs: tokens per second, beside a server of the same file, and how much earlier a second turn
//! starts because the first one's prefix is cached.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use model::{Delta, Listener, Model, Request, Sampling};
use serde::Serialize;
use trajectory::{Content, Message};

use crate::round;

/// Output tokens per measurement: enough for a steady rate.
const OUTPUT_TOKENS: u64 = 96;

/// Sentences of a prompt: about as long as the first prompt of an episode.
const SENTENCES: usize = 60;

/// The speed of a model, and of a server it is compared with.
#[derive(Clone, Copy, Debug)]
pub struct ModelFigures {
    /// The model.
    pub model: TokenRates,
    /// The server, if there is one to compare with.
    pub server: Option<TokenRates>,
    /// The second turn of a conversation with the model.
    pub second_turn: SecondTurn,
}

/// How fast a model reads and writes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TokenRates {
    /// Tokens of the prompt that was measured.
    pub prompt_tokens: u64,
    /// Prompt tokens processed per second.
    pub prompt_tokens_per_second: f64,
    /// Output tokens generated per second.
    #[serde(rename = "written_tokens_per_second")]
    pub output_tokens_per_second: f64,
}

/// Seconds until the first token of a second turn, with and without a cached prefix.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SecondTurn {
    /// Prompt tokens of the second turn.
    pub tokens: u64,
    /// With the cached prefix.
    #[serde(rename = "remembered_s")]
    pub cached_s: f64,
    /// Without.
    #[serde(rename = "anew_s")]
    pub uncached_s: f64,
}

/// Measures `model`, and `server` in alternation with it; the best of `rounds` counts.
///
/// # Errors
/// If a completion fails.
pub async fn measure<M: Model, S: Model>(
    model: &M,
    server: Option<&S>,
    rounds: u32,
) -> Result<ModelFigures> {
    // Warm the caches: the first request is slower.
    complete(model, &prompt("warm"), 8).await?;
    let (mut ours, mut theirs) = (TokenRates::default(), TokenRates::default());
    for round in 0..rounds.max(1) {
        // Alternate, so that other load on the machine affects both.
        ours.keep_best(&complete(model, &prompt(&format!("ours {round}")), OUTPUT_TOKENS).await?);
        if let Some(server) = server {
            let timed = complete(server, &prompt(&format!("theirs {round}")), OUTPUT_TOKENS).await;
            theirs.keep_best(&timed.context("the server to compare with failed")?);
        }
    }
    Ok(ModelFigures {
        model: ours,
        server: server.map(|_| theirs),
        second_turn: second_turn(model).await?,
    })
}

impl TokenRates {
    /// Keeps the better of two measurements: disturbances only ever make one slower.
    fn keep_best(&mut self, timed: &Timed) {
        let prompt = timed.prompt_tokens as f64 / timed.first.as_secs_f64().max(1e-9);
        let output =
            timed.output_tokens.saturating_sub(1) as f64 / timed.rest.as_secs_f64().max(1e-9);
        self.prompt_tokens = timed.prompt_tokens;
        self.prompt_tokens_per_second = round(self.prompt_tokens_per_second.max(prompt));
        self.output_tokens_per_second = round(self.output_tokens_per_second.max(output));
    }
}

/// One timed response.
struct Timed {
    text: String,
    prompt_tokens: u64,
    output_tokens: u64,
    /// Until the first token.
    first: Duration,
    /// From the first token to the end.
    rest: Duration,
}

async fn complete<M: Model>(model: &M, messages: &[Message], max_tokens: u64) -> Result<Timed> {
    let sampling = Sampling { temperature: Some(0.0), ..Sampling::default() };
    let request = Request { messages, tools: &[], sampling: &sampling, max_tokens };
    let listener = FirstToken(Mutex::new(None));
    let began = Instant::now();
    let response = model.complete(&request, &listener).await?;
    let ended = Instant::now();
    let first = listener.0.into_inner().ok().flatten().context("the response was empty")?;
    Ok(Timed {
        text: response.message.text,
        prompt_tokens: response.usage.input.saturating_sub(response.usage.cached),
        output_tokens: response.usage.output,
        first: first - began,
        rest: ended - first,
    })
}

/// Notes when the first delta of a response arrives.
struct FirstToken(Mutex<Option<Instant>>);

impl Listener for FirstToken {
    fn on_delta(&self, _: Delta<'_>) {
        if let Ok(mut first) = self.0.lock() {
            first.get_or_insert_with(Instant::now);
        }
    }
}

async fn second_turn<M: Model>(model: &M) -> Result<SecondTurn> {
    let mut messages = prompt("one conversation");
    let response = complete(model, &messages, 16).await?;
    messages.push(Message::Assistant(trajectory::Assistant {
        text: response.text,
        ..trajectory::Assistant::default()
    }));
    messages.push(user("Go on.".into()));
    let cached = complete(model, &messages, 4).await?;
    // The same conversation with another beginning has no cached prefix.
    if let (Some(first), Some(other)) = (messages.first_mut(), prompt("another talk").first()) {
        *first = other.clone();
    }
    let uncached = complete(model, &messages, 4).await?;
    Ok(SecondTurn {
        tokens: uncached.prompt_tokens,
        cached_s: round(cached.first.as_secs_f64()),
        uncached_s: round(uncached.first.as_secs_f64()),
    })
}

/// A conversation with a unique beginning, so that no prefix of it is cached.
fn prompt(name: &str) -> Vec<Message> {
    let noise = format!("{name} {:x}", std::process::id());
    let sentences = (1..=SENTENCES).map(|n| format!("Line {n} says that box {} is blue.", n * 37));
    let text = format!("{noise}\n{}", sentences.collect::<Vec<_>>().join("\n"));
    vec![
        Message::System { text: format!("{noise}. You count patiently.") },
        user(format!("{text}\nCount from 1 to 500, one number a line, and write nothing else.")),
    ]
}

fn user(text: String) -> Message {
    Message::User { content: vec![Content::Text { text }] }
}
