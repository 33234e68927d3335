//! Episodes over HTTP: started, followed, cut off and continued, cancelled, forked; and clients that mean no good.

use std::{sync::Arc, time::Duration};

use episodes::{EpisodeOptions, ServedModel, Store};
use lis_server::{EachSandbox, Quotas, ServeOptions, Token, Tokens};
use model::SharedModel;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use testkit::{Call, ScriptedModel, Step, bash, calls, submit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use trajectory::Message;

use crate::support::{TestServer, with_server};

/// Serves episodes of a model that computes each response from the number of its turn, from 1.
fn with_model<S: Into<Step>>(
    answer: impl Fn(usize) -> S + Send + Sync + 'static,
    options: ServeOptions,
    test: impl AsyncFnOnce(&TestServer),
) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(dir.path()).unwrap());
    let model = ScriptedModel::answering(move |request| {
        let said = request.messages.iter().filter(|m| matches!(m, Message::Assistant(_)));
        answer(said.count() + 1)
    });
    let models = vec![ServedModel::new(SharedModel::new(model))];
    let episodes = Some(EpisodeOptions::new(store, models));
    with_server(ServeOptions { episodes, ..options }, test);
}

impl TestServer {
    async fn fetch(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    async fn post_json(&self, path: &str, body: &Value) -> (u16, Value) {
        let response = self.request(Method::POST, path).json(body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn start_episode(&self, body: &Value) -> String {
        let (status, info) = self.post_json("/v1/episodes", body).await;
        assert_eq!((status, &info["state"]), (201, &json!("running")), "{info}");
        format!("/v1/episodes/{}", info["id"].as_str().unwrap())
    }

    async fn json(&self, path: &str) -> Value {
        let response = self.fetch(path).await;
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    }

    /// The events of a stream up to its end.
    async fn events(&self, path: &str) -> Vec<(u64, Value)> {
        let response = self.fetch(path).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        events(&response.text().await.unwrap())
    }
}

/// The whole events in a text.
fn events(text: &str) -> Vec<(u64, Value)> {
    let whole = text.rfind("\n\n").map_or("", |end| &text[..end + 2]);
    let parts = whole.split("\n\n").filter(|part| part.starts_with("id: "));
    let event = |part: &str| {
        let (id, data) = part.split_once("\ndata: ").unwrap();
        (id.trim_start_matches("id: ").parse().unwrap(), serde_json::from_str(data).unwrap())
    };
    parts.map(event).collect()
}

#[test]
fn an_episode_is_followed_to_its_answer() {
    let model = |turn| match turn {
        1 => bash("sort /testbed/input/list > /testbed/output/answer.txt"),
        _ => submit(),
    };
    with_model(model, ServeOptions::default(), async |server| {
        let body = json!({
            "task": "Sort the list",
            "files": [{ "path": "list", "text": "b\na\n" }],
            "limits": { "turns": 10 },
            "metadata": { "study": "7" },
        });
        let path = server.start_episode(&body).await;
        let all = server.events(&format!("{path}/events")).await;
        let kinds: Vec<&str> =
            all.iter().map(|(_, event)| event["kind"].as_str().unwrap()).collect();
        assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("started", "ended"));
        let info = server.json(&path).await;
        assert_eq!(info["state"], "finished", "{info}");
        assert_eq!(info["result"]["answer"], "a\nb");
        assert_eq!(info["result"]["outcome"], "submitted");
        assert_eq!(info["result"]["validity"], json!({ "validity": "valid" }));
        assert_eq!(
            server.json(&format!("{path}/trajectory")).await["steps"][0]["action"]["function"],
            "execute_bash"
        );
        assert_eq!(
            server.json(&format!("{path}/files")).await["files"],
            json!([{ "path": "answer.txt", "size": 4 }])
        );
        let file = server.fetch(&format!("{path}/files/answer.txt")).await;
        assert_eq!(file.headers()["x-content-type-options"], "nosniff");
        assert_eq!(file.text().await.unwrap(), "a\nb\n");
        // From any event on, nothing is lost and nothing repeated.
        for (number, _) in &all {
            let rest = match server.fetch(&format!("{path}/events?after={number}")).await {
                response if response.status() == 204 => Vec::new(),
                response => events(&response.text().await.unwrap()),
            };
            assert_eq!(rest, all[usize::try_from(*number).unwrap()..]);
        }
        let last = server.request(Method::GET, &format!("{path}/events?after=1"));
        let last = last.header("Last-Event-ID", all.len().to_string()).send().await.unwrap();
        assert_eq!(last.status(), 204);
        let listed = server.json("/v1/episodes?state=finished").await;
        assert_eq!(listed["episodes"][0]["metadata"]["study"], "7");
        assert_eq!(server.json("/v1/episodes?state=failed").await["episodes"], json!([]));
        let removed = server.request(Method::DELETE, &path).send().await.unwrap();
        assert_eq!(removed.status(), 204);
        assert_eq!(server.fetch(&path).await.status(), 404);
    });
}

#[test]
fn a_stream_that_is_cut_off_continues_without_loss() {
    let model = |turn| match turn {
        1..=6 => bash(format!("echo {turn}")).after(Duration::from_millis(10)),
        _ => submit(),
    };
    with_model(model, ServeOptions::default(), async |server| {
        let path = server.start_episode(&json!({ "task": "Count" })).await;
        let mut seen: Vec<(u64, Value)> = Vec::new();
        // Each connection is dropped after a few bytes, in the middle of an event as often as not.
        for cut in 1.. {
            let last = seen.last().map_or(0, |(number, _)| *number);
            let request = server.request(Method::GET, &format!("{path}/events"));
            let mut response =
                request.header("Last-Event-ID", last.to_string()).send().await.unwrap();
            if response.status() == 204 {
                break;
            }
            let mut text = String::new();
            while let Some(chunk) = response.chunk().await.unwrap() {
                text.push_str(std::str::from_utf8(&chunk).unwrap());
                if text.len() > cut * 97 {
                    break;
                }
            }
            let cut_at = text.floor_char_boundary(cut * 97);
            let got = events(&text[..cut_at]);
            seen.extend(got);
            assert!(cut < 1000, "the stream does not end");
        }
        assert_eq!(seen, server.events(&format!("{path}/events")).await);
        assert_eq!(seen.last().unwrap().1["kind"], "ended");
    });
}

#[test]
fn episodes_are_cancelled_resumed_and_forked() {
    let model = |turn| match turn {
        1 => Step::from(bash("echo 1 >> /testbed/output/log")),
        2 => Step::Hang,
        _ => Step::from(submit()),
    };
    with_model(model, ServeOptions::default(), async |server| {
        let body = json!({ "task": "Log", "keep": "every_turn" });
        let path = server.start_episode(&body).await;
        let mut response = server.fetch(&format!("{path}/events")).await;
        let mut text = String::new();
        while !text.contains("\"kind\":\"saved\"") {
            text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
        }
        let (status, refused) = server.post_json(&format!("{path}/resume"), &json!({})).await;
        assert_eq!(status, 409, "{refused}");
        let (status, info) = server.post_json(&format!("{path}/cancel"), &json!({})).await;
        assert_eq!((status, &info["state"]), (200, &json!("cancelled")));
        assert_eq!(info["result"]["validity"]["validity"], "cancelled");
        let (status, forked) =
            server.post_json(&format!("{path}/fork"), &json!({ "turn": 1 })).await;
        assert_eq!((status, &forked["parent"]["turn"]), (201, &json!(1)), "{forked}");
        let (status, refused) =
            server.post_json(&format!("{path}/fork"), &json!({ "turn": 5 })).await;
        assert_eq!(status, 409, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("turn 0, 1"), "{refused}");
        let (status, resumed) = server.post_json(&format!("{path}/resume"), &json!({})).await;
        assert_eq!((status, &resumed["state"]), (202, &json!("running")), "{resumed}");
        // The server ends with two episodes that hang: with_server checks that no sandbox is left.
    });
}

#[test]
fn hostile_requests_are_refused() {
    let model = |turn| match turn {
        1 => bash("echo x > /testbed/output/x; ln -s /etc/passwd /testbed/output/link"),
        _ => submit(),
    };
    let key = |name: &str| Token {
        name: name.into(),
        key: http_server::KeyHash::of(name.as_bytes()),
        quotas: Quotas::default(),
    };
    let tokens = Tokens::new(vec![key("alice"), key("mallory")]).unwrap();
    with_model(model, ServeOptions { tokens, ..ServeOptions::default() }, async |server| {
        let send = async |key: &str, method: Method, path: &str, body: Option<String>| {
            let mut request = server.request(method, path).header("X-API-Key", key);
            if let Some(body) = body {
                request = request.header("Content-Type", "application/json").body(body);
            }
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        };
        let task = Some(json!({ "task": "x" }).to_string());
        let (status, text) = send("alice", Method::POST, "/v1/episodes", task).await;
        assert_eq!(status, 201, "{text}");
        let info: Value = serde_json::from_str(&text).unwrap();
        let path = format!("/v1/episodes/{}", info["id"].as_str().unwrap());
        let (status, _) = send("alice", Method::GET, &format!("{path}/events"), None).await;
        assert_eq!(status, 200);
        for file in
            ["..%2fepisode.json", "%2fetc%2fpasswd", "link", "a%00", "x%2f..%2f..%2fepisode.json"]
        {
            let (status, text) =
                send("alice", Method::GET, &format!("{path}/files/{file}"), None).await;
            assert_eq!(status, 404, "{file}: {text}");
        }
        // As no client of good will writes it.
        for file in ["../episode.json", "%2e%2e/episode.json", "/etc/passwd", "./../episode.json"] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let head = format!(
                "GET {path}/files/{file} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: alice\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 404"), "{file}: {answer}");
        }
        // What belongs to another does not exist.
        for below in ["", "/events", "/trajectory", "/files", "/files/x"] {
            let (status, _) = send("mallory", Method::GET, &format!("{path}{below}"), None).await;
            assert_eq!(status, 404, "{below}");
        }
        for below in ["/cancel", "/resume", "/fork"] {
            let (status, _) = send("mallory", Method::POST, &format!("{path}{below}"), None).await;
            assert_eq!(status, 404, "{below}");
        }
        assert_eq!(send("mallory", Method::DELETE, &path, None).await.0, 404);
        let from = json!({ "task": "x", "files_from": info["id"] }).to_string();
        assert_eq!(send("mallory", Method::POST, "/v1/episodes", Some(from)).await.0, 404);
        assert_eq!(
            send("mallory", Method::GET, "/v1/episodes", None).await.1,
            r#"{"episodes":[],"next":null}"#
        );
        assert_eq!(send("nobody", Method::GET, "/v1/episodes", None).await.0, 401);
        for path in ["/v1/episodes?state=odd", "/v1/episodes?limit=-1"] {
            assert_eq!(send("alice", Method::GET, path, None).await.0, 400, "{path}");
        }
        for id in ["ep_", "..%2f", "%2f", "ep_00000000000000000000000000000"] {
            let (status, _) =
                send("alice", Method::GET, &format!("/v1/episodes/{id}/files"), None).await;
            assert_eq!(status, 404, "{id}");
        }
    });
}

