//! Malformed and oversized requests get a clear answer, and nothing else changes.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use lis_server::ServeOptions;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{bash, messages, with_server};

#[test]
fn malformed_requests_are_refused_with_a_reason() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let own = format!("/sandboxes/{}", sandbox.id);
        let cases: Vec<(Method, String, Vec<u8>, u16)> = vec![
            (Method::POST, "/v2/sandboxes".into(), b"{".to_vec(), 400),
            (Method::POST, "/v2/sandboxes".into(), b"{}".to_vec(), 400),
            (Method::POST, "/v2/sandboxes".into(), b"[1]".to_vec(), 400),
            (Method::POST, "/v2/sandboxes".into(), b"\xff\xfe".to_vec(), 400),
            (Method::POST, "/v2/sandboxes".into(), vec![b'['; 50_000], 400),
            (Method::POST, "/v2/sandboxes".into(), vec![b'['; 200_000], 413),
            (Method::POST, "/v2/sandboxes".into(), vec![b' '; 9 << 20], 413),
            (
                Method::POST,
                "/v2/sandboxes".into(),
                json_bytes(&json!({ "templateID": "base", "timeout": -1 })),
                400,
            ),
            (
                Method::POST,
                "/v2/sandboxes".into(),
                json_bytes(&json!({ "templateID": "base", "envVars": { "A=B": "1" } })),
                400,
            ),
            (
                Method::POST,
                "/v2/sandboxes".into(),
                json_bytes(
                    &json!({ "templateID": "base", "volumeMounts": [{ "name": "v", "path": "/v" }] }),
                ),
                501,
            ),
            (Method::POST, format!("{own}/fork"), json_bytes(&json!({ "count": 0 })), 400),
            (
                Method::POST,
                format!("{own}/fork"),
                json_bytes(&json!({ "count": 4_000_000_000u32 })),
                400,
            ),
            (Method::POST, format!("{own}/snapshots"), json_bytes(&json!({ "name": "../x" })), 404),
            (Method::POST, format!("{own}/snapshots"), json_bytes(&json!({ "name": "base" })), 400),
            (Method::POST, format!("{own}/resume"), Vec::new(), 409),
            (Method::GET, "/v2/sandboxes?limit=0".into(), Vec::new(), 400),
            (Method::GET, "/v2/sandboxes?limit=101".into(), Vec::new(), 400),
            (Method::GET, "/v2/sandboxes?startedAfter=yesterday".into(), Vec::new(), 400),
            (Method::GET, "/sandboxes/nope".into(), Vec::new(), 404),
            (Method::DELETE, "/templates/base".into(), Vec::new(), 404),
            (Method::GET, "/files?path=x&signature=v1_x".into(), Vec::new(), 401),
            (Method::PATCH, "/nowhere".into(), Vec::new(), 501),
            (Method::PATCH, "/v2/sandboxes".into(), Vec::new(), 405),
            (Method::GET, format!("{own}/pause"), Vec::new(), 405),
            (Method::GET, "/v2/sandboxes?nextToken=x".into(), Vec::new(), 400),
        ];
        for (method, path, body, expected) in cases {
            let request = server.request(method.clone(), &path).body(body);
            let request = request.header("Content-Type", "application/json");
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            let text = response.text().await.unwrap();
            assert_eq!(status, expected, "{method} {path}: {text}");
            let value: Value = serde_json::from_str(&text).unwrap();
            assert!(value["code"] == expected && value["message"].is_string(), "{text}");
        }
        assert_eq!(server.call(&sandbox, "/process.Process/List", &json!({})).await.status(), 200);
    });
}

