//! The Agent Trajectory Interchange Format, versions 1.0 to 1.8.

use serde_json::{Map, Value};
use trajectory::{
    Arguments, Assistant, Event, Line, Message, Started, ToolCall, ToolResult, Usage,
};

use super::{Facts, Lines, millis_of, number, text_of, texts};
use crate::row::TokenCount;

/// Steps that are read.
const MAX_STEPS: usize = 1_000_000;

pub(super) fn facts(value: &Value) -> Result<Facts, String> {
    let steps = steps(value)?;
    let first = steps.iter().find(|step| source(step) == "user");
    let metrics = value.get("final_metrics");
    let total = |name: &str| metrics.and_then(|it| it.get(name)).and_then(Value::as_u64);
    let tokens = (total("total_prompt_tokens"), total("total_completion_tokens"));
    let started = steps.iter().map(|step| millis_of(step.get("timestamp"))).find(|at| *at > 0);
    Ok(Facts {
        model: value.pointer("/agent/model_name").and_then(Value::as_str).map(str::to_owned),
        task: text_of(first.and_then(|step| step.get("message"))),
        turns: Some(steps.iter().filter(|step| source(step) == "agent").count() as u64),
        tokens: match tokens {
            (Some(input), Some(output)) => Some(TokenCount { input, output }),
            _ => None,
        },
        started,
        outcome: None,
    })
}

fn steps(value: &Value) -> Result<&[Value], String> {
    let steps = value.get("steps").and_then(Value::as_array);
    let steps = steps.ok_or("it is not a trajectory: it has no steps")?;
    Ok(&steps[..steps.len().min(MAX_STEPS)])
}

fn source(step: &Value) -> &str {
    step.get("source").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn events(value: &Value) -> Result<Vec<Line>, String> {
    let steps = steps(value)?;
    let first = steps.iter().take_while(|step| source(step) != "agent").count();
    let messages: Vec<Message> = steps[..first].iter().map(message).collect();
    let task = steps[..first].iter().rev().find(|step| source(step) == "user");
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let program = [text("/agent/name"), text("/agent/version")];
    let mut lines = Lines::default();
    let started = Started {
        problem_statement: text_of(task.and_then(|step| step.get("message"))),
        messages,
        model: text("/agent/model_name").unwrap_or_default(),
        settings: value.pointer("/agent/extra").cloned().unwrap_or_default(),
        protection: Value::Null,
        program: program.into_iter().flatten().collect::<Vec<_>>().join(" "),
    };
    let at = steps.first().map_or(0, |step| millis_of(step.get("timestamp")));
    lines.push(at, Event::Started(Box::new(started)));
    for step in &steps[first..] {
        let at = millis_of(step.get("timestamp"));
        if source(step) != "agent" {
            lines.observe(at, message(step), None, 0);
            continue;
        }
        let calls = calls(step);
        let assistant = Assistant {
            text: text_of(step.get("message")),
            reasoning: text_of(step.get("reasoning_content")),
            calls: calls.clone(),
            ..Assistant::default()
        };
        lines.respond(at, assistant, usage(step.get("metrics")), 0);
        let results = step.pointer("/observation/results").and_then(Value::as_array);
        for result in results.into_iter().flatten() {
            lines.observe(at, observation(result, &calls), None, 0);
        }
    }
    Ok(lines.lines)
}

fn message(step: &Value) -> Message {
    let text = text_of(step.get("message"));
    match source(step) {
        "system" => Message::System { text },
        _ => Message::user(text),
    }
}

fn calls(step: &Value) -> Vec<ToolCall> {
    let calls = step.get("tool_calls").and_then(Value::as_array);
    let text = |call: &Value, name: &str| text_of(call.get(name));
    let call = |call: &Value| ToolCall {
        id: text(call, "tool_call_id"),
        name: text(call, "function_name"),
        arguments: match call.get("arguments") {
            Some(Value::Object(arguments)) => Arguments::Object(arguments.clone()),
            None | Some(Value::Null) => Arguments::Object(Map::new()),
            Some(other) => Arguments::Malformed {
                malformed: text_of(Some(other)),
                why: "the arguments are not an object".to_owned(),
            },
        },
    };
    calls.into_iter().flatten().map(call).collect()
}

fn observation(result: &Value, calls: &[ToolCall]) -> Message {
    let id = result.get("source_call_id").and_then(Value::as_str);
    let call = id.and_then(|id| calls.iter().find(|call| call.id == id));
    let content = texts(result.get("content"));
    match call {
        Some(call) => Message::Tool(ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            content,
            is_error: false,
        }),
        None => Message::User { content },
    }
}

fn usage(metrics: Option<&Value>) -> Usage {
    let count = |name: &str| number(metrics.and_then(|metrics| metrics.get(name)));
    Usage {
        input: count("prompt_tokens"),
        cached: count("cached_tokens"),
        output: count("completion_tokens"),
        reasoning: number(metrics.and_then(|it| it.pointer("/extra/reasoning_tokens"))),
        ..Usage::default()
    }
}
