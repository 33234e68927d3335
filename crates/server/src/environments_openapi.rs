//! Describes environments for reinforcement learning, and OpenEnv's paths to the same sessions.

use serde_json::{Value, json};

use crate::openapi::{Operation, schema_ref};

/// The routes.
pub(crate) fn operations() -> Vec<Operation> {
    let mut all = sessions();
    all.extend(open_env(["/ws", "/metadata", "/schema"]));
    let task = ["/openenv/{task}/ws", "/openenv/{task}/metadata", "/openenv/{task}/schema"];
    all.extend(open_env(task));
    let health = "Whether the server runs, at the address of a task";
    all.push(Operation::get("/openenv/{task}/health", "openenv", health).answer(
        200,
        "it does",
        object(&["status"], json!({ "status": { "const": "healthy" } })),
    ));
    all
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

/// An object in which nothing else is accepted.
fn closed(properties: Value) -> Value {
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn many(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn sessions() -> Vec<Operation> {
    let tag = "environments";
    let waiting = |operation: Operation, refusals: &[u16]| {
        operation
            .answer(200, "the session", schema_ref("EnvironmentSession"))
            .answer(202, "the session, whose result is pending", schema_ref("EnvironmentSession"))
            .refuses(refusals)
    };
    let post =
        |path, summary, body: &str| Operation::post(path, tag, summary).body(schema_ref(body));
    let closing = |operation: Operation| {
        let closed = object(
            &["session", "state", "gone"],
            json!({ "session": text(), "state": { "const": "gone" }, "gone": text() }),
        );
        operation.answer(200, "it has ended, and its sandbox is gone", closed).refuses(&[404])
    };
    let list =
        object(&["environments"], json!({ "environments": many(schema_ref("Environment")) }));
    let lease = object(
        &["session", "lease_seconds_left"],
        json!({ "session": text(), "lease_seconds_left": { "type": "number" } }),
    );
    let result = object(
        &["status", "body"],
        json!({ "status": { "type": "integer" }, "body": { "type": "object" } }),
    );
    let bad = [404, 409, 410];
    vec![
        Operation::get("/v1/environments", tag, "List tasks")
            .answer(200, "the tasks", list)
            .refuses(&[404]),
        waiting(
            post("/v1/environments/{task}/reset", "Start a session at a task", "EnvironmentReset"),
            &[404, 500, 503],
        ),
        waiting(post("/v1/sessions/{id}/step", "Send a response", "EnvironmentStep"), &bad),
        waiting(post("/v1/sessions/{id}/score", "Grade a session", "EnvironmentWait"), &bad),
        waiting(
            Operation::get("/v1/sessions/{id}", tag, "Describe a session")
                .query("wait", json!({ "type": "number", "minimum": 0 })),
            &[400, 404, 410],
        ),
        Operation::post("/v1/sessions/{id}/heartbeat", tag, "Renew the lease of a session")
            .answer(200, "it is renewed", lease)
            .refuses(&[404, 410]),
        closing(Operation::post("/v1/sessions/{id}/close", tag, "End a session")),
        closing(Operation::delete("/v1/sessions/{id}", tag, "End a session")),
        post("/v1/sessions/batch", "Several operations at once", "EnvironmentBatch")
            .answer(
                200,
                "a status and a body for each",
                object(&["results"], json!({ "results": many(result) })),
            )
            .refuses(&[404]),
    ]
}

/// OpenEnv's paths below one address: of all tasks, or of one.
fn open_env([socket, metadata, schema]: [&'static str; 3]) -> Vec<Operation> {
    let tag = "openenv";
    let about = object(
        &["name", "description", "version"],
        json!({ "name": text(), "description": text(), "version": text() }),
    );
    let schemas = object(
        &["action", "observation", "state"],
        json!({
            "action": { "type": "object" }, "observation": { "type": "object" },
            "state": { "type": "object" },
        }),
    );
    vec![
        Operation::get(socket, tag, "Play in an environment over a WebSocket")
            .empty(101, "the connection is a WebSocket")
            .refuses(&[400, 404]),
        Operation::get(metadata, tag, "Describe the environment")
            .answer(200, "its name and version", about)
            .refuses(&[404]),
        Operation::get(schema, tag, "The schemas of actions, observations and states")
            .answer(200, "JSON schemas", schemas)
            .refuses(&[404]),
    ]
}

/// The messages.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    [requests(), answers()].concat()
}

fn requests() -> Vec<(&'static str, Value)> {
    let count = json!({ "type": "integer", "minimum": 0, "maximum": 9_007_199_254_740_991u64 });
    let turns = json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX });
    let wait = json!({ "oneOf": [{ "type": "boolean" }, { "type": "number", "minimum": 0 }] });
    let limits = closed(json!({ "turns": turns, "tokens": count }));
    let formats = json!({ "type": "string" });
    let reset = json!({
        "row": { "oneOf": [text(), count] }, "seed": count, "tool_format": formats,
        "limits": limits, "wait": wait,
    });
    let usage = object(&[], json!({ "prompt_tokens": count, "completion_tokens": count }));
    let parts = many(object(&["text"], json!({ "text": text() })));
    let message = json!({
        "content": { "oneOf": [{ "type": ["string", "null"] }, parts] },
        "reasoning_content": { "type": ["string", "null"] },
        "tool_calls": { "type": ["array", "null"], "items": schema_ref("EnvironmentCall") },
    });
    let mut step = closed(json!({
        "step": turns, "message": object(&[], message), "text": text(), "finish_reason": text(),
        "usage": usage, "wait": wait,
    }));
    step["oneOf"] = json!([{ "required": ["message"] }, { "required": ["text"] }]);
    let function =
        object(&["name"], json!({ "name": text(), "arguments": { "type": ["string", "object"] } }));
    let names = json!({ "enum": ["reset", "step", "score", "get", "heartbeat", "close"] });
    let operation =
        object(&["operation"], json!({ "operation": names, "task": text(), "session": text() }));
    let operations = json!({ "type": "array", "maxItems": 1024, "items": operation });
    let mut batch = closed(json!({ "operations": operations }));
    batch["required"] = json!(["operations"]);
    vec![
        ("EnvironmentReset", closed(reset)),
        ("EnvironmentStep", step),
        ("EnvironmentWait", closed(json!({ "wait": wait }))),
        ("EnvironmentBatch", batch),
        ("EnvironmentCall", object(&["function"], json!({ "id": text(), "function": function }))),
    ]
}

fn answers() -> Vec<(&'static str, Value)> {
    let count = json!({ "type": "integer", "minimum": 0 });
    let number = json!({ "type": "number" });
    let flag = json!({ "type": "boolean" });
    let maybe = json!({ "type": ["string", "null"] });
    let tools = many(json!({ "type": "object" }));
    let messages = many(json!({ "type": "object" }));
    let limits = json!({
        "turns": count, "tokens": count, "tokens_per_response": count, "misses": count,
        "seconds": { "type": ["number", "null"] }, "command_seconds": number,
    });
    let environment = json!({
        "name": text(), "rows": count, "limits": object(&["turns", "tokens"], limits),
        "tools": tools,
    });
    let failure = object(
        &["fault", "cause", "retry", "policy_may_be_at_fault"],
        json!({
            "fault": text(), "cause": text(), "retry": flag, "policy_may_be_at_fault": flag,
        }),
    );
    let tokens = object(&["input", "output"], json!({ "input": count, "output": count }));
    let score = json!({
        "valid": flag, "score": { "type": ["number", "null"] },
        "failure": { "oneOf": [{ "type": "null" }, failure] }, "grade": {}, "reason": text(),
        "turns": count, "tokens": tokens, "tool_seconds": number,
    });
    let states = json!({ "enum": ["starting", "ready", "stepping", "scoring", "done", "gone"] });
    let observation =
        object(&["messages"], json!({ "messages": messages, "tools": tools, "max_tokens": count }));
    let session = json!({
        "session": text(), "task": text(), "row": { "type": "object" }, "state": states,
        "step": count, "done": flag, "reason": maybe, "lease_seconds": number,
        "observation": observation, "message": { "type": "object" }, "failure": failure,
        "score": schema_ref("EnvironmentScore"),
    });
    vec![
        ("Environment", object(&["name", "rows", "limits", "tools"], environment)),
        (
            "EnvironmentSession",
            object(&["session", "task", "row", "state", "step", "done"], session),
        ),
        ("EnvironmentScore", object(&["valid", "score", "reason", "turns", "tokens"], score)),
    ]
}
