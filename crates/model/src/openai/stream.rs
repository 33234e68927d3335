//! A reply put together from the chunks of a chat completions stream, or from one whole document.
//!
//! Servers differ in how they number, name and cut calls: every form seen in the field is understood.

use serde_json::Value;
use trajectory::{Assistant, Stop, Usage};

use super::{REASONING, request};
use crate::{
    Delta, Error, Listener, Reply, Request,
    repair::Complete,
    talk::{Gatherer, Progress},
    think::{self, Piece, Splitter},
    wire::{self, MAX_CALLS, Partial, UNSAID, count},
};

/// What has come so far.
pub(super) struct Gathering<'a> {
    said: Said<'a>,
    splitter: Splitter,
    calls: Vec<Call>,
    finish: Option<String>,
    refused: bool,
    usage: Option<Usage>,
    /// How the server calls the thinking.
    reasoning_name: Option<&'static str>,
}

/// A call on its way.
#[derive(Default)]
struct Call {
    /// The number the server gave it.
    index: Option<u64>,
    partial: Partial,
    balance: Balance,
}

/// The words, and who hears them.
struct Said<'a> {
    listener: &'a dyn Listener,
    text: String,
    reasoning: String,
}

impl Said<'_> {
    fn say(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Text("") | Piece::Reasoning("") => {}
            Piece::Text(text) => {
                self.text.push_str(text);
                self.listener.hear(Delta::Text(text));
            }
            Piece::Reasoning(text) => {
                self.reasoning.push_str(text);
                self.listener.hear(Delta::Reasoning(text));
            }
        }
    }
}

impl Gatherer for Gathering<'_> {
    fn take(&mut self, json: &Value) -> Result<Progress, Error> {
        let usage = json.get("usage").or_else(|| json.pointer("/x_groq/usage"));
        self.usage = usage.and_then(read_usage).or(self.usage);
        let Some(choice) = first_choice(json) else { return Ok(Progress::More) };
        let part = |name: &str| choice.get(name).filter(|part| part.is_object());
        // Some servers repeat the message so far beside each piece of it.
        let delta = part("delta");
        let whole = if delta.is_none() { part("message") } else { None };
        if let Some(said) = delta.or(whole) {
            self.delta(said)?;
        }
        let finish = choice.get("finish_reason").and_then(Value::as_str);
        let finish = finish.filter(|finish| !finish.is_empty());
        // A whole message is complete even where its server does not say why it ended.
        let finish = finish.or_else(|| whole.map(|_| "stop"));
        if let Some(finish) = finish {
            self.finish = Some(finish.to_owned());
        }
        Ok(Progress::More)
    }

    fn is_complete(&self) -> bool {
        self.finish.is_some()
    }

    fn is_empty(&self) -> bool {
        let Said { text, reasoning, .. } = &self.said;
        text.is_empty() && reasoning.is_empty() && self.calls.is_empty()
    }
}

impl<'a> Gathering<'a> {
    pub(super) fn new(listener: &'a dyn Listener) -> Self {
        Self {
            said: Said { listener, text: String::new(), reasoning: String::new() },
            splitter: Splitter::default(),
            calls: Vec::new(),
            finish: None,
            refused: false,
            usage: None,
            reasoning_name: None,
        }
    }

    /// The reply, once its end was seen.
    pub(super) fn reply(mut self, request: &Request<'_>) -> Reply {
        let stop = self.stop();
        self.splitter.finish(|piece| self.said.say(piece));
        let Said { mut text, mut reasoning, .. } = self.said;
        if reasoning.is_empty()
            && let Some((thought, rest)) = think::without_opening(&text)
        {
            reasoning = thought.to_owned();
            text = rest.to_owned();
        }
        let complete = match stop {
            Stop::End | Stop::ToolCalls => Complete::Whole,
            Stop::Length | Stop::Refusal | Stop::Other(_) => Complete::CutOff,
        };
        let partials = self.calls.into_iter().map(|call| call.partial).collect();
        let calls = wire::calls(partials, request, complete);
        let opaque = self.reasoning_name.map(request::reasoning_told_as);
        let message = Assistant { text, reasoning, calls, opaque, ..Assistant::default() };
        let usage = self.usage.unwrap_or_else(|| wire::estimate(request, &message));
        Reply { message, stop, usage, from_cache: false }
    }