#[test]
fn requests_that_make_no_sense_say_why() {
    with_model(
        |_| submit(),
        ServeOptions::default(),
        async |server| {
            for (status, body) in [
                (400, "{".to_owned()),
                (400, "{}".to_owned()),
                (400, json!({ "task": "x", "messages": [] }).to_string()),
                (400, json!({ "task": "x", "max_turn": 1 }).to_string()),
                (400, json!({ "task": "x", "limits": { "turns": 100_000 } }).to_string()),
                (400, json!({ "task": "x", "limits": { "time": -1 } }).to_string()),
                (400, json!({ "task": "x", "sampling": { "heat": 1 } }).to_string()),
                (
                    400,
                    json!({ "task": "x", "files": [{ "path": "../a", "text": "" }] }).to_string(),
                ),
                (
                    400,
                    json!({ "task": "x", "files": [{ "path": "a", "base64": "!" }] }).to_string(),
                ),
                (404, json!({ "task": "x", "model": "other" }).to_string()),
                (413, json!({ "task": "x".repeat(9 << 20) }).to_string()),
            ] {
                let shown: String = body.chars().take(80).collect();
                let request = server.request(Method::POST, "/v1/episodes");
                let request = request.header("Content-Type", "application/json").body(body);
                let response = request.send().await.unwrap();
                assert_eq!(response.status(), status, "{shown}");
                let error: Value = response.json().await.unwrap();
                assert!(error["error"]["message"].is_string(), "{shown}: {error}");
            }
            assert_eq!(server.json("/v1/episodes").await["episodes"], json!([]));
        },
    );
}