fn json_bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[test]
fn procedures_refuse_what_they_cannot_do() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let cases = [
            ("/process.Process/Nothing", json!({}), 501, "unimplemented"),
            (
                "/process.Process/SendSignal",
                json!({ "process": { "pid": 1 }, "signal": 9 }),
                404,
                "not_found",
            ),
            (
                "/process.Process/SendSignal",
                json!({ "process": {}, "signal": "SIGNAL_SIGKILL" }),
                400,
                "invalid_argument",
            ),
            (
                "/process.Process/SendInput",
                json!({ "process": { "pid": -5 } }),
                400,
                "invalid_argument",
            ),
            ("/filesystem.Filesystem/Stat", json!({ "path": "/nope" }), 404, "not_found"),
            ("/filesystem.Filesystem/Stat", json!({ "path": 5 }), 400, "invalid_argument"),
            ("/filesystem.Filesystem/MakeDir", json!({ "path": "/tmp" }), 409, "already_exists"),
            (
                "/filesystem.Filesystem/ListDir",
                json!({ "path": "/etc/passwd" }),
                400,
                "invalid_argument",
            ),
            (
                "/filesystem.Filesystem/GetWatcherEvents",
                json!({ "watcherId": "x" }),
                404,
                "not_found",
            ),
        ];
        for (procedure, message, status, code) in cases {
            let response = server.call(&sandbox, procedure, &message).await;
            let found = response.status().as_u16();
            let value: Value = response.json().await.unwrap();
            assert_eq!(
                (found, value["code"].as_str().unwrap()),
                (status, code),
                "{procedure} {message}"
            );
        }
        let streams = [
            ("/process.Process/Start", json!({ "process": { "cmd": "" } }), "invalid_argument"),
            ("/process.Process/Start", json!({ "process": { "cmd": "a\0b" } }), "invalid_argument"),
            (
                "/process.Process/Start",
                json!({ "process": { "cmd": "ls", "cwd": "/nope" } }),
                "invalid_argument",
            ),
            ("/process.Process/Connect", json!({ "process": { "pid": 4242 } }), "not_found"),
            ("/filesystem.Filesystem/WatchDir", json!({ "path": "/nope" }), "not_found"),
        ];
        for (procedure, message, code) in streams {
            let body = server.stream(&sandbox, procedure, &message).await.bytes().await.unwrap();
            let all = messages(&body);
            assert_eq!(all.last().unwrap()["error"]["code"], code, "{procedure} {message} {all:?}");
        }
        // An unknown user is refused before anything runs.
        let request =
            server.to(&sandbox, Method::GET, "/files?path=/etc/hostname&username=nobody-here");
        assert_eq!(request.send().await.unwrap().status(), 401);
    });
}

#[test]
fn an_upload_that_is_cut_off_leaves_the_old_file() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let path = "/files?path=/tmp/f&username=root";
        let send = |body: Vec<u8>| server.to(&sandbox, Method::POST, path).body(body);
        let binary = "application/octet-stream";
        let whole = send(b"old".to_vec()).header("Content-Type", binary).send().await.unwrap();
        assert_eq!(whole.status(), 200);
        let halves = futures_util::stream::iter([Ok(vec![b'x'; 100_000]), Err("gone")]);
        let request = server.to(&sandbox, Method::POST, path).header("Content-Type", binary);
        assert!(request.body(reqwest::Body::wrap_stream(halves)).send().await.is_err());
        let mut cut = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03".to_vec();
        cut.extend_from_slice(&[0x4b, 0x4c]);
        let request = send(cut).header("Content-Type", binary).header("Content-Encoding", "gzip");
        assert!(!request.send().await.unwrap().status().is_success());
        let read = server.to(&sandbox, Method::GET, path).send().await.unwrap();
        assert_eq!(read.bytes().await.unwrap().as_ref(), b"old");
        let list = json!({ "path": "/tmp" });
        let list = server.call(&sandbox, "/filesystem.Filesystem/ListDir", &list).await;
        let list: Value = list.json().await.unwrap();
        assert_eq!(list["entries"].as_array().unwrap().len(), 1, "{list}");
    });
}

