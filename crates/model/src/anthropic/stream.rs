//! Assembles a response from the events of a messages stream, or from one document.

use serde_json::{Value, json};
use trajectory::{Assistant, Stop, Usage};

use crate::{
    Delta, Error, Listener, Request, Response,
    exchange::{Assembler, EventSink, Progress},
    repair::Ending,
    wire::{self, MAX_CALLS, NO_REASON, PartialCall, count},
};

/// A response while it is received.
pub(super) struct EventAssembler<'a> {
    listener: &'a dyn Listener,
    /// The blocks with the server's indices.
    blocks: Vec<(u64, Block)>,
    stop: Option<String>,
    usage: Option<Usage>,
    /// Events with a piece of the response.
    pieces: usize,
}

/// A block of the response.
enum Block {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    /// Thinking that only the vendor can read.
    Redacted(Value),
    Call {
        partial: PartialCall,
        input: Value,
    },
    /// A block of an unknown type.
    Unknown,
}

impl EventSink for EventAssembler<'_> {
    fn push(&mut self, json: &Value) -> Result<Progress, Error> {
        let kind = json.get("type").and_then(Value::as_str).unwrap_or_default();
        let is_piece = ["content_block_start", "content_block_delta", "message_delta"];
        self.pieces += usize::from(is_piece.contains(&kind));
        match kind {
            "message_start" => self.count(json.pointer("/message/usage")),
            "content_block_start" => {
                let block = json.get("content_block").unwrap_or(&Value::Null);
                self.open(count(json.get("index")), block)?;
            }
            "content_block_delta" => {
                let delta = json.get("delta").unwrap_or(&Value::Null);
                self.grow(count(json.get("index")), delta);
            }
            "message_delta" => {
                self.ended(json.pointer("/delta/stop_reason"));
                self.count(json.get("usage"));
            }
            "message_stop" => return Ok(Progress::Done),
            "message" => {
                let blocks = json.get("content").and_then(Value::as_array);
                for (at, block) in (0..).zip(blocks.into_iter().flatten()) {
                    self.open(at, block)?;
                }
                self.count(json.get("usage"));
                self.ended(json.get("stop_reason"));
                return Ok(Progress::Done);
            }
            _ => {}
        }
        Ok(Progress::More)
    }

    fn is_complete(&self) -> bool {
        self.stop.is_some()
    }

    fn generated(&self) -> Option<usize> {
        Some(self.pieces)
    }

    fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

impl Assembler for EventAssembler<'_> {
    fn into_response(self, request: &Request<'_>) -> Response {
        let mut message = Assistant::default();
        let mut opaque = Vec::new();
        let mut partials = Vec::new();
        for (_, block) in self.blocks {
            match block {
                Block::Text(text) => message.text.push_str(&text),
                Block::Thinking { text, signature } => {
                    message.reasoning.push_str(&text);
                    // Thinking that was cut off has no signature and is not accepted back.
                    if !signature.is_empty() {
                        let block =
                            json!({ "type": "thinking", "thinking": text, "signature": signature });
                        opaque.push(block);
                    }
                }
                Block::Redacted(block) => opaque.push(block),
                Block::Call { mut partial, input } => {
                    // An empty object is also the placeholder before the arguments arrive.
                    let whole = input.as_object().is_some_and(|input| !input.is_empty());
                    if partial.arguments.is_empty() && whole {
                        partial.arguments = input.to_string();
                    }
                    partials.push(partial);
                }
                Block::Unknown => {}
            }
        }
        let (stop, last) = stop(self.stop.as_deref(), &partials);
        message.calls = wire::calls(partials, request, last);
        message.opaque = (!opaque.is_empty()).then_some(Value::Array(opaque));
        let usage = self.usage.unwrap_or_else(|| wire::estimate(request, &message));
        Response { message, stop, usage, from_cache: false }
    }
}

impl<'a> EventAssembler<'a> {
    pub(super) fn new(listener: &'a dyn Listener) -> Self {
        Self { listener, blocks: Vec::new(), stop: None, usage: None, pieces: 0 }
    }

    fn open(&mut self, index: u64, block: &Value) -> Result<(), Error> {
        if self.blocks.len() == MAX_CALLS {
            return Err(Error::Protocol(format!("it has more than {MAX_CALLS} blocks")));
        }
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        let opened = match text("type") {
            "text" => Block::Text(String::new()),
            "thinking" => {
                Block::Thinking { text: String::new(), signature: text("signature").into() }
            }
            "redacted_thinking" => Block::Redacted(block.clone()),
            "tool_use" => {
                self.listener.on_delta(Delta::Call(text("name")));
                let partial = PartialCall {
                    id: text("id").into(),
                    name: text("name").into(),
                    arguments: String::new(),
                };
                Block::Call { partial, input: block.get("input").cloned().unwrap_or_default() }
            }
            _ => Block::Unknown,
        };
        self.blocks.push((index, opened));
        // In one document, and with some servers, a block is complete from the start.
        self.grow(index, block);
        Ok(())
    }

    /// Appends the content of a delta, or of the block itself, to a block.
    fn grow(&mut self, index: u64, delta: &Value) {
        let found = self.blocks.iter_mut().rev().find(|(number, _)| *number == index);
        let Some((_, block)) = found else { return };
        let text = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        let notify = |delta: Delta<'_>, piece: &str| {
            if !piece.is_empty() {
                self.listener.on_delta(delta);
            }
        };
        match block {
            Block::Text(held) => {
                held.push_str(text("text"));
                notify(Delta::Text(text("text")), text("text"));
            }
            Block::Thinking { text: held, signature } => {
                held.push_str(text("thinking"));
                notify(Delta::Reasoning(text("thinking")), text("thinking"));
                if text("type") == "signature_delta" {
                    signature.push_str(text("signature"));
                }
            }
            Block::Call { partial, .. } => {
                partial.arguments.push_str(text("partial_json"));
                notify(Delta::Arguments(text("partial_json")), text("partial_json"));
            }
            Block::Redacted(_) | Block::Unknown => {}
        }
    }

    fn ended(&mut self, reason: Option<&Value>) {
        if let Some(reason) = reason.and_then(Value::as_str) {
            self.stop = Some(reason.to_owned());
        }
    }

    /// Token counts are cumulative: the last one is final.
    fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        let held = self.usage.get_or_insert_default();
        if usage.get("input_tokens").is_some_and(Value::is_u64) {
            held.cached = count(usage.get("cache_read_input_tokens"));
            held.cache_writes = count(usage.get("cache_creation_input_tokens"));
            held.input = count(usage.get("input_tokens")) + held.cached + held.cache_writes;
        }
        held.output = count(usage.get("output_tokens")).max(held.output);
        let thinking = usage.pointer("/output_tokens_details/thinking_tokens");
        held.reasoning = count(thinking).max(held.reasoning).min(held.output);
    }
}

fn stop(reason: Option<&str>, calls: &[PartialCall]) -> (Stop, Ending) {
    match reason {
        Some("tool_use" | "end_turn" | "stop_sequence") => {
            let stop = if calls.is_empty() { Stop::End } else { Stop::ToolCalls };
            (stop, Ending::Finished)
        }
        Some("max_tokens" | "model_context_window_exceeded") => (Stop::Length, Ending::CutOff),
        Some("refusal") => (Stop::Refusal, Ending::CutOff),
        Some(other) => (Stop::Other(other.chars().take(64).collect()), Ending::CutOff),
        None => (Stop::Other(NO_REASON.into()), Ending::CutOff),
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
