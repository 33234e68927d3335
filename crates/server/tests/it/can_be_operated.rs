//! Health, readiness, metrics, the audit log, and an orderly end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use episodes::{EpisodeOptions, ServedModel, Store};
use lis_server::{DataDirectory, OperationOptions, ServeOptions};
use model::SharedModel;
use reqwest::Method;
use sandbox::ByteSize;
use sandbox_testkit::Operation;
use serde_json::{Value, json};
use testkit::{ScriptedModel, Step};
use tokio::net::TcpStream;

use crate::support::{
    TestServer, bash, becomes, messages, until, with_server, with_stoppable_server,
};

async fn get(server: &TestServer, path: &str) -> (u16, String) {
    let response = server.request(Method::GET, path).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// The value of a metric.
fn sample(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn metrics_count_what_happens_and_need_the_key() {
    let options = ServeOptions { api_key: Some("secret".into()), ..ServeOptions::default() };
    with_server(options, async |server| {
        let (status, _) = get(server, "/metrics").await;
        assert_eq!(status, 401);
        let body = json!({ "templateID": "base" });
        let create = server.request(Method::POST, "/v2/sandboxes").bearer_auth("secret");
        assert_eq!(create.json(&body).send().await.unwrap().status(), 201);
        let metrics = server.request(Method::GET, "/metrics").bearer_auth("secret");
        let text = metrics.send().await.unwrap().text().await.unwrap();
        let prefix = "llm_in_sandbox_";
        for (name, expected) in [
            ("sandboxes", 1.0),
            ("sandboxes_created_total", 1.0),
            ("sandbox_create_seconds_count", 1.0),
            ("refused_total{reason=\"key\"}", 1.0),
            ("requests_total{route=\"control\",status=\"2xx\"}", 1.0),
        ] {
            assert_eq!(sample(&text, &format!("{prefix}{name}")), expected, "{name}");
        }
        assert!(sample(&text, "process_resident_memory_bytes") > 1e6);
        for method in [Method::TRACE, Method::POST] {
            let other = server.request(method.clone(), "/metrics").bearer_auth("secret");
            assert_eq!(other.send().await.unwrap().status(), 405, "{method}");
        }
    });
}

#[test]
fn readiness_says_why_not() {
    let options = ServeOptions { max_sandboxes: 1, ..ServeOptions::default() };
    with_server(options, async |server| {
        let (status, health) = get(server, "/health").await;
        assert_eq!((status, health.as_str()), (200, r#"{"status":"ok"}"#));
        assert_eq!(get(server, "/ready").await.0, 200);
        let _sandbox = server.create().await;
        let (status, body) = get(server, "/ready").await;
        assert_eq!(status, 503);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert!(body["reasons"][0].as_str().unwrap().contains("1 sandboxes"), "{body}");
    });
}

#[test]
fn a_full_disk_makes_the_server_not_ready() {
    let directory = tempfile::tempdir().unwrap();
    let operation =
        OperationOptions { sandbox_files: Some(directory.path().into()), ..Default::default() };
    let mut options = ServeOptions { operation, ..ServeOptions::default() };
    // More than any disk has.
    options.spec.disk_reserve = Some(ByteSize(1 << 60));
    with_server(options, async |server| {
        let (status, body) = get(server, "/ready").await;
        assert_eq!(status, 503);
        assert!(body.contains("have to stay free"), "{body}");
    });
}

#[test]
fn changes_and_refusals_are_in_the_audit_log_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let audit = Some(directory.path().to_owned());
    let operation = OperationOptions { audit, ..Default::default() };
    let api_key = Some("secret".into());
    let options = ServeOptions { api_key, operation, ..ServeOptions::default() };
    with_server(options, async |server| {
        let create = server.request(Method::POST, "/v2/sandboxes?x=secret").bearer_auth("secret");
        let create = create.header("X-Request-Id", "my-id").json(&json!({ "templateID": "base" }));
        let response = create.send().await.unwrap();
        assert_eq!(response.headers()["x-request-id"], "my-id");
        let created: Value = response.json().await.unwrap();
        let refused = server.request(Method::GET, "/sandboxes").bearer_auth("wrong-secret");
        assert_eq!(refused.send().await.unwrap().status(), 401);
        let read = server.request(Method::GET, "/sandboxes").bearer_auth("secret");
        assert_eq!(read.send().await.unwrap().status(), 200);
        let begun = Instant::now();
        let text = loop {
            let path = directory.path().join("audit.jsonl");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if text.lines().count() >= 2 {
                break text;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{text}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert!(!text.contains("secret"), "{text}");
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "reads are not audited: {text}");
        let [made, refused] = lines.as_slice() else { panic!("{text}") };
        assert_eq!(made["token"], "default");
        assert_eq!(made["sandbox"], created["sandboxID"]);
        assert_eq!((&made["status"], &made["request"]), (&json!(201), &json!("my-id")));
        assert_eq!(
            (&made["client"], &made["path"]),
            (&json!("127.0.0.1"), &json!("/v2/sandboxes"))
        );
        assert_eq!((&refused["status"], &refused["token"]), (&json!(401), &Value::Null));
    });
}

#[test]
fn an_audit_log_that_cannot_be_written_is_reported_and_stops_nothing() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("audit.jsonl")).unwrap();
    let audit = Some(directory.path().to_owned());
    let operation = OperationOptions { audit, ..Default::default() };
    with_server(ServeOptions { operation, ..ServeOptions::default() }, async |server| {
        let _sandbox = server.create().await;
        let begun = Instant::now();
        loop {
            let (status, body) = get(server, "/ready").await;
            assert_eq!(status, 200);
            if body.contains("audit log cannot be written") {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{body}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn streams_say_that_the_server_ends() {
    with_stoppable_server(ServeOptions::default(), async |server, stop| {
        let sandbox = server.create().await;
        let script = bash("echo started; sleep 600");
        let running = server.stream(&sandbox, "/process.Process/Start", &script).await;
        let watch = json!({ "path": "/tmp" });
        let watching = server.stream(&sandbox, "/filesystem.Filesystem/WatchDir", &watch).await;
        stop();
        for stream in [running, watching] {
            let bytes = tokio::time::timeout(Duration::from_secs(10), stream.bytes()).await;
            let all = messages(&bytes.unwrap().unwrap());
            let last = all.last().unwrap();
            assert_eq!(last["error"]["code"], "unavailable", "{all:?}");
            assert_eq!(last["error"]["message"], "the server is shutting down", "{all:?}");
        }
    });
}

/// Held results of removals keep the server in its shutdown.
#[test]
fn a_server_that_ends_accepts_no_connection_and_ends_in_time() {
    let (data, mut options) = (tempfile::tempdir().unwrap(), ServeOptions::default());
    let model = ScriptedModel::answering(|_| Step::Hang);
    let store = Arc::new(Store::open(data.path()).unwrap());
    let models = vec![ServedModel::new(SharedModel::new(model))];
    options.episodes = Some(EpisodeOptions::new(store, models));
    options.connections.grace = Duration::from_secs(8);
    with_stoppable_server(options, async |server, stop| {
        let _sandbox = server.create().await;
        let task = json!({ "task": "Wait" });
        let started = server.request(Method::POST, "/v1/episodes").json(&task).send().await;
        assert_eq!(started.unwrap().status(), 201);
        becomes(server, 2).await;
        server.runtime.faults.hold(Operation::Destroy);
        let begun = Instant::now();
        stop();
        server.runtime.faults.reached(Operation::Destroy).await;
        until("no connection", async || TcpStream::connect(server.address).await.is_err()).await;
        assert!(!server.ended.is_cancelled(), "it waits for its sandboxes");
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
        server.ended.cancelled().await;
        assert!(begun.elapsed() >= Duration::from_secs(6), "it gave up early");
        assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
        server.runtime.faults.release(Operation::Destroy);
        becomes(server, 0).await;
    });
}

#[test]
fn a_second_server_cannot_use_the_same_directory() {
    let data = tempfile::tempdir().unwrap();
    let open = || DataDirectory::open(data.path().to_owned());
    let first = open().unwrap();
    let operation = OperationOptions { data: Some(first), ..OperationOptions::default() };
    with_server(ServeOptions { operation, ..ServeOptions::default() }, async |server| {
        assert!(open().unwrap_err().to_string().contains("another server is using"));
        let sandbox = server.create().await;
        let path = format!("/sandboxes/{}/snapshots", sandbox.id);
        let saved = server.request(Method::POST, &path).json(&json!({})).send().await.unwrap();
        assert!([201, 501].contains(&saved.status().as_u16()));
    });
    // Its options, which have the lock, are gone with it.
    let again = open().unwrap();
    let operation = OperationOptions { data: Some(again), ..OperationOptions::default() };
    with_server(ServeOptions { operation, ..ServeOptions::default() }, async |server| {
        let listed = server.request(Method::GET, "/snapshots").send().await.unwrap();
        for snapshot in listed.json::<Value>().await.unwrap().as_array().unwrap() {
            let path = format!("/templates/{}", snapshot["snapshotID"].as_str().unwrap());
            server.request(Method::DELETE, &path).send().await.unwrap();
        }
    });
}