#[test]
fn output_is_not_lost_when_a_client_goes_away() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let script = "for i in $(seq 1 50); do printf '%04d\\n' $i; sleep 0.01; done";
        let mut response = server.stream(&sandbox, "/process.Process/Start", &bash(script)).await;
        let first = response.chunk().await.unwrap().unwrap();
        let pid =
            messages(&first[..first.len().min(5 + first[4] as usize)])[0]["event"]["start"]["pid"]
                .clone();
        drop(response);
        let connect = json!({ "process": { "pid": pid } });
        let request = server.stream(&sandbox, "/process.Process/Connect", &connect);
        drop(tokio::time::timeout(std::time::Duration::from_millis(100), request).await);
        let from_start = server
            .to(&sandbox, Method::POST, "/process.Process/Connect")
            .header("Content-Type", "application/connect+json")
            .header("X-Output-Offset", "0");
        let body = connect.to_string().into_bytes();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let from_start = from_start.body([&[0], &length[..], &body].concat()).send().await.unwrap();
        assert_eq!(from_start.headers()["x-output-offset"], "0");
        let all = messages(&from_start.bytes().await.unwrap());
        let text: Vec<u8> = all
            .iter()
            .filter_map(|message| message["event"]["data"]["stdout"].as_str())
            .flat_map(|text| {
                base64::Engine::decode(&base64::prelude::BASE64_STANDARD, text).unwrap()
            })
            .collect();
        let expected: String = (1..=50).map(|n| format!("{n:04}\n")).collect();
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert!(all.iter().any(|message| message["event"]["end"]["exitCode"] == 0), "{all:?}");
    });
}

#[test]
fn the_longest_lifetimes_are_clamped() {
    let options =
        ServeOptions { max_lifetime: std::time::Duration::MAX, ..ServeOptions::default() };
    with_server(options, async |server| {
        let body = json!({ "templateID": "base", "timeout": u64::MAX });
        let created = server.request(Method::POST, "/v2/sandboxes").json(&body).send().await;
        let created = created.unwrap();
        assert_eq!(created.status(), 201);
        let created: Value = created.json().await.unwrap();
        let path = format!("/sandboxes/{}", created["sandboxID"].as_str().unwrap());
        let requests = [
            ("timeout", json!({ "timeout": u64::MAX }), 204),
            ("refreshes", json!({ "duration": u64::MAX }), 204),
            ("connect", json!({ "timeout": u64::MAX }), 200),
            ("fork", json!({ "timeout": u64::MAX }), 201),
        ];
        for (name, body, expected) in requests {
            let request = server.request(Method::POST, &format!("{path}/{name}")).json(&body);
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), expected, "{name}");
        }
        let info = server.request(Method::GET, &path).send().await.unwrap();
        let info: Value = info.json().await.unwrap();
        assert!(info["endAt"].as_str().unwrap() > "2030", "{info}");
    });
}

#[test]
fn a_snapshot_replaces_only_snapshots() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let spec = sandbox::Spec::default();
        let own = sandbox::Runtime::create(&*server.runtime, &spec).await.unwrap();
        sandbox::Sandbox::snapshot(&own, "mine").await.unwrap();
        sandbox::Sandbox::destroy(own).await.unwrap();
        let path = format!("/sandboxes/{}/snapshots", sandbox.id);
        for (name, expected) in [("mine", 409), ("theirs", 201), ("theirs", 201)] {
            let request = server.request(Method::POST, &path).json(&json!({ "name": name }));
            assert_eq!(request.send().await.unwrap().status(), expected, "{name}");
        }
    });
}

#[test]
fn an_input_stream_is_answered_with_a_stream() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let start = json!({ "process": { "cmd": "/bin/cat" }, "tag": "c" });
        let output = server.stream(&sandbox, "/process.Process/Start", &start).await;
        let unknown = json!({ "start": { "process": { "tag": "x" } } });
        let refused = server.stream(&sandbox, "/process.Process/StreamInput", &unknown).await;
        let refused = messages(&refused.bytes().await.unwrap());
        assert_eq!(refused.last().unwrap()["error"]["code"], "not_found");
        let both = json!({
            "start": { "process": { "tag": "c" } },
            "data": { "input": { "stdin": "aGVsbG8=" } },
        });
        let sent = server.stream(&sandbox, "/process.Process/StreamInput", &both).await;
        assert_eq!(sent.headers()["content-type"], "application/connect+json");
        assert_eq!(messages(&sent.bytes().await.unwrap()), [json!({}), json!({})]);
        let close = json!({ "process": { "tag": "c" } });
        server.call(&sandbox, "/process.Process/CloseStdin", &close).await;
        let all = messages(&output.bytes().await.unwrap());
        let has = |message: &Value| message["event"]["data"]["stdout"] == "aGVsbG8=";
        assert!(all.iter().any(has), "{all:?}");
    });
}

