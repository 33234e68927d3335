//! Writes the Agent Trajectory Interchange Format, version 1.7.

use serde_json::{Map, Value, json};
use trajectory::{
    Arguments, Assistant, Content, Event, Line, Message, Responded, Started, ToolCall, Usage,
};

use super::About;

const VERSION: &str = "ATIF-v1.7";

/// A trajectory.
pub(super) fn export(lines: &[Line], about: &About) -> Value {
    let mut steps = Steps::default();
    let mut started: Option<&Started> = None;
    let mut extra = Map::new();
    for line in lines {
        match &line.event {
            Event::Started(first) => {
                started = Some(first);
                first.messages.iter().for_each(|message| steps.message(line.at, 0, message));
            }
            Event::Responded(responded) => steps.respond(line.at, responded),
            Event::Observed(observed) => {
                steps.observe(line.at, observed.turn, &observed.message, observed.exit_code);
            }
            Event::Resumed { turn } => {
                steps.remove_after(*turn);
                extra.remove("outcome");
            }
            Event::Ended(ended) => {
                extra.insert("outcome".into(), json!(ended.outcome));
                extra.insert("spent".into(), json!(ended.spent));
            }
            _ => {}
        }
    }
    if let Value::Object(more) = &about.extra {
        let known = more.iter().filter(|(_, value)| !value.is_null());
        extra.extend(known.map(|(name, value)| (name.clone(), value.clone())));
    }
    if let Some(score) = about.score {
        extra.insert("score".into(), json!(score));
    }
    let program = started.map(|it| it.program.as_str()).filter(|it| !it.is_empty());
    let mut agent = json!({ "name": "llm-in-sandbox", "version": program.unwrap_or("unknown") });
    if let Some(started) = started.filter(|started| !started.model.is_empty()) {
        agent["model_name"] = json!(started.model);
    }
    let (steps, metrics) = steps.finish();
    let mut trajectory = json!({
        "schema_version": VERSION,
        "session_id": about.session,
        "trajectory_id": about.id,
        "agent": agent,
        "steps": steps,
        "final_metrics": metrics,
    });
    if !extra.is_empty() {
        trajectory["extra"] = Value::Object(extra);
    }
    trajectory
}

#[derive(Default)]
struct Steps {
    /// With the turn they belong to.
    steps: Vec<(u32, Value)>,
    usage: Vec<(u32, Usage, Option<f64>)>,
}

impl Steps {
    fn push(&mut self, at: u64, turn: u32, mut step: Value) {
        if let Some(time) = timestamp(at) {
            step["timestamp"] = json!(time);
        }
        self.steps.push((turn, step));
    }

    fn message(&mut self, at: u64, turn: u32, message: &Message) {
        match message {
            Message::System { text } => {
                self.push(at, turn, json!({ "source": "system", "message": text }));
            }
            Message::User { content } => {
                let text = text_of(content);
                self.push(at, turn, json!({ "source": "user", "message": text }));
            }
            Message::Assistant(assistant) => {
                let step = agent_step(assistant);
                self.push(at, turn, step);
            }
            Message::Tool(result) => {
                self.result(at, turn, Some(&result.call_id), &result.content, json!(null));
            }
        }
    }

    fn respond(&mut self, at: u64, responded: &Responded) {
        let Responded { turn, usage, cost, millis, .. } = responded;
        let mut step = agent_step(&responded.message);
        let mut metrics = json!({
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "cached_tokens": usage.cached,
            "extra": { "reasoning_tokens": usage.reasoning, "model_ms": millis },
        });
        if let Some(cost) = cost {
            metrics["cost_usd"] = json!(cost);
        }
        step["metrics"] = metrics;
        self.usage.push((*turn, *usage, *cost));
        self.push(at, *turn, step);
    }

    fn observe(&mut self, at: u64, turn: u32, message: &Message, exit_code: Option<i32>) {
        match message {
            Message::Tool(result) => {
                let extra = exit_code.map_or(Value::Null, |code| json!({ "exit_code": code }));
                self.result(at, turn, Some(&result.call_id), &result.content, extra);
            }
            other => self.message(at, turn, other),
        }
    }

    /// Adds a result to the step of its call.
    fn result(&mut self, at: u64, turn: u32, id: Option<&str>, content: &[Content], extra: Value) {
        let mut result = json!({ "content": text_of(content) });
        if !extra.is_null() {
            result["extra"] = extra;
        }
        let last = self.steps.iter_mut().rev().find(|(_, step)| step["source"] == "agent");
        let Some((_, step)) = last else {
            let text = text_of(content);
            return self.push(at, turn, json!({ "source": "user", "message": text }));
        };
        let calls = step.get("tool_calls").and_then(Value::as_array);
        let is_known = |id: &&str| {
            calls.is_some_and(|calls| calls.iter().any(|call| call["tool_call_id"] == **id))
        };
        if let Some(id) = id.filter(is_known) {
            result["source_call_id"] = json!(id);
        }
        match step.pointer_mut("/observation/results").and_then(Value::as_array_mut) {
            Some(results) => results.push(result),
            None => step["observation"] = json!({ "results": [result] }),
        }
    }

    fn remove_after(&mut self, turn: u32) {
        self.steps.retain(|(at, _)| *at <= turn);
        self.usage.retain(|(at, _, _)| *at <= turn);
    }

    fn finish(self) -> (Vec<Value>, Value) {
        let mut all = Usage::default();
        let mut cost = None;
        for (_, usage, more) in &self.usage {
            all += *usage;
            cost = more.map_or(cost, |more| Some(cost.unwrap_or(0.0) + more));
        }
        let numbered = self.steps.into_iter().enumerate().map(|(at, (_, mut step))| {
            step["step_id"] = json!(at + 1);
            step
        });
        let steps: Vec<Value> = numbered.collect();
        let mut metrics = json!({
            "total_prompt_tokens": all.input,
            "total_completion_tokens": all.output,
            "total_cached_tokens": all.cached,
            "total_steps": steps.len(),
        });
        if let Some(cost) = cost {
            metrics["total_cost_usd"] = json!(cost);
        }
        (steps, metrics)
    }
}

fn agent_step(message: &Assistant) -> Value {
    let mut step = json!({ "source": "agent", "message": message.text });
    if !message.reasoning.is_empty() {
        step["reasoning_content"] = json!(message.reasoning);
    }
    if !message.calls.is_empty() {
        step["tool_calls"] = message.calls.iter().map(call).collect();
    }
    step
}

fn call(call: &ToolCall) -> Value {
    let mut value = json!({ "tool_call_id": call.id, "function_name": call.name });
    match &call.arguments {
        Arguments::Object(arguments) => value["arguments"] = Value::Object(arguments.clone()),
        Arguments::Malformed { malformed, why } => {
            value["arguments"] = json!({});
            value["extra"] = json!({ "malformed": malformed, "why": why });
        }
    }
    value
}

/// The texts of a message. Images are files beside a trajectory in this format, and an export is one file.
fn text_of(content: &[Content]) -> String {
    let texts = content.iter().map(|part| match part {
        Content::Text { text } => text.clone(),
        Content::Image { media_type, .. } => format!("[image: {media_type}]"),
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn timestamp(at: u64) -> Option<String> {
    let at = i64::try_from(at).ok().filter(|at| *at > 0)?;
    let time = jiff::Timestamp::from_millisecond(at).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}
