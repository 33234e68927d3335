//! Responses in OpenAI's format, complete and in chunks.
//!
//! Pure: converts to JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use model::Response;
use serde_json::{Value, json};
use trajectory::{Arguments, Assistant, Stop, ToolCall, Usage};

use crate::parameters::StreamUsage;

/// The fields common to all parts of one completion.
#[derive(Clone, Debug)]
pub struct CompletionHeader {
    /// Its id.
    pub id: String,
    created: u64,
    model: String,
}

impl CompletionHeader {
    /// The header of a new completion of this model.
    pub fn new(model: &str) -> Self {
        let id = format!("chatcmpl-{:032x}", fastrand::u128(..));
        Self { id, created: now(), model: model.to_owned() }
    }

    /// The complete response of a model.
    pub fn complete(&self, response: &Response) -> Value {
        self.whole(message(&response.message), finish_reason(response), &response.usage)
    }

    /// The complete response with this message.
    pub fn whole(&self, message: Value, finish: &str, tokens: &Usage) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{
                "index": 0,
                "message": message,
                "logprobs": null,
                "finish_reason": finish,
            }],
            "usage": usage(tokens),
        })
    }

    /// A chunk of the response.
    pub fn chunk(&self, delta: Value, finish: Option<&str>, included: StreamUsage) -> Value {
        let choice =
            json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish });
        self.with_choices(json!([choice]), included, Value::Null)
    }

    /// The last chunk of a stream, with the token usage.
    pub fn usage_chunk(&self, count: &Usage) -> Value {
        self.with_choices(json!([]), StreamUsage::Included, usage(count))
    }

    fn with_choices(&self, choices: Value, included: StreamUsage, usage: Value) -> Value {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        });
        // Clients that requested the usage expect the field in every chunk.
        if included == StreamUsage::Included {
            chunk["usage"] = usage;
        }
        chunk
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// OpenAI's finish reason.
pub fn finish_reason(response: &Response) -> &'static str {
    match &response.stop {
        Stop::Length => "length",
        Stop::Refusal => "content_filter",
        _ if !response.message.calls.is_empty() => "tool_calls",
        Stop::End | Stop::ToolCalls | Stop::Other(_) => "stop",
    }
}

/// The calls with their index, as in a stream.
pub fn numbered(calls: &[ToolCall]) -> Value {
    let numbered = calls.iter().enumerate().map(|(at, one)| {
        let mut written = call(one);
        written["index"] = json!(at);
        written
    });
    numbered.collect()
}

fn message(response: &Assistant) -> Value {
    let silent = response.text.is_empty() && !response.calls.is_empty();
    let content = (!silent).then_some(&response.text);
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    if !response.reasoning.is_empty() {
        message["reasoning_content"] = json!(response.reasoning);
    }
    if !response.calls.is_empty() {
        message["tool_calls"] = response.calls.iter().map(call).collect();
    }
    message
}

fn call(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(map) => Value::Object(map.clone()).to_string(),
        // The client sees what the model wrote.
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
