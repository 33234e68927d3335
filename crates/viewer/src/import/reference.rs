//! `trajectory.json` of the reference, and the same of this program.

use serde_json::{Map, Value};
use trajectory::{
    Assistant, Content, Ended, Event, Line, Message, Outcome, Spent, Started, ToolResult,
    Trajectory, Usage,
};

use super::{Facts, Lines, number, seconds};
use crate::row::TokenCount;

pub(super) fn facts(value: &Value) -> Facts {
    let metadata = value.get("metadata");
    let text = |name: &str| metadata?.get(name)?.as_str().map(str::to_owned);
    let steps = value.get("steps").and_then(Value::as_array);
    let spent: Option<Spent> = metadata
        .and_then(|metadata| metadata.get("spent"))
        .and_then(|spent| serde_json::from_value(spent.clone()).ok());
    Facts {
        model: text("model"),
        task: value.get("problem_statement").and_then(Value::as_str).unwrap_or_default().to_owned(),
        turns: spent.map(|it| u64::from(it.turns)).or(steps.map(|steps| steps.len() as u64)),
        tokens: spent.map(|it| TokenCount { input: it.usage.input, output: it.usage.output }),
        started: Some(number(metadata.and_then(|it| it.get("started")))).filter(|at| *at > 0),
        outcome: text("outcome"),
    }
}

pub(super) fn events(value: &Value) -> Result<Vec<Line>, String> {
    let trajectory: Trajectory = serde_json::from_value(value.clone())
        .map_err(|error| format!("it is not a trajectory: {error}"))?;
    let metadata = &trajectory.metadata;
    let mut lines = Lines::default();
    lines.push(number(metadata.get("started")), started(&trajectory));
    let mut calls = trajectory.calls();
    let mut last_turn = None;
    for step in &trajectory.steps {
        let call = (!step.action.function.is_empty()).then(|| calls.next()).flatten();
        // Several calls of one response have its turn.
        let turn = step.metadata.get("turn").and_then(Value::as_u64);
        let continues = turn.is_some() && turn == last_turn && step.thought.is_empty();
        last_turn = turn;
        let call_id = call.as_ref().map(|call| call.id.clone());
        let name = step.action.function.clone();
        match (continues, lines.lines.iter_mut().rev().find_map(responded)) {
            (true, Some(message)) => message.calls.extend(call),
            _ => {
                let message = Assistant {
                    text: step.thought.clone(),
                    reasoning: step.reasoning_content.clone(),
                    calls: call.into_iter().collect(),
                    ..Assistant::default()
                };
                let millis = seconds(step.metadata.get("exec_time"));
                lines.respond(0, message, usage(&step.metadata), millis);
            }
        }
        let content = vec![Content::text(step.observation.clone())];
        let message = match call_id {
            Some(call_id) => Message::Tool(ToolResult { call_id, name, content, is_error: false }),
            None if step.observation.is_empty() => continue,
            None => Message::User { content },
        };
        let code = step.metadata.get("exit_code").and_then(Value::as_i64);
        let code = code.and_then(|code| i32::try_from(code).ok());
        lines.observe(0, message, code, seconds(step.metadata.get("tool_time")));
    }
    if let Some(ended) = ended(metadata) {
        lines.push(number(metadata.get("ended")), Event::Ended(ended));
    }
    Ok(lines.lines)
}

fn responded(line: &mut Line) -> Option<&mut Assistant> {
    match &mut line.event {
        Event::Responded(responded) => Some(&mut responded.message),
        _ => None,
    }
}

fn started(trajectory: &Trajectory) -> Event {
    let metadata = &trajectory.metadata;
    let get = |name: &str| metadata.get(name).cloned().unwrap_or_default();
    let messages: Option<Vec<Message>> = serde_json::from_value(get("messages")).ok();
    let messages = messages.filter(|messages| !messages.is_empty());
    let text =
        |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Event::Started(Box::new(Started {
        problem_statement: trajectory.problem_statement.clone(),
        messages: messages.unwrap_or_else(|| vec![Message::user(&trajectory.problem_statement)]),
        model: text("model"),
        settings: get("settings"),
        protection: get("protection"),
        program: text("program"),
    }))
}

fn usage(metadata: &Map<String, Value>) -> Usage {
    if let Some(usage) =
        metadata.get("usage").and_then(|it| serde_json::from_value(it.clone()).ok())
    {
        return usage;
    }
    let count = |names: [&str; 2]| {
        names.into_iter().find_map(|name| metadata.get(name).and_then(Value::as_u64)).unwrap_or(0)
    };
    Usage {
        input: count(["prompt_tokens", "input_tokens"]),
        output: count(["completion_tokens", "output_tokens"]),
        ..Usage::default()
    }
}

fn ended(metadata: &Map<String, Value>) -> Option<Ended> {
    let outcome: Outcome = serde_json::from_value(Value::Object(metadata.clone())).ok()?;
    let spent = metadata.get("spent").and_then(|it| serde_json::from_value(it.clone()).ok());
    Some(Ended { outcome, spent: spent.unwrap_or_default() })
}
