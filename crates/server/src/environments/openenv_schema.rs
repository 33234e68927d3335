//! The JSON schemas of OpenEnv's actions, observations and states, as `/schema` answers them.

use serde_json::{Value, json};

/// All schemas.
pub(super) fn schemas() -> Value {
    json!({ "action": action(), "observation": observation(), "state": state() })
}

fn action() -> Value {
    let call = json!({
        "type": "object",
        "properties": {
            "id": { "type": "string" },
            "type": { "const": "function" },
            "function": {
                "type": "object",
                "properties": { "name": { "type": "string" }, "arguments": {} },
                "required": ["name"],
            },
        },
        "required": ["function"],
    });
    json!({
        "title": "Action",
        "description": "The response of the model: one of `message`, `text`, `tool_calls` and `tool_name`.",
        "type": "object",
        "properties": {
            "message": {
                "type": "object",
                "description": "An assistant message of OpenAI's chat completions.",
            },
            "text": { "type": "string", "description": "The response as text, with calls in it." },
            "tool_calls": { "type": "array", "items": call },
            "tool_name": { "type": "string", "description": "One tool, called with `arguments`." },
            "arguments": { "type": "object" },
            "type": { "const": "call_tool" },
            "finish_reason": { "type": "string" },
            "usage": { "type": "object" },
            "metadata": { "type": "object" },
        },
        "additionalProperties": false,
    })
}

fn observation() -> Value {
    json!({
        "title": "Observation",
        "type": "object",
        "properties": {
            "messages": {
                "type": "array",
                "items": { "type": "object" },
                "description": "New messages for the model, as in OpenAI's chat completions.",
            },
            "tools": { "type": "array", "items": { "type": "object" } },
            "max_tokens": { "type": "integer" },
        },
        "required": ["messages"],
    })
}

fn state() -> Value {
    json!({
        "title": "State",
        "type": "object",
        "properties": {
            "episode_id": { "type": ["string", "null"] },
            "step_count": { "type": "integer", "minimum": 0 },
            "session": { "type": ["string", "null"] },
            "task": { "type": ["string", "null"] },
            "row": { "type": "object" },
            "state": { "type": "string" },
            "done": { "type": "boolean" },
            "reason": { "type": ["string", "null"] },
            "score": { "type": "object" },
        },
    })
}
