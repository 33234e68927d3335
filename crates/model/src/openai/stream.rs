//! Assembles a response from the chunks of a chat completions stream, or from one document.
//!
//! Servers differ in how they number, name and split calls: every variant seen in the field is supported.

use serde_json::Value;
use trajectory::{Assistant, Stop, Usage};

use super::{REASONING, request};
use crate::{
    Delta, Error, Listener, Request, Response,
    exchange::{Assembler, EventSink, Progress},
    repair::Ending,
    think::{self, Piece, Splitter},
    wire::{self, MAX_CALLS, NO_REASON, PartialCall, count},
};

/// A response while it is received.
pub(super) struct ChunkAssembler<'a> {
    output: Output<'a>,
    splitter: Splitter,
    calls: Vec<Call>,
    finish: Option<String>,
    refused: bool,
    usage: Option<Usage>,
    /// The field in which the server sends thinking.
    reasoning_name: Option<&'static str>,
    /// Events with a piece of the response.
    pieces: usize,
}

/// A call while it is received.
#[derive(Default)]
struct Call {
    /// The server's index of the call.
    index: Option<u64>,
    partial: PartialCall,
    balance: Balance,
}

/// Text and thinking so far, passed on to the listener.
struct Output<'a> {
    listener: &'a dyn Listener,
    text: String,
    reasoning: String,
}

impl Output<'_> {
    fn push(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Text("") | Piece::Reasoning("") => {}
            Piece::Text(text) => {
                self.text.push_str(text);
                self.listener.on_delta(Delta::Text(text));
            }
            Piece::Reasoning(text) => {
                self.reasoning.push_str(text);
                self.listener.on_delta(Delta::Reasoning(text));
            }
        }
    }
}

impl EventSink for ChunkAssembler<'_> {
    fn push(&mut self, json: &Value) -> Result<Progress, Error> {
        let usage = json.get("usage").or_else(|| json.pointer("/x_groq/usage"));
        self.usage = usage.and_then(read_usage).or(self.usage);
        let Some(choice) = first_choice(json) else { return Ok(Progress::More) };
        let part = |name: &str| choice.get(name).filter(|part| part.is_object());
        // Some servers repeat the message so far with each piece.
        let delta = part("delta");
        let whole = if delta.is_none() { part("message") } else { None };
        if let Some(delta) = delta.or(whole) {
            self.pieces += usize::from(has_piece(delta));
            self.delta(delta);
        }
        let finish = choice.get("finish_reason").and_then(Value::as_str);
        let finish = finish.filter(|finish| !finish.is_empty());
        // A whole message is complete even without a finish reason.
        let finish = finish.or_else(|| whole.map(|_| "stop"));
        if let Some(finish) = finish {
            self.finish = Some(finish.to_owned());
        }
        Ok(Progress::More)
    }

    fn is_complete(&self) -> bool {
        self.finish.is_some()
    }

    fn generated(&self) -> Option<usize> {
        Some(self.pieces + usize::from(self.finish.is_some()))
    }

    fn is_empty(&self) -> bool {
        let Output { text, reasoning, .. } = &self.output;
        text.is_empty() && reasoning.is_empty() && self.calls.is_empty()
    }
}

impl Assembler for ChunkAssembler<'_> {
    fn into_response(mut self, request: &Request<'_>) -> Response {
        let stop = self.stop();
        self.splitter.finish(|piece| self.output.push(piece));
        let Output { mut text, mut reasoning, .. } = self.output;
        if reasoning.is_empty()
            && let Some((thought, rest)) = think::without_opening(&text)
        {
            reasoning = thought.to_owned();
            text = rest.to_owned();
        }
        let ending = match stop {
            Stop::End | Stop::ToolCalls => Ending::Finished,
            Stop::Length | Stop::Refusal | Stop::Other(_) => Ending::CutOff,
        };
        let partials = self.calls.into_iter().map(|call| call.partial).collect();
        let calls = wire::calls(partials, request, ending);
        let opaque = self.reasoning_name.map(request::reasoning_sent_as);
        let message = Assistant { text, reasoning, calls, opaque, ..Assistant::default() };
        let usage = self.usage.unwrap_or_else(|| wire::estimate(request, &message));
        Response { message, stop, usage, from_cache: false }
    }
}

impl<'a> ChunkAssembler<'a> {
    pub(super) fn new(listener: &'a dyn Listener) -> Self {
        Self {
            output: Output { listener, text: String::new(), reasoning: String::new() },
            splitter: Splitter::default(),
            calls: Vec::new(),
            finish: None,
            refused: false,
            usage: None,
            reasoning_name: None,
            pieces: 0,
        }
    }

    fn delta(&mut self, delta: &Value) {
        let text = |name: &str| delta.get(name).and_then(Value::as_str).filter(|t| !t.is_empty());
        // Some servers send the same text under both names.
        let reasoning = REASONING.into_iter().find_map(|name| Some((name, text(name)?)));
        if let Some((name, reasoning)) = reasoning {
            self.reasoning_name.get_or_insert(name);
            self.splitter.disable();
            self.output.push(Piece::Reasoning(reasoning));
        }
        match delta.get("content") {
            Some(Value::String(content)) => {
                self.splitter.push(content, |piece| self.output.push(piece));
            }
            Some(Value::Array(parts)) => parts.iter().for_each(|part| self.part(part)),
            _ => {}
        }
        if let Some(refusal) = text("refusal") {
            self.refused = true;
            self.output.push(Piece::Text(refusal));
        }
        let calls = delta.get("tool_calls").and_then(Value::as_array);
        calls.into_iter().flatten().for_each(|call| self.call(call));
    }

