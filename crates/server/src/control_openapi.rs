//! Describes the control plane: sandboxes, snapshots and templates in E2B's protocol.

use serde_json::{Value, json};

use crate::openapi::{Operation, list_of, schema_ref};

const SANDBOXES: &str = "sandboxes";

/// The routes.
pub(crate) fn operations() -> Vec<Operation> {
    [creation(), lifecycle(), observation(), others()].concat()
}

fn seconds() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": 9_007_199_254_740_991u64 })
}

fn creation() -> Vec<Operation> {
    let create = |path| {
        let summary = "Create a sandbox";
        Operation::post(path, SANDBOXES, summary)
            .header(
                "Idempotency-Key",
                json!({ "type": "string", "pattern": "^[ -~]{1,255}$" }),
                "a request that is sent again with it is answered as before, for a day",
            )
            .body(schema_ref("NewSandbox"))
            .answer(201, "the sandbox", schema_ref("Sandbox"))
            .refuses(&[404, 422, 501])
    };
    let filtered = |operation: Operation| {
        let text = json!({ "type": "string" });
        let states =
            json!({ "type": "string", "pattern": "^(running|paused)(,(running|paused))?$" });
        operation
            .query("metadata", text.clone())
            .query("state", states)
            .query("order", json!({ "enum": ["asc", "desc"] }))
            .query("startedAfter", json!({ "type": "string", "format": "date-time" }))
            .query("template", text)
            .answer(200, "the sandboxes", list_of("ListedSandbox"))
            .refuses(&[400])
    };
    let list = Operation::get("/sandboxes", SANDBOXES, "List sandboxes");
    let pages = Operation::get("/v2/sandboxes", SANDBOXES, "List sandboxes by pages")
        .query("limit", json!({ "type": "integer", "minimum": 1, "maximum": 100 }))
        .query("nextToken", json!({ "type": "string" }));
    vec![
        create("/sandboxes"),
        create("/v2/sandboxes"),
        filtered(list),
        filtered(pages),
        Operation::get("/sandboxes/{id}", SANDBOXES, "Describe a sandbox")
            .answer(200, "the sandbox", schema_ref("SandboxDetail"))
            .refuses(&[404]),
        Operation::delete("/sandboxes/{id}", SANDBOXES, "End a sandbox")
            .empty(204, "it has ended")
            .refuses(&[404]),
    ]
}

fn lifecycle() -> Vec<Operation> {
    let time = |required: bool| {
        let required = if required { json!(["timeout"]) } else { json!([]) };
        let properties = json!({ "timeout": seconds(), "memory": { "const": true } });
        json!({ "type": "object", "required": required, "properties": properties })
    };
    let bad = [404, 409, 501];
    let connect = |path| {
        Operation::post(path, SANDBOXES, "Use a sandbox, which continues if it is paused")
            .body(time(false))
            .answer(200, "it runs", schema_ref("Sandbox"))
            .answer(201, "it was paused and runs", schema_ref("Sandbox"))
            .refuses(&bad)
    };
    let object = |properties: Value| json!({ "type": "object", "properties": properties });
    vec![
        Operation::post("/sandboxes/{id}/timeout", SANDBOXES, "Set when a sandbox ends")
            .body(time(true))
            .empty(204, "done")
            .refuses(&bad),
        Operation::post("/sandboxes/{id}/refreshes", SANDBOXES, "Let a sandbox live longer")
            .body(object(json!({ "duration": seconds() })))
            .empty(204, "done")
            .refuses(&bad),
        connect("/sandboxes/{id}/connect"),
        connect("/v2/sandboxes/{id}/connect"),
        Operation::post("/sandboxes/{id}/pause", SANDBOXES, "Stop the processes of a sandbox")
            .body(object(json!({
                "memory": { "const": true },
                "requireHealthyGuest": { "type": "boolean" },
            })))
            .empty(204, "it is paused")
            .refuses(&bad),
        Operation::post("/sandboxes/{id}/resume", SANDBOXES, "Let a paused sandbox continue")
            .body(time(false))
            .answer(201, "it runs", schema_ref("Sandbox"))
            .refuses(&bad),
        Operation::post("/sandboxes/{id}/fork", SANDBOXES, "Copy a sandbox with its files")
            .body(object(json!({
                "timeout": seconds(),
                "count": { "type": "integer", "minimum": 1, "maximum": 100 },
            })))
            .answer(201, "a sandbox or an error for each copy", list_of("ForkResult"))
            .refuses(&bad),
        Operation::put("/sandboxes/{id}/network", SANDBOXES, "Set the network of a sandbox")
            .body(schema_ref("Network"))
            .empty(204, "it has this network")
            .refuses(&bad),
    ]
}