#[test]
fn forms_are_neither_endless_nor_compressed() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let path = "/files?username=root&path=/tmp/form";
        let form = || {
            let request = server.to(&sandbox, Method::POST, path);
            request.header("Content-Type", "multipart/form-data; boundary=b")
        };
        let head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n";
        let endless = [head.as_bytes(), b"X: ", &vec![b'x'; 1 << 20]].concat();
        let response = form().body(endless).send().await.unwrap();
        assert_eq!(response.status(), 400);
        let whole = [head.as_bytes(), b"\r\n", &vec![b'x'; 1 << 20], b"\r\n--b--\r\n"].concat();
        let packed = form().header("Content-Encoding", "gzip").body(whole.clone());
        assert_eq!(packed.send().await.unwrap().status(), 400);
        assert_eq!(form().body(whole).send().await.unwrap().status(), 200);
        let read = server.to(&sandbox, Method::GET, path).send().await.unwrap();
        assert_eq!(read.bytes().await.unwrap().len(), 1 << 20);
    });
}

#[test]
fn memory_for_clients_is_refused_rather_than_exceeded() {
    let options = ServeOptions { kept_memory: 6 << 20, ..ServeOptions::default() };
    with_server(options, async |server| {
        let sandbox = server.create().await;
        let program = json!({ "process": { "cmd": "/bin/sleep", "args": ["600"] }, "tag": "s" });
        let mut running = Vec::new();
        let last = loop {
            let mut stream = server.stream(&sandbox, "/process.Process/Start", &program).await;
            let first = stream.chunk().await.unwrap().unwrap();
            let first = messages(&first).remove(0);
            if first["error"].is_object() {
                break first;
            }
            running.push(stream);
            assert!(running.len() < 100, "there is no limit");
        };
        assert_eq!(last["error"]["code"], "resource_exhausted", "{last}");
        let list = json!({ "path": "/usr/bin" });
        let refused = server.call(&sandbox, "/filesystem.Filesystem/ListDir", &list).await;
        assert_eq!(refused.status(), 429);
        let input =
            json!({ "process": { "tag": "s" }, "input": { "stdin": "eHh4".repeat(1 << 17) } });
        let input = server.call(&sandbox, "/process.Process/SendInput", &input).await;
        assert_eq!(input.status(), 429);
        // What is given back can be used again.
        for _ in 0..running.len() {
            let kill = json!({ "process": { "tag": "s" }, "signal": "SIGNAL_SIGKILL" });
            server.call(&sandbox, "/process.Process/SendSignal", &kill).await;
        }
        drop(running);
        let listed = server.call(&sandbox, "/filesystem.Filesystem/ListDir", &list).await;
        assert_eq!(listed.status(), 200);
        let listed: Value = listed.json().await.unwrap();
        assert!(!listed["entries"].as_array().unwrap().is_empty());
    });
}

#[test]
fn events_of_a_poll_that_was_left_reach_the_next_one() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        // With a description of each file: to make the answer takes long.
        let watch = json!({ "path": "/tmp", "includeEntry": true });
        let created = server.call(&sandbox, "/filesystem.Filesystem/CreateWatcher", &watch).await;
        let created: Value = created.json().await.unwrap();
        let poll = json!({ "watcherId": created["watcherId"] });
        let script = "for i in $(seq 200); do : > /tmp/$i; done";
        let writing = server.stream(&sandbox, "/process.Process/Start", &bash(script)).await;
        writing.bytes().await.unwrap();
        let path = "/filesystem.Filesystem/GetWatcherEvents";
        let mut seen = BTreeSet::new();
        let mut note = |events: Value| {
            let events = events["events"].as_array().unwrap().clone();
            seen.extend(events.iter().map(|event| event["name"].as_str().unwrap().to_owned()));
            seen.len()
        };
        let left = server.to(&sandbox, Method::POST, path).json(&poll);
        let left = left.timeout(Duration::from_millis(20)).send().await;
        if let Ok(events) = left {
            note(events.json().await.unwrap());
        }
        let begun = Instant::now();
        while note(server.call(&sandbox, path, &poll).await.json().await.unwrap()) < 200 {
            assert!(begun.elapsed() < Duration::from_secs(10), "events were lost");
        }
    });
}
