//! Describes requests to one sandbox: programs and files in E2B's protocol.

use serde_json::{Value, json};

use crate::openapi::{Operation, schema_ref};

/// Requests that are answered for the sandbox they name.
pub(crate) fn operations() -> Vec<Operation> {
    let mut all = files();
    all.extend(procedures());
    all.into_iter().map(Operation::in_sandbox).collect()
}

fn files() -> Vec<Operation> {
    let text = || json!({ "type": "string" });
    let addressed = |operation: Operation| {
        operation
            .query("path", text())
            .query("username", text())
            .query("signature", text())
            .query("signature_expiration", json!({ "type": "integer" }))
    };
    let binary = || json!({ "type": "string", "format": "binary" });
    let read = Operation::get("/files", "files", "Read a file");
    let write = Operation::post("/files", "files", "Write files");
    let form = json!({ "type": "object", "properties": { "file": binary() } });
    let written = json!({ "type": "array", "items": {
        "type": "object", "required": ["path", "type"],
        "properties": { "path": text(), "name": text(), "type": { "const": "file" } },
    } });
    vec![
        addressed(read)
            .answer_as(200, "its content", "application/octet-stream", binary())
            .refuses(&[400, 404, 406]),
        addressed(write)
            .body_as("application/octet-stream", binary())
            .body_as("multipart/form-data", form)
            .answer(200, "the files", written)
            .refuses(&[400, 404, 504, 507]),
        Operation::get("/envs", "files", "The variables of a sandbox's programs").answer(
            200,
            "variables",
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        ),
    ]
}

/// Procedures of the Connect protocol: with one message each way, or with a stream of them.
fn procedures() -> Vec<Operation> {
    let bad = [400, 404, 409, 501, 507];
    let unary = |path, tag, summary, message: &str, answer: &str| {
        Operation::post(path, tag, summary)
            .body(schema_ref(message))
            .answer(200, "done", schema_ref(answer))
            .refuses(&bad)
    };
    let stream = |path, tag, summary| {
        let kind = "application/connect+json";
        let messages = json!({ "type": "string", "format": "binary",
                               "description": "messages with their length in front" });
        Operation::post(path, tag, summary).body_as(kind, messages.clone()).answer_as(
            200,
            "messages; the last one says how it ended",
            kind,
            messages,
        )
    };
    let (process, file) = ("programs", "files");
    vec![
        stream("/process.Process/Start", process, "Start a program and follow it"),
        stream("/process.Process/Connect", process, "Follow a program"),
        stream("/process.Process/StreamInput", process, "Send input to a program"),
        unary("/process.Process/List", process, "List programs", "Empty", "Programs"),
        unary("/process.Process/Update", process, "Resize a terminal", "ProgramRequest", "Empty"),
        unary("/process.Process/SendInput", process, "Send input", "ProgramRequest", "Empty"),
        unary("/process.Process/SendSignal", process, "Send a signal", "ProgramRequest", "Empty"),
        unary("/process.Process/CloseStdin", process, "End the input", "ProgramRequest", "Empty"),
        unary("/filesystem.Filesystem/Stat", file, "Describe a file", "FileRequest", "Entry"),
        unary("/filesystem.Filesystem/MakeDir", file, "Create a directory", "FileRequest", "Entry"),
        unary("/filesystem.Filesystem/Move", file, "Move a file", "FileRequest", "Entry"),
        unary("/filesystem.Filesystem/Remove", file, "Remove a file", "FileRequest", "Empty"),
        unary("/filesystem.Filesystem/ListDir", file, "List files", "FileRequest", "Entries"),
        stream("/filesystem.Filesystem/WatchDir", file, "Follow changes of a directory"),
        unary(
            "/filesystem.Filesystem/CreateWatcher",
            file,
            "Watch a directory",
            "FileRequest",
            "Watcher",
        ),
        unary(
            "/filesystem.Filesystem/GetWatcherEvents",
            file,
            "Changes since the last request",
            "FileRequest",
            "Events",
        ),
        unary(
            "/filesystem.Filesystem/RemoveWatcher",
            file,
            "Stop watching",
            "FileRequest",
            "Empty",
        ),
    ]
}

/// The messages.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let text = json!({ "type": "string" });
    let flag = json!({ "type": "boolean" });
    let size = json!({ "type": "integer", "minimum": 0, "maximum": 65535 });
    let object = |properties: Value| json!({ "type": "object", "properties": properties });
    let bytes = json!({ "type": "string", "contentEncoding": "base64" });
    let terminal = object(json!({ "size": object(json!({ "cols": size, "rows": size })) }));
    let many = |schema: Value| json!({ "type": "array", "items": schema });
    let file = json!({
        "path": text, "source": text, "destination": text, "recursive": flag, "watcherId": text,
        "includeEntry": flag, "depth": { "type": "integer", "minimum": 0, "maximum": 4_294_967_295u32 },
    });
    let number = json!({ "type": "integer", "minimum": 0, "maximum": 4_294_967_295u32 });
    let selector = object(json!({ "pid": number, "tag": text }));
    let program = json!({
        "process": selector,
        "input": object(json!({ "stdin": bytes, "pty": bytes })),
        "pty": terminal,
        "signal": { "enum": ["SIGNAL_SIGTERM", "SIGNAL_SIGKILL"] },
    });
    let info = object(json!({
        "name": text, "type": text, "path": text, "size": text, "mode": { "type": "integer" },
        "permissions": text, "owner": text, "group": text, "modifiedTime": text,
        "symlinkTarget": text,
    }));
    let running = object(json!({
        "config": { "type": "object" }, "pid": number, "tag": text,
    }));
    let event = object(json!({ "name": text, "type": text, "entry": info }));
    vec![
        ("Empty", json!({ "type": "object" })),
        ("ProgramRequest", object(program)),
        ("Programs", object(json!({ "processes": many(running) }))),
        ("FileRequest", object(file)),
        ("Entry", object(json!({ "entry": info }))),
        ("Entries", object(json!({ "entries": many(info) }))),
        ("Watcher", object(json!({ "watcherId": text }))),
        ("Events", object(json!({ "events": many(event) }))),
    ]
}
