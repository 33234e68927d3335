//! Sandboxes are paused and continue: the state that is shown is that of their processes, and no pause lasts for ever.

use std::time::Duration;

use lis_server::ServeOptions;
use reqwest::Method;
use sandbox_testkit::Operation;
use serde_json::{Value, json};

use crate::support::{Created, TestServer, becomes, until, with_server};

impl TestServer {
    async fn state(&self, sandbox: &Created) -> Value {
        let path = format!("/sandboxes/{}", sandbox.id);
        let info = self.request(Method::GET, &path).send().await.unwrap();
        info.json::<Value>().await.unwrap()["state"].take()
    }

    async fn control(&self, sandbox: &Created, what: &str, body: Value) -> (u16, Value) {
        let path = format!("/sandboxes/{}/{what}", sandbox.id);
        let answer = self.request(Method::POST, &path).json(&body).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default())
    }

    /// Sends a request whose client disconnects once the sandbox has done what it asks for, before the server knows.
    async fn abandon(&self, sandbox: &Created, what: &str, body: Value) {
        let before = self.abandoned().await;
        self.runtime.faults.hold(Operation::Pause);
        let path = format!("/sandboxes/{}/{what}", sandbox.id);
        let request = self.request(Method::POST, &path).json(&body).send();
        tokio::select! {
            _ = request => panic!("it was answered"),
            () = self.runtime.faults.reached(Operation::Pause) => {}
        }
        // The request is dropped here.
        until("the server notices", async || self.abandoned().await > before).await;
        self.runtime.faults.release(Operation::Pause);
    }

    /// Requests whose client left before they were answered.
    async fn abandoned(&self) -> u64 {
        let text = self.request(Method::GET, "/metrics").send().await.unwrap().text().await;
        let text = text.unwrap();
        let name = "llm_in_sandbox_requests_total{route=\"control\",status=\"4xx\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |count| count.parse().unwrap())
    }

    /// How far a program has counted.
    async fn count(&self, sandbox: &Created) -> u64 {
        let file = self.to(sandbox, Method::GET, "/files?path=/tmp/count").send().await.unwrap();
        file.text().await.unwrap().trim().parse().unwrap_or(0)
    }

    /// Starts a program that counts.
    async fn start_counting(&self, sandbox: &Created) {
        let script =
            "for ((n = 1; ; n++)); do echo $n > /tmp/new; mv /tmp/new /tmp/count; sleep 0.01; done";
        let bash = crate::support::bash(script);
        std::mem::forget(self.stream(sandbox, "/process.Process/Start", &bash).await);
        until("counting", async || self.count(sandbox).await > 0).await;
    }
}

#[test]
fn a_pause_and_its_end_complete_without_their_clients() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        server.start_counting(&sandbox).await;
        server.abandon(&sandbox, "pause", json!({})).await;
        until("the pause", async || server.state(&sandbox).await == "paused").await;
        server.abandon(&sandbox, "connect", json!({ "timeout": 60 })).await;
        until("its end", async || server.state(&sandbox).await == "running").await;
        let count = server.count(&sandbox).await;
        until("counting", async || server.count(&sandbox).await > count).await;
        // It has not lost its time limit.
        server.abandon(&sandbox, "pause", json!({})).await;
        server.abandon(&sandbox, "connect", json!({ "timeout": 5 })).await;
        becomes(server, 0).await;
    });
}

#[test]
fn a_paused_sandbox_continues_where_it_was() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        server.start_counting(&sandbox).await;
        assert_eq!(server.control(&sandbox, "resume", json!({})).await.0, 409, "it runs");
        assert_eq!(server.control(&sandbox, "pause", json!({})).await.0, 204);
        assert_eq!(server.control(&sandbox, "pause", json!({})).await.0, 409);
        let (status, refused) =
            server.control(&sandbox, "resume", json!({ "autoPause": true })).await;
        assert_eq!(status, 501, "{refused}");
        let body = json!({ "timeout": 50, "autoPause": false });
        let (status, resumed) = server.control(&sandbox, "resume", body).await;
        assert_eq!((status, &resumed["sandboxID"]), (201, &json!(sandbox.id)), "{resumed}");
        assert_eq!(resumed["envdAccessToken"], json!(sandbox.token));
        assert_eq!(server.state(&sandbox).await, "running");
        let count = server.count(&sandbox).await;
        assert!(count > 0, "its memory and files are as they were");
        until("counting", async || server.count(&sandbox).await > count).await;
        let info = server.request(Method::GET, &format!("/sandboxes/{}", sandbox.id));
        let info: Value = info.send().await.unwrap().json().await.unwrap();
        let ends: jiff::Timestamp = info["endAt"].as_str().unwrap().parse().unwrap();
        let left = ends.duration_since(jiff::Timestamp::now()).as_secs();
        assert!((30..=50).contains(&left), "{left}");
    });
}

#[test]
fn a_sandbox_that_stays_paused_ends() {
    let max_paused = Duration::from_millis(400);
    let options = ServeOptions { max_paused, max_sandboxes: 2, ..ServeOptions::default() };
    with_server(options, async |server| {
        let sandbox = server.create().await;
        assert_eq!(server.control(&sandbox, "pause", json!({})).await.0, 204);
        let body = json!({ "templateID": "base", "timeout": 1, "autoPause": true });
        let by_itself = server.request(Method::POST, "/v2/sandboxes").json(&body);
        assert_eq!(by_itself.send().await.unwrap().status(), 201);
        becomes(server, 0).await;
        let path = format!("/sandboxes/{}", sandbox.id);
        let gone = server.request(Method::GET, &path).send().await.unwrap();
        assert_eq!(gone.status(), 404);
        assert!(gone.text().await.unwrap().contains("it has ended"));
        // Their permits are free again.
        server.create().await;
        server.create().await;
    });
}
