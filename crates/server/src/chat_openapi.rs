//! Describes OpenAI's protocol: chat completions, completions, models and files.

use serde_json::{Value, json};

use crate::openapi::{Operation, list_of, schema_ref};

/// The routes.
pub(crate) fn operations() -> Vec<Operation> {
    [completions(), models(), files()].concat()
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn completions() -> Vec<Operation> {
    let bad = [404, 408, 409, 415, 500, 501, 502, 503, 507];
    let chat = "Answer a conversation, by a model that works in a sandbox or as its server does";
    let choice = json!({ "type": "string", "pattern": "^(new|[A-Za-z0-9]{8,64})$" });
    vec![
        Operation::post("/v1/chat/completions", "chat", chat)
            .header("x-sandbox-id", choice, "as the field `sandbox`")
            .body(schema_ref("ChatRequest"))
            .answer(200, "the answer; with `stream` its chunks", schema_ref("ChatAnswer"))
            .events("")
            .refuses(&bad),
        Operation::post("/v1/completions", "chat", "Continue a prompt, as the model's server does")
            .body(json!({ "type": "object", "properties": { "model": text() } }))
            .answer(200, "what the model's server answers", json!({ "type": "object" }))
            .events("")
            .refuses(&bad),
    ]
}

fn models() -> Vec<Operation> {
    let list = object(
        &["object", "data"],
        json!({ "object": { "const": "list" }, "data": list_of("ChatModel") }),
    );
    vec![
        Operation::get("/v1/models", "chat", "List models")
            .answer(200, "the models", list)
            .refuses(&[501, 502, 503]),
        Operation::get("/v1/models/{*name}", "chat", "Describe a model")
            .answer(200, "the model", schema_ref("ChatModel"))
            .refuses(&[404, 501, 502, 503]),
    ]
}

fn files() -> Vec<Operation> {
    let binary = || json!({ "type": "string", "format": "binary" });
    let form = object(
        &["file", "purpose"],
        json!({
            "file": binary(),
            "purpose": { "enum": ["user_data", "assistants", "vision"] },
            "expires_after[anchor]": { "const": "created_at" },
            "expires_after[seconds]": { "type": "integer", "minimum": 3600, "maximum": 2_592_000 },
        }),
    );
    let maybe = json!({ "type": ["string", "null"] });
    let list = object(
        &["object", "data", "has_more"],
        json!({
            "object": { "const": "list" }, "data": list_of("StoredFile"), "first_id": maybe,
            "last_id": maybe, "has_more": { "type": "boolean" },
        }),
    );
    let deleted = object(
        &["id", "object", "deleted"],
        json!({ "id": text(), "object": { "const": "file" }, "deleted": { "const": true } }),
    );
    let tag = "stored files";
    vec![
        Operation::post("/v1/files", tag, "Store a file")
            .body_as("multipart/form-data", form)
            .answer(200, "the file", schema_ref("StoredFile"))
            .refuses(&[400, 408, 413, 415, 501, 507]),
        Operation::get("/v1/files", tag, "List stored files")
            .query("after", text())
            .query("limit", json!({ "type": "integer", "minimum": 1, "maximum": 10_000 }))
            .query("order", json!({ "enum": ["asc", "desc"] }))
            .query("purpose", text())
            .answer(200, "a page", list)
            .refuses(&[400, 404, 501]),
        Operation::get("/v1/files/{id}", tag, "Describe a stored file")
            .answer(200, "the file", schema_ref("StoredFile"))
            .refuses(&[404, 501]),
        Operation::delete("/v1/files/{id}", tag, "Delete a stored file")
            .answer(200, "it is gone", deleted)
            .refuses(&[404, 501]),
        Operation::get("/v1/files/{id}/content", tag, "Read a stored file")
            .answer_as(200, "its content", "application/octet-stream", binary())
            .refuses(&[404, 501]),
    ]
}

/// The messages.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let count = json!({ "type": "integer", "minimum": 0 });
    let model = json!({
        "id": text(), "object": { "const": "model" }, "created": count, "owned_by": text(),
    });
    let file = json!({
        "id": text(), "object": { "const": "file" }, "bytes": count, "created_at": count,
        "expires_at": { "type": ["integer", "null"] }, "filename": text(), "purpose": text(),
        "status": { "const": "processed" },
    });
    let message = object(&["role"], json!({ "role": text(), "content": text() }));
    let choice = json!({
        "index": count, "message": message, "logprobs": {}, "finish_reason": text(),
    });
    let answer = json!({
        "id": text(), "object": { "const": "chat.completion" }, "created": count, "model": text(),
        "choices": { "type": "array", "items": object(&["message"], choice) },
        "usage": { "type": "object" }, "episode": schema_ref("ChatEpisode"),
    });
    let sandbox = object(&["id", "expires_at"], json!({ "id": text(), "expires_at": count }));
    let made = json!({
        "path": text(), "id": text(), "filename": text(), "bytes": count, "url": text(),
        "error": text(),
    });
    let episode = json!({
        "id": text(), "outcome": text(), "turns": count, "answer": { "type": ["string", "null"] },
        "files": { "type": "array", "items": object(&["path"], made) },
        "files_error": { "type": ["string", "null"] },
        "sandbox": { "oneOf": [{ "type": "null" }, sandbox] },
    });
    vec![
        ("ChatRequest", request()),
        ("ChatAnswer", object(&["choices"], answer)),
        ("ChatEpisode", object(&["id", "outcome", "turns", "files"], episode)),
        ("ChatModel", object(&["id"], model)),
        (
            "StoredFile",
            object(&["id", "object", "bytes", "created_at", "filename", "purpose"], file),
        ),
    ]
}

/// A request that is answered in a sandbox. What is passed on may say more, as far as the model's server understands it.
fn request() -> Value {
    let at_least = |least: i64| json!({ "type": "integer", "minimum": least });
    let between =
        |least: f64, most: f64| json!({ "type": "number", "minimum": least, "maximum": most });
    let file = json!({ "file_id": text(), "file_data": text(), "filename": text() });
    let image = object(&["url"], json!({ "url": text() }));
    let parts = json!({ "type": "array", "items": object(&["type"], json!({
        "type": { "enum": ["text", "file", "image_url"] }, "text": text(),
        "file": object(&[], file), "image_url": image,
    })) });
    let message = json!({
        "role": { "enum": ["system", "developer", "user", "assistant"] },
        "content": { "oneOf": [text(), parts] },
    });
    let properties = json!({
        "model": text(),
        "messages": { "type": "array", "minItems": 1, "items": object(&["role", "content"], message) },
        "stream": { "type": "boolean" },
        "stream_options": object(&[], json!({ "include_usage": { "type": "boolean" } })),
        "max_completion_tokens": at_least(1), "max_tokens": at_least(1),
        "temperature": between(0.0, 2.0), "top_p": between(0.0, 1.0), "min_p": between(0.0, 1.0),
        "repetition_penalty": between(0.01, 10.0), "top_k": at_least(-1),
        "seed": { "type": "integer" }, "n": { "const": 1 },
        "sandbox": { "type": "string", "pattern": "^(new|[A-Za-z0-9]{8,64})$" },
        "metadata": {
            "type": "object", "maxProperties": 16,
            "additionalProperties": { "type": "string", "maxLength": 512 },
        },
        "user": text(), "safety_identifier": text(), "prompt_cache_key": text(),
        "parallel_tool_calls": { "type": "boolean" },
    });
    object(&["messages"], properties)
}
