//! Replies as OpenAI writes them, whole and in chunks.
//!
//! Pure: from our vocabulary to JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use model::Reply;
use serde_json::{Value, json};
use trajectory::{Arguments, Assistant, Stop, ToolCall, Usage};

use crate::question::StreamUsage;

/// What all parts of one answer have in common.
#[derive(Clone, Debug)]
pub(crate) struct Heading {
    id: String,
    created: u64,
    model: String,
}

impl Heading {
    /// A new answer of this model.
    pub(crate) fn new(model: &str) -> Self {
        let id = format!("chatcmpl-{:032x}", fastrand::u128(..));
        Self { id, created: now(), model: model.to_owned() }
    }

    /// The whole reply.
    pub(crate) fn whole(&self, reply: &Reply) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{
                "index": 0,
                "message": message(&reply.message),
                "logprobs": null,
                "finish_reason": finish(reply),
            }],
            "usage": usage(&reply.usage),
        })
    }

    /// A piece of the reply.
    pub(crate) fn chunk(&self, delta: Value, finish: Option<&str>, told: StreamUsage) -> Value {
        let choice =
            json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish });
        self.with_choices(json!([choice]), told, Value::Null)
    }

    /// The count of tokens at the end of a stream.
    pub(crate) fn count(&self, count: &Usage) -> Value {
        self.with_choices(json!([]), StreamUsage::Told, usage(count))
    }

    fn with_choices(&self, choices: Value, told: StreamUsage, usage: Value) -> Value {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        });
        // Clients that asked for the count look for the field in every chunk.
        if told == StreamUsage::Told {
            chunk["usage"] = usage;
        }
        chunk
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Why the reply ended, in OpenAI's words.
pub(crate) fn finish(reply: &Reply) -> &'static str {
    match &reply.stop {
        Stop::Length => "length",
        Stop::Refusal => "content_filter",
        _ if !reply.message.calls.is_empty() => "tool_calls",
        Stop::End | Stop::ToolCalls | Stop::Other(_) => "stop",
    }
}

/// The calls, as a stream numbers them.
pub(crate) fn numbered(calls: &[ToolCall]) -> Value {
    let numbered = calls.iter().enumerate().map(|(at, one)| {
        let mut written = call(one);
        written["index"] = json!(at);
        written
    });
    numbered.collect()
}

fn message(said: &Assistant) -> Value {
    let silent = said.text.is_empty() && !said.calls.is_empty();
    let content = (!silent).then_some(&said.text);
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    if !said.reasoning.is_empty() {
        message["reasoning_content"] = json!(said.reasoning);
    }
    if !said.calls.is_empty() {
        message["tool_calls"] = said.calls.iter().map(call).collect();
    }
    message
}

fn call(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(map) => Value::Object(map.clone()).to_string(),
        // The client sees what the model wrote, and that it is none.
        Arguments::Malformed { malformed, .. } => malformed.clone(),
    };
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": arguments },
    })
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total(),
        "prompt_tokens_details": { "cached_tokens": usage.cached },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning },
    })
}
