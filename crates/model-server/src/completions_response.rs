//! Completions with token ids in OpenAI's format and vLLM's fields, whole and in chunks.
//!
//! Pure: converts to JSON.

use openai_wire::now;
use sampling::{SampleEnd, Sampled};
use serde_json::{Value, json};

use crate::{
    completions::{id, usage},
    completions_request::{CompletionsRequest, Shown},
    tokens::TokenModel,
};

/// A sampled token and its log-probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    pub(crate) token: u32,
    pub(crate) logprob: f32,
}

/// One completion.
pub(crate) struct Completion {
    id: String,
    created: u64,
    name: String,
    model: TokenModel,
    shown: Shown,
    prompt: Vec<u32>,
    /// Tokens that end the response, which are not part of its text.
    ends: Vec<u32>,
    /// Whether the prompt's ids were sent.
    begun: bool,
    /// The first bytes of a character that continues in the next token.
    bytes: Vec<u8>,
}

impl Completion {
    pub(crate) fn new(name: &str, model: TokenModel, request: &CompletionsRequest) -> Self {
        Self {
            id: id(),
            created: now(),
            name: name.to_owned(),
            model,
            shown: request.shown,
            prompt: request.prompt.clone(),
            ends: request.stop_tokens.clone(),
            begun: false,
            bytes: Vec::new(),
        }
    }

    /// The complete response.
    pub(crate) fn whole(&mut self, sampled: &Sampled) -> Value {
        let pairs = sampled.tokens.iter().zip(&sampled.logprobs);
        let pairs: Vec<Pair> = pairs.map(|(&token, &logprob)| Pair { token, logprob }).collect();
        let mut whole = self.chunk(&pairs, Some(sampled));
        whole["usage"] = usage(self.prompt.len(), sampled.tokens.len());
        whole
    }

    /// A chunk with these tokens; the last one with the end.
    pub(crate) fn chunk(&mut self, pairs: &[Pair], end: Option<&Sampled>) -> Value {
        let stop = end.filter(|sampled| sampled.end == SampleEnd::Token);
        let stop = stop.and_then(|sampled| sampled.tokens.last());
        let mut text = self.text(pairs);
        if end.is_some() {
            text.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.bytes)));
        }
        let logprobs = self.shown.logprobs.then(|| self.logprobs(pairs));
        let finish = end.map(|sampled| match sampled.end {
            SampleEnd::Token | SampleEnd::Until => "stop",
            SampleEnd::Length => "length",
        });
        let mut choice = json!({
            "index": 0,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish,
            "stop_reason": stop,
        });
        if self.shown.ids {
            choice["token_ids"] = pairs.iter().map(|pair| pair.token).collect();
            if !std::mem::replace(&mut self.begun, true) {
                choice["prompt_token_ids"] = json!(self.prompt);
            }
        }
        self.with_choices(json!([choice]))
    }

    /// The last chunk of a stream, with the token usage.
    pub(crate) fn usage_chunk(&self, sampled: &Sampled) -> Value {
        let mut chunk = self.with_choices(json!([]));
        chunk["usage"] = usage(self.prompt.len(), sampled.tokens.len());
        chunk
    }

    fn with_choices(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.name,
            "choices": choices,
        })
    }

    /// The text these tokens complete.
    fn text(&mut self, pairs: &[Pair]) -> String {
        for pair in pairs.iter().filter(|pair| !self.ends.contains(&pair.token)) {
            self.bytes.extend(self.model.bytes(pair.token));
        }
        let mut text = String::new();
        let mut cut = 0;
        for chunk in self.bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            cut += chunk.valid().len();
            let invalid = chunk.invalid();
            let unfinished = std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if invalid.is_empty() || cut + invalid.len() == self.bytes.len() && unfinished {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            cut += invalid.len();
        }
        self.bytes.drain(..cut);
        text
    }

    fn logprobs(&self, pairs: &[Pair]) -> Value {
        let name = |pair: &Pair| match self.shown.names_as_ids {
            true => format!("token_id:{}", pair.token),
            false => String::from_utf8_lossy(&self.model.bytes(pair.token)).into_owned(),
        };
        json!({
            "tokens": pairs.iter().map(name).collect::<Vec<_>>(),
            "token_logprobs": pairs.iter().map(|pair| pair.logprob).collect::<Vec<_>>(),
            "top_logprobs": null,
            "text_offset": [],
        })
    }
}
