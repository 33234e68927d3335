//! Describes episodes: `/v1/episodes`.

use serde_json::{Value, json};

use crate::openapi::{Operation, list_of, schema_ref};

const EPISODES: &str = "episodes";

/// The routes.
pub(crate) fn operations() -> Vec<Operation> {
    [playing(), reading()].concat()
}

fn playing() -> Vec<Operation> {
    let new = |path, summary, body: &str| {
        Operation::post(path, EPISODES, summary)
            .body(schema_ref(body))
            .answer(201, "it is being played", schema_ref("Episode"))
            .refuses(&[404, 409, 501, 502, 507])
    };
    let changed = |path, summary| {
        Operation::post(path, EPISODES, summary)
            .answer(202, "not done yet", schema_ref("Episode"))
            .refuses(&[404, 409, 501, 502, 507])
    };
    vec![
        new("/v1/episodes", "Start an episode", "NewEpisode"),
        new("/v1/episodes/{id}/fork", "Start an episode that continues another one", "NewFork"),
        changed("/v1/episodes/{id}/cancel", "End an episode").answer(
            200,
            "it has ended",
            schema_ref("Episode"),
        ),
        changed("/v1/episodes/{id}/resume", "Continue an episode that did not finish"),
        Operation::delete("/v1/episodes/{id}", EPISODES, "Remove an episode with its files")
            .empty(204, "it is gone")
            .refuses(&[404, 409, 501]),
    ]
}

fn reading() -> Vec<Operation> {
    let number = || json!({ "type": "integer", "minimum": 0, "maximum": 9_007_199_254_740_991u64 });
    let get = |path, summary| Operation::get(path, EPISODES, summary).refuses(&[404, 501]);
    let text = || json!({ "type": "string" });
    let page = json!({
        "type": "object", "required": ["episodes", "next"],
        "properties": {
            "episodes": list_of("ListedEpisode"), "next": { "type": ["string", "null"] },
        },
    });
    let files = json!({
        "type": "object", "required": ["files"],
        "properties": { "files": list_of("EpisodeFile") },
    });
    vec![
        Operation::get("/v1/episodes", EPISODES, "List episodes, newest first")
            .query("limit", json!({ "type": "integer", "minimum": 1, "maximum": 1000 }))
            .query("after", text())
            .query("state", schema_ref("EpisodeState"))
            .answer(200, "a page; `next` is what `after` says for the next one", page)
            .refuses(&[400, 501]),
        get("/v1/episodes/{id}", "Describe an episode").answer(
            200,
            "the episode",
            schema_ref("Episode"),
        ),
        get("/v1/episodes/{id}/events", "Follow the events of an episode")
            .query("after", number())
            .header("Last-Event-ID", number(), "the last event that is known; beats `after`")
            .events("events with their numbers, until the episode ends")
            .empty(204, "it has ended, and its last event is known")
            .refuses(&[400]),
        get("/v1/episodes/{id}/trajectory", "The steps of an episode").answer(
            200,
            "the trajectory",
            json!({ "type": "object" }),
        ),
        get("/v1/episodes/{id}/files", "List the files that an episode made").answer(
            200,
            "the files",
            files,
        ),
        get("/v1/episodes/{id}/files/{*path}", "Read a file that an episode made").answer_as(
            200,
            "its content",
            "application/octet-stream",
            json!({ "type": "string", "format": "binary" }),
        ),
    ]
}

/// The messages.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    [requests(), answers()].concat()
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

/// An object in which nothing else is accepted.
fn closed(required: &[&str], properties: Value) -> Value {
    let mut closed = object(required, properties);
    closed["additionalProperties"] = json!(false);
    closed
}

fn texts() -> Value {
    json!({ "type": "object", "additionalProperties": { "type": "string" } })
}