    fn delta(&mut self, delta: &Value) -> Result<(), Error> {
        let text = |name: &str| delta.get(name).and_then(Value::as_str).filter(|t| !t.is_empty());
        // Some servers send the same words under both names.
        let told = REASONING.into_iter().find_map(|name| Some((name, text(name)?)));
        if let Some((name, reasoning)) = told {
            self.reasoning_name.get_or_insert(name);
            self.splitter.off();
            self.said.say(Piece::Reasoning(reasoning));
        }
        match delta.get("content") {
            Some(Value::String(content)) => {
                self.splitter.push(content, |piece| self.said.say(piece));
            }
            Some(Value::Array(parts)) => parts.iter().for_each(|part| self.part(part)),
            _ => {}
        }
        if let Some(refusal) = text("refusal") {
            self.refused = true;
            self.said.say(Piece::Text(refusal));
        }
        let calls = delta.get("tool_calls").and_then(Value::as_array);
        calls.into_iter().flatten().try_for_each(|call| self.call(call))
    }

    /// Content in typed parts, as Mistral's reasoning models send it.
    fn part(&mut self, part: &Value) {
        let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
        match part.get("thinking") {
            Some(Value::Array(thoughts)) => {
                let thoughts: String = thoughts.iter().filter_map(text).collect();
                self.said.say(Piece::Reasoning(&thoughts));
            }
            Some(Value::String(thought)) => self.said.say(Piece::Reasoning(thought)),
            _ => self.said.say(Piece::Text(&text(part).unwrap_or_default())),
        }
    }

    fn call(&mut self, call: &Value) -> Result<(), Error> {
        let function = call.get("function").unwrap_or(call);
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (id, name) = (text(call, "id"), text(function, "name"));
        let index = call.get("index").and_then(Value::as_u64);
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            // Not as the protocol has it, but clear enough.
            Some(object @ Value::Object(_)) => object.to_string(),
            _ => String::new(),
        };
        let at = match self.place(index, &id, &name) {
            Some(at) => at,
            // More than anybody carries out: the rest is not even kept.
            None if self.calls.len() == MAX_CALLS => return Ok(()),
            None => {
                self.calls.push(Call { index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let listener = self.said.listener;
        let Some(Call { partial, balance, .. }) = self.calls.get_mut(at) else { return Ok(()) };
        if partial.id.is_empty() {
            partial.id = id;
        }
        // Some servers repeat the name with every piece.
        if partial.name.is_empty() && !name.is_empty() {
            listener.hear(Delta::Call(&name));
            partial.name = name;
        }
        if !arguments.is_empty() {
            listener.hear(Delta::Arguments(&arguments));
            balance.push(&arguments);
            partial.arguments.push_str(&arguments);
        }
        Ok(())
    }

    /// The call a piece belongs to, or nothing where it begins one.
    fn place(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
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
        // Some servers send whole calls, one after the other, that all bear the same number or none.
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
            other => Stop::Other(other.unwrap_or(UNSAID).chars().take(64).collect()),
        }
    }
}

/// The one reply that was asked for. Where the user asked for several, the others come in between.
fn first_choice(json: &Value) -> Option<&Value> {
    let mut choices = json.get("choices")?.as_array()?.iter();
    choices.find(|choice| choice.get("index").and_then(Value::as_u64).is_none_or(|at| at == 0))
}

/// Whether the brackets of a JSON object are all closed, counted as its text arrives.
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