    /// Takes content in typed parts, as Mistral's reasoning models send it.
    fn part(&mut self, part: &Value) {
        let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
        match part.get("thinking") {
            Some(Value::Array(thoughts)) => {
                let thoughts: String = thoughts.iter().filter_map(text).collect();
                self.output.push(Piece::Reasoning(&thoughts));
            }
            Some(Value::String(thought)) => self.output.push(Piece::Reasoning(thought)),
            _ => self.output.push(Piece::Text(&text(part).unwrap_or_default())),
        }
    }

    fn call(&mut self, call: &Value) {
        let function = call.get("function").unwrap_or(call);
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (id, name) = (text(call, "id"), text(function, "name"));
        let index = call.get("index").and_then(Value::as_u64);
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            // Against the protocol, but unambiguous.
            Some(object @ Value::Object(_)) => object.to_string(),
            _ => String::new(),
        };
        let at = match self.find_call(index, &id, &name) {
            Some(at) => at,
            // More calls than anyone executes: the rest is dropped.
            None if self.calls.len() == MAX_CALLS => return,
            None => {
                self.calls.push(Call { index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let listener = self.output.listener;
        let Some(Call { partial, balance, .. }) = self.calls.get_mut(at) else { return };
        if partial.id.is_empty() {
            partial.id = id;
        }
        // Some servers repeat the name with every piece.
        if partial.name.is_empty() && !name.is_empty() {
            listener.on_delta(Delta::Call(&name));
            partial.name = name;
        }
        if !arguments.is_empty() {
            listener.on_delta(Delta::Arguments(&arguments));
            balance.push(&arguments);
            partial.arguments.push_str(&arguments);
        }
    }

    /// The position of the call a piece belongs to, or `None` where it begins a new one.
    fn find_call(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let at = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index)?,
            None => {
                let same = |call: &Call| !id.is_empty() && call.partial.id == id;
                let last = self.calls.len().checked_sub(1)?;
                self.calls.iter().rposition(same).unwrap_or(last)
            }
        };
        let Call { partial, balance, .. } = &self.calls[at];
        let same_id = !id.is_empty() && partial.id == id;
        let another_id = !id.is_empty() && !partial.id.is_empty() && !same_id;
        let another_name = !name.is_empty() && !partial.name.is_empty() && partial.name != name;
        let named_again = !name.is_empty() && balance.is_closed();
        // Some servers send complete calls, one after the other, with the same index or none.
        let begins = match index {
            Some(_) => another_id && (another_name || named_again),
            None => another_id || (!same_id && (another_name || named_again)),
        };
        (!begins).then_some(at)
    }

    fn stop(&self) -> Stop {
        match self.finish.as_deref() {
            _ if self.refused => Stop::Refusal,
            Some("length") => Stop::Length,
            Some("content_filter") => Stop::Refusal,
            Some("stop" | "eos" | "tool_calls" | "function_call") => {
                if self.calls.is_empty() {
                    Stop::End
                } else {
                    Stop::ToolCalls
                }
            }
            other => Stop::Other(other.unwrap_or(NO_REASON).chars().take(64).collect()),
        }
    }
}

/// Whether a delta has more than a role: any field counts, since servers send thinking under many names.
fn has_piece(delta: &Value) -> bool {
    let filled = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(parts) => !parts.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    };
    let mut fields = delta.as_object().into_iter().flatten();
    fields.any(|(name, value)| name != "role" && filled(value))
}

/// The first choice. Where the user requested several, the others come in between.
fn first_choice(json: &Value) -> Option<&Value> {
    let mut choices = json.get("choices")?.as_array()?.iter();
    choices.find(|choice| choice.get("index").and_then(Value::as_u64).is_none_or(|at| at == 0))
}

/// Counts the brackets of a JSON object as its text arrives, to see when it is closed.
#[derive(Default)]
struct Balance {
    depth: usize,
    opened: bool,
    in_string: bool,
    escaped: bool,
}

impl Balance {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => {
                    self.depth += 1;
                    self.opened = true;
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.opened && self.depth == 0 && !self.in_string
    }
}

fn read_usage(usage: &Value) -> Option<Usage> {
    let input = count(usage.get("prompt_tokens"));
    let output = count(usage.get("completion_tokens"));
    // Some servers send zeros with every chunk but the last.
    if input + output == 0 {
        return None;
    }
    let cached = usage.pointer("/prompt_tokens_details/cached_tokens");
    let cached = cached.or_else(|| usage.get("prompt_cache_hit_tokens"));
    let written = usage.pointer("/prompt_tokens_details/cache_write_tokens");
    let reasoning = usage.pointer("/completion_tokens_details/reasoning_tokens");
    Some(Usage {
        input,
        cached: count(cached).min(input),
        cache_writes: count(written).min(input),
        output,
        reasoning: count(reasoning).min(output),
        estimated: false,
    })
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