#[test]
fn every_page_of_a_long_list_is_found_once() {
    with_model(
        |_| submit(),
        ServeOptions { max_sandboxes: 64, ..ServeOptions::default() },
        async |server| {
            let mut started = Vec::new();
            for number in 0..20 {
                started.push(server.start_episode(&json!({ "task": format!("{number}") })).await);
            }
            let (mut found, mut next) = (Vec::new(), String::new());
            for _ in 0..1000 {
                let page = server.json(&format!("/v1/episodes?limit=1{next}")).await;
                for episode in page["episodes"].as_array().unwrap() {
                    found.push(format!("/v1/episodes/{}", episode["id"].as_str().unwrap()));
                }
                match page["next"].as_str() {
                    Some(after) => next = format!("&after={after}"),
                    None => break,
                }
            }
            // Newest first. Those of one millisecond have no order among themselves.
            found.sort();
            started.sort();
            assert_eq!(found, started);
        },
    );
}

#[test]
fn a_server_without_a_model_says_what_it_lacks() {
    let options = ServeOptions { no_model: "no model; do this".into(), ..ServeOptions::default() };
    with_server(options, async |server| {
        for method in [Method::GET, Method::POST] {
            let response = server.request(method, "/v1/episodes").json(&json!({ "task": "x" }));
            let response = response.send().await.unwrap();
            assert_eq!(response.status(), 501);
            let body: Value = response.json().await.unwrap();
            assert_eq!(body["error"]["message"], "no model; do this");
        }
    });
}