fn observation() -> Vec<Operation> {
    let logs = |path, schema| {
        Operation::get(path, SANDBOXES, "What happened to a sandbox")
            .query("limit", json!({ "type": "integer", "minimum": 0, "maximum": 1000 }))
            .query("direction", json!({ "enum": ["forward", "backward"] }))
            .query("level", schema_ref("LogLevel"))
            .query("search", json!({ "type": "string" }))
            .answer(200, "entries", schema)
            .refuses(&[400, 404])
    };
    let entries = list_of("LogEntry");
    let lines = json!({ "type": "array", "items": {
        "type": "object", "required": ["timestamp", "line"],
        "properties": { "timestamp": { "type": "string" }, "line": { "type": "string" } },
    } });
    let first = json!({
        "type": "object", "required": ["logs", "logEntries"],
        "properties": { "logs": lines, "logEntries": entries },
    });
    let second =
        json!({ "type": "object", "required": ["logs"], "properties": { "logs": entries } });
    let ids = json!({ "type": "string", "pattern": "^[a-z0-9]+(,[a-z0-9]+){0,99}$",
                      "description": "1 to 100 ids, separated by commas" });
    let all = json!({ "type": "object", "required": ["sandboxes"], "properties": {
        "sandboxes": { "type": "object", "additionalProperties": schema_ref("Metric") },
    } });
    vec![
        Operation::get("/sandboxes/metrics", SANDBOXES, "What several sandboxes use now")
            .required_query("sandbox_ids", ids)
            .answer(200, "the last sample of each", all)
            .refuses(&[400]),
        Operation::get("/sandboxes/{id}/metrics", SANDBOXES, "What a sandbox used")
            .query("start", seconds())
            .query("end", seconds())
            .answer(200, "samples, oldest first", list_of("Metric"))
            .refuses(&[400, 404]),
        logs("/sandboxes/{id}/logs", first).query("start", seconds()),
        logs("/v2/sandboxes/{id}/logs", second).query("cursor", seconds()),
    ]
}

fn others() -> Vec<Operation> {
    let text = || json!({ "type": "string" });
    let name = json!({
        "type": "object",
        "properties": { "name": text(), "memory": { "const": false } },
    });
    let alias = json!({
        "type": "object", "required": ["templateID", "public"],
        "properties": { "templateID": text(), "public": { "type": "boolean" } },
    });
    vec![
        Operation::post("/sandboxes/{id}/snapshots", "snapshots", "Save the files of a sandbox")
            .body(name)
            .answer(201, "the snapshot, which is a template", schema_ref("Snapshot"))
            .refuses(&[404, 409, 501, 507]),
        Operation::get("/snapshots", "snapshots", "List snapshots")
            .query("sandboxID", text())
            .query("name", text())
            .query("limit", json!({ "type": "integer", "minimum": 1, "maximum": 100 }))
            .query("nextToken", text())
            .answer(200, "the snapshots", list_of("Snapshot"))
            .refuses(&[400]),
        Operation::delete("/templates/{id}", "templates", "Remove a snapshot")
            .empty(204, "it is gone")
            .refuses(&[404]),
        Operation::get("/templates/aliases/{alias}", "templates", "Find a template by its name")
            .answer(200, "the template", alias)
            .refuses(&[404]),
        Operation::get("/openapi.json", "server", "This document").answer(
            200,
            "the document",
            json!({ "type": "object" }),
        ),
        Operation::get("/health", "server", "Whether the server runs").open().answer(
            200,
            "it does",
            json!({ "type": "object", "required": ["status"] }),
        ),
        Operation::get("/ready", "server", "Whether a sandbox could be created now")
            .open()
            .answer(200, "it could", json!({ "type": "object" }))
            .answer(503, "it could not, and why", json!({ "type": "object" })),
        Operation::get("/metrics", "server", "What the server does, in Prometheus' format")
            .answer_as(200, "the metrics", "text/plain", json!({ "type": "string" })),
    ]
}