fn requests() -> Vec<(&'static str, Value)> {
    let text = json!({ "type": "string" });
    let count = json!({ "type": "integer", "minimum": 0 });
    let turns = json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX });
    let amount = json!({ "type": "number", "minimum": 0 });
    let keep = json!({ "enum": ["for_resume", "end", "every_turn"] });
    let limits = json!({
        "turns": turns, "tokens": count, "tokens_per_call": count, "time": amount, "cost": amount,
    });
    let file = json!({ "path": text, "text": text, "base64": text });
    let mut file = closed(&["path"], file);
    file["oneOf"] = json!([{ "required": ["text"] }, { "required": ["base64"] }]);
    let sampling = json!({
        "temperature": amount, "top_p": amount, "top_k": count, "min_p": amount,
        "repetition_penalty": amount, "seed": count, "stop": { "type": "array", "items": text },
        "thinking": count, "shape": {}, "tool_choice": { "type": "string" },
    });
    let part = json!({ "oneOf": [
        object(&["type", "text"], json!({ "type": { "const": "text" }, "text": text })),
        object(
            &["type", "media_type", "data"],
            json!({ "type": { "const": "image" }, "media_type": text, "data": text }),
        ),
    ] });
    let roles = json!({ "enum": ["system", "user", "assistant", "tool"] });
    let message = json!({
        "role": roles, "text": text, "content": { "type": "array", "items": part },
    });
    let mut new = closed(
        &[],
        json!({
            "task": text, "messages": { "type": "array", "items": schema_ref("EpisodeMessage") },
            "files": { "type": "array", "items": file }, "model": text,
            "limits": schema_ref("EpisodeLimits"), "sampling": closed(&[], sampling),
            "system_prompt": text, "files_from": text, "keep": keep, "metadata": texts(),
        }),
    );
    new["oneOf"] = json!([{ "required": ["task"] }, { "required": ["messages"] }]);
    let fork = json!({
        "turn": turns, "model": text, "limits": schema_ref("EpisodeLimits"), "keep": keep,
        "metadata": texts(),
    });
    vec![
        ("NewEpisode", new),
        ("NewFork", closed(&[], fork)),
        ("EpisodeLimits", closed(&[], limits)),
        ("EpisodeMessage", object(&["role"], message)),
    ]
}

fn answers() -> Vec<(&'static str, Value)> {
    let text = json!({ "type": "string" });
    let count = json!({ "type": "integer", "minimum": 0 });
    let state = schema_ref("EpisodeState");
    let maybe = json!({ "type": ["string", "null"] });
    let listed = json!({
        "id": text, "created": count, "state": state, "model": text, "task": text,
        "metadata": texts(), "outcome": maybe,
    });
    let parent = object(&["id", "turn"], json!({ "id": text, "turn": count }));
    let episode = json!({
        "v": count, "id": text, "owner": text, "created": count, "model": text,
        "task": { "type": "object" }, "limits": { "type": "object" },
        "sampling": { "type": "object" }, "system_prompt": text,
        "keep": { "enum": ["for_resume", "end", "every_turn"] }, "metadata": texts(),
        "image": text, "parent": parent, "state": state,
        "result": { "oneOf": [{ "type": "null" }, schema_ref("EpisodeResult")] },
    });
    let validity = json!({
        "validity": { "enum": ["valid", "cancelled", "invalid"] }, "fault": text, "cause": text,
    });
    let usage = object(&["input", "output"], json!({ "input": count, "output": count }));
    let spent = json!({
        "turns": count, "usage": usage, "context": count, "cost": { "type": "number" },
        "model_ms": count, "tool_ms": count,
    });
    let result = json!({
        "v": count, "ended": count, "outcome": text, "cause": text, "fault": text,
        "validity": object(&["validity"], validity),
        "spent": object(&["turns", "usage", "context", "model_ms", "tool_ms"], spent),
        "answer": maybe, "files": list_of("EpisodeFile"), "files_error": text,
        "kept": { "type": "boolean" },
    });
    let required = ["v", "id", "owner", "created", "model", "task", "limits", "keep", "state"];
    vec![
        ("Episode", object(&required, episode)),
        ("ListedEpisode", object(&["id", "created", "state", "model", "task"], listed)),
        ("EpisodeResult", object(&["ended", "outcome", "validity", "spent"], result)),
        (
            "EpisodeState",
            json!({ "enum": ["running", "interrupted", "finished", "cancelled", "failed"] }),
        ),
        ("EpisodeFile", object(&["path", "size"], json!({ "path": text, "size": count }))),
    ]
}