#[test]
fn episodes_have_the_limits_of_their_token_and_end_with_it() {
    let model = |turn| match turn {
        1 => {
            let fill = "head -c 50000000 /dev/zero > /testbed/filled || echo full > /testbed/x";
            Step::from(bash(format!("{fill}; cat /testbed/x")))
        }
        _ => Step::Hang,
    };
    let each = EachSandbox { disk: Some(sandbox::ByteSize::mib(16)), ..EachSandbox::default() };
    let token = |name: &str| Token {
        name: name.into(),
        key: http_server::KeyHash::of(name.as_bytes()),
        quotas: Quotas { each, ..Quotas::default() },
    };
    let tokens = Tokens::new(vec![token("alice"), token("bob")]).unwrap();
    let options = ServeOptions { tokens: tokens.clone(), ..ServeOptions::default() };
    with_model(model, options, async |server| {
        let start = async |body: Value| {
            let request = server.request(Method::POST, "/v1/episodes").json(&body);
            let response = request.header("X-API-Key", "alice").send().await.unwrap();
            (response.status().as_u16(), response.json::<Value>().await.unwrap())
        };
        let (status, info) = start(json!({ "task": "Fill" })).await;
        assert_eq!(status, 201, "{info}");
        let path = format!("/v1/episodes/{}/events", info["id"].as_str().unwrap());
        let request = server.request(Method::GET, &path).header("X-API-Key", "alice");
        let mut response = request.send().await.unwrap();
        let mut text = String::new();
        while !text.contains("observed") {
            let chunk = response.chunk().await.unwrap().expect("more events");
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
        assert!(text.contains("full"), "{text}");
        // A token that is taken away loses its episodes.
        tokens.replace(vec![token("bob")]).unwrap();
        while let Some(chunk) = response.chunk().await.unwrap() {
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
        assert!(text.contains("cancelled"), "{text}");
    });
}

/// Whose cost could not be counted is not played, in episodes and in chats.
#[test]
fn a_quota_in_dollars_needs_a_price() {
    let key = |name: &str, dollars| Token {
        name: name.into(),
        key: http_server::KeyHash::of(name.as_bytes()),
        quotas: Quotas { model_cost_per_day: dollars, ..Quotas::default() },
    };
    let tokens = Tokens::new(vec![key("alice", None), key("bob", Some(5.0))]).unwrap();
    let data = tempfile::tempdir().unwrap();
    let model = SharedModel::new(ScriptedModel::answering(|_| submit()));
    let options = crate::answers_chats::options(model, &data);
    with_server(ServeOptions { tokens: tokens.clone(), ..options }, async |server| {
        let post = async |key: &str, path: &str, body: &Value| {
            let request = server.request(Method::POST, path).header("X-API-Key", key).json(body);
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.json::<Value>().await.unwrap())
        };
        let task = json!({ "task": "x" });
        let (status, info) = post("alice", "/v1/episodes", &task).await;
        assert_eq!(status, 201, "{info}");
        let path = format!("/v1/episodes/{}", info["id"].as_str().unwrap());
        let question = json!({ "messages": [{ "role": "user", "content": "x" }] });
        let refused = async |key: &str, path: &str, body: &Value| {
            let (status, refused) = post(key, path, body).await;
            assert_eq!(status, 403, "{path}: {refused}");
            let message = refused["error"]["message"].to_string();
            assert!(message.contains("price of `scripted` is not known"), "{path}: {message}");
            assert!(message.contains("model_tokens_per_day"), "{path}: {message}");
        };
        refused("bob", "/v1/episodes", &task).await;
        refused("bob", "/v1/chat/completions", &question).await;
        // One that gets such a quota later continues nothing either.
        tokens.replace(vec![key("alice", Some(5.0)), key("bob", None)]).unwrap();
        refused("alice", &format!("{path}/resume"), &json!({})).await;
        refused("alice", &format!("{path}/fork"), &json!({})).await;
        assert_eq!(post("bob", "/v1/chat/completions", &question).await.0, 200);
    });
}

#[test]
fn a_quota_in_dollars_that_is_used_up_refuses_episodes_and_chats() {
    let quotas = Quotas { model_cost_per_day: Some(0.01), ..Quotas::default() };
    let key = http_server::KeyHash::of(b"alice");
    let tokens = Tokens::new(vec![Token { name: "alice".into(), key, quotas }]).unwrap();
    let data = tempfile::tempdir().unwrap();
    let model = ScriptedModel::answering(|_| {
        let answer = Call::bash("echo done > /testbed/output/answer.txt");
        calls([answer, Call::submit()]).tokens(20_000, 0)
    });
    let mut options = crate::answers_chats::options(SharedModel::new(model), &data);
    let served = &mut options.episodes.as_mut().unwrap().models[0];
    // Per million tokens: the first call costs two cents.
    served.price = Some(model::Price { input: 1.0, cached: 1.0, cache_write: 1.0, output: 1.0 });
    with_server(ServeOptions { tokens, ..options }, async |server| {
        let post = async |path: &str, body: &Value| {
            let request = server.request(Method::POST, path).header("X-API-Key", "alice");
            request.json(body).send().await.unwrap()
        };
        let question = json!({ "messages": [{ "role": "user", "content": "x" }] });
        let answered = post("/v1/chat/completions", &question).await;
        let status = answered.status();
        assert_eq!(status, 200, "{}", answered.text().await.unwrap());
        for (path, body) in
            [("/v1/chat/completions", question), ("/v1/episodes", json!({ "task": "x" }))]
        {
            let refused = post(path, &body).await;
            assert_eq!(refused.status(), 429, "{path}");
            let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
            assert!((86_000..=86_400).contains(&wait), "{path}: {wait}");
            let error = &refused.json::<Value>().await.unwrap()["error"];
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("0.01 dollars of model calls per day"), "{path}: {message}");
        }
    });
}