/// The messages.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "integer", "minimum": 0 });
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let names = json!({ "type": "array", "items": { "type": "string" } });
    let flag = json!({ "type": "boolean" });
    let time = json!({ "type": "string", "format": "date-time" });
    let maybe = json!({ "type": ["string", "null"] });
    let object = |required: &[&str], properties: Value| json!({ "type": "object", "required": required, "properties": properties });
    let listed = json!({
        "templateID": text, "alias": text, "sandboxID": text, "clientID": text, "startedAt": time,
        "endAt": time, "cpuCount": number, "memoryMB": number, "diskSizeMB": number,
        "metadata": texts, "state": { "enum": ["running", "paused"] }, "envdVersion": text,
    });
    let required = ["templateID", "sandboxID", "startedAt", "endAt", "state", "envdVersion"];
    let mut detail = listed.clone();
    detail["allowInternetAccess"] = flag.clone();
    detail["network"] = schema_ref("Network");
    detail["lifecycle"] = object(
        &["autoResume", "onTimeout"],
        json!({ "autoResume": flag, "onTimeout": { "enum": ["kill", "pause"] } }),
    );
    detail["domain"] = maybe.clone();
    detail["envdAccessToken"] = text.clone();
    let metric = [
        "timestampUnix",
        "cpuCount",
        "cpuUsedPct",
        "memUsed",
        "memTotal",
        "memCache",
        "diskUsed",
        "diskTotal",
    ];
    let properties: serde_json::Map<_, _> =
        metric.iter().map(|name| ((*name).to_owned(), json!({ "type": "number" }))).collect();
    let network = json!({
        "allowOut": names, "denyOut": names, "allowPublicTraffic": flag, "maskRequestHost": text,
        "allow_internet_access": flag,
    });
    let new = json!({
        "templateID": text, "timeout": number, "autoPause": flag, "autoPauseMemory": flag,
        "autoResume": object(&["enabled"], json!({ "enabled": flag })), "secure": flag,
        "allow_internet_access": flag, "network": schema_ref("Network"), "metadata": texts,
        "envVars": texts,
    });
    let sandbox = json!({
        "templateID": text, "sandboxID": text, "clientID": text, "envdVersion": text,
        "envdAccessToken": text, "trafficAccessToken": maybe, "domain": maybe,
    });
    let fork = json!({ "sandbox": schema_ref("Sandbox"), "error": schema_ref("Error") });
    let entry = json!({
        "timestamp": time, "level": schema_ref("LogLevel"), "message": text, "fields": texts,
    });
    vec![
        ("NewSandbox", object(&["templateID"], new)),
        ("Sandbox", object(&["templateID", "sandboxID", "clientID", "envdVersion"], sandbox)),
        ("ListedSandbox", object(&required, listed)),
        ("SandboxDetail", object(&required, detail)),
        ("Network", object(&[], network)),
        ("ForkResult", object(&[], fork)),
        ("Metric", object(&metric, Value::Object(properties))),
        ("LogLevel", json!({ "enum": ["debug", "info", "warn", "error"] })),
        ("LogEntry", object(&["timestamp", "level", "message", "fields"], entry)),
        (
            "Snapshot",
            object(&["snapshotID", "names"], json!({ "snapshotID": text, "names": names })),
        ),
    ]
}
