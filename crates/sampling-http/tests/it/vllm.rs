//! A mock of vLLM's `/v1/completions`, written from its documentation: with `return_token_ids` the first chunk of a stream
//! repeats the prompt's ids, and each chunk has the ids and log-probabilities of its own tokens.

use std::time::Duration;

use lis_sampling_http::{HttpSampler, ServerSettings};
use model::{Endpoint, Retry};
use sampling::{SampleRequest, SamplingParams, Until};
use serde_json::{Value, json};
use testkit::{Answer, MockServer, Received};

/// The token that ends responses.
pub(crate) const END: u32 = 9;
pub(crate) const VOCABULARY: usize = 100;
pub(crate) const CONTEXT: usize = 64;

/// The tokens the mock would sample next after this prompt: its length counts up, so that a continued response continues.
pub(crate) fn continuation(received: &Received) -> impl Iterator<Item = u32> {
    let prompt = received.body["prompt"].as_array().map_or(0, Vec::len);
    (prompt..).map(|length| 10 + u32::try_from(length % 50).unwrap())
}

/// The log-probability of a token.
pub(crate) fn logprob(token: u32) -> f64 {
    -f64::from(token) / 64.0
}

/// A chunk with these tokens.
pub(crate) fn chunk(tokens: &[u32], finish: Option<&str>) -> Value {
    let names: Vec<String> = tokens.iter().map(|token| format!("token_id:{token}")).collect();
    let values: Vec<f64> = tokens.iter().map(|token| logprob(*token)).collect();
    json!({
        "id": "cmpl-1", "object": "text_completion", "created": 1, "model": "mock",
        "choices": [{
            "index": 0,
            "text": "text",
            "logprobs": { "text_offset": [], "token_logprobs": values, "tokens": names, "top_logprobs": [] },
            "finish_reason": finish,
            "stop_reason": null,
            "token_ids": tokens,
        }],
    })
}

/// The chunks of a response, one token each; the first one repeats the prompt.
pub(crate) fn chunks(received: &Received, tokens: &[u32], finish: &str) -> Vec<Value> {
    let last = tokens.len().saturating_sub(1);
    let ended = |at: usize| (at == last).then_some(finish);
    let mut chunks: Vec<Value> =
        tokens.iter().enumerate().map(|(at, token)| chunk(&[*token], ended(at))).collect();
    chunks[0]["choices"][0]["prompt_token_ids"] = received.body["prompt"].clone();
    chunks
}

/// A stream of these events.
pub(crate) fn stream(events: &[Value]) -> Answer {
    Answer::events(unfinished(events) + "data: [DONE]\n\n")
}

/// The text of these events, without the end of the stream.
pub(crate) fn unfinished(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// Answers as vLLM does: `length` tokens and then the end, or as many as requested.
pub(crate) fn answer(received: &Received, length: usize) -> Answer {
    let most = usize::try_from(received.body["max_tokens"].as_u64().unwrap()).unwrap();
    let mut tokens: Vec<u32> = continuation(received).take(length.min(most)).collect();
    let finish = if length < most { "stop" } else { "length" };
    if length < most {
        tokens.push(END);
    }
    stream(&chunks(received, &tokens, finish))
}

/// A server that answers with `length` tokens.
pub(crate) fn server(length: usize) -> MockServer {
    described(MockServer::answering(move |received| answer(received, length)).unwrap())
}

/// A server that answers as given.
pub(crate) fn answering<A: Into<Answer>>(
    respond: impl Fn(&Received) -> A + Send + Sync + 'static,
) -> MockServer {
    described(MockServer::answering(respond).unwrap())
}

pub(crate) fn described(server: MockServer) -> MockServer {
    server.list_models(&["mock"]);
    server.describe_models(&json!({ "max_model_len": CONTEXT, "owned_by": "vllm" }));
    server
}

/// Settings for tests: short waits.
pub(crate) fn settings(base_url: String) -> ServerSettings {
    let mut endpoint = Endpoint::new("mock", base_url);
    endpoint.silence = Duration::from_millis(300);
    let retry = Retry {
        attempts: 3,
        first_wait: Duration::from_millis(5),
        max_wait: Duration::from_millis(20),
        ..Retry::default()
    };
    ServerSettings { retry, ..ServerSettings::new(endpoint, VOCABULARY) }
}

pub(crate) async fn sampler(server: &MockServer) -> HttpSampler {
    HttpSampler::connect(settings(server.base_url())).await.unwrap()
}

/// A request for at most this many tokens.
pub(crate) fn request(max_tokens: usize, until: Option<Until>) -> SampleRequest {
    SampleRequest {
        conversation: 1,
        tokens: [1, 2, 3].into(),
        max_tokens,
        params: SamplingParams { temperature: 0.5, top_p: 0.9, top_k: None, seed: u64::MAX },
        stop_tokens: vec![END],
        until,
    }
}
