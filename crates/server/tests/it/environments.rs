//! Servers of tasks for the tests of environments, and a client of their sessions.

use std::{path::Path, time::Duration};

use environment::{Options, Served};
use lis_server::{EnvironmentOptions, ServeOptions};
use problems::{Problem, Task};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::support::TestServer;

/// A task of this repository whose grader is a program in a sandbox.
fn receipts() -> Served {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tasks/receipts");
    let task = Task::load(&dir).unwrap();
    let rows = task.read_files(&[task.data.clone().unwrap()]).unwrap();
    Served::new(task, rows.problems, attempt::Settings::default()).unwrap()
}

/// A task whose grader computes, with `a` as its only row and 42 as the answer.
fn math() -> Served {
    let row = json!({"id": "a", "problem_statement": "What is 6 * 7?", "ground_truth": "42"});
    let problem = Problem::from_row(row).unwrap();
    let task = Task::builtin("math").unwrap();
    Served::new(task, vec![problem], attempt::Settings::default()).unwrap()
}

/// A server of both tasks.
pub(crate) fn options(sessions: Options) -> ServeOptions {
    let tasks = vec![math(), receipts()];
    let environments = Some(EnvironmentOptions { tasks, sessions });
    ServeOptions { environments, ..ServeOptions::default() }
}

/// A response with calls of `execute_bash`, the last of which may be `submit`.
pub(crate) fn bash(commands: &[&str]) -> Value {
    let calls = commands.iter().map(|command| match *command {
        "submit" => json!({"function": {"name": "submit", "arguments": "{}"}}),
        command => {
            let arguments = json!({ "command": command }).to_string();
            json!({"function": {"name": "execute_bash", "arguments": arguments}})
        }
    });
    json!({"role": "assistant", "content": null, "tool_calls": calls.collect::<Value>()})
}

/// The answer to the row of `math`, submitted.
pub(crate) fn right_answer() -> Value {
    bash(&["echo '\\boxed{42}' > /testbed/answer.txt; ls /testbed", "submit"])
}

impl TestServer {
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.request(Method::POST, path).json(body).send().await.unwrap()
    }

    /// Posts a body and expects a status.
    pub(crate) async fn expect(&self, path: &str, body: &Value, status: u16) -> Value {
        let response = self.post(path, body).await;
        let (got, text) = (response.status().as_u16(), response.text().await.unwrap());
        assert_eq!(got, status, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Starts a session and returns its path.
    pub(crate) async fn reset(&self, task: &str, body: Value) -> (String, Value) {
        let reset = self.expect(&format!("/v1/environments/{task}/reset"), &body, 200).await;
        (format!("/v1/sessions/{}", reset["session"].as_str().unwrap()), reset)
    }

    /// The state of a session, once nothing is pending.
    pub(crate) async fn session(&self, session: &str) -> (u16, Value) {
        let path = format!("{session}?wait=30");
        let response = self.request(Method::GET, &path).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// Waits until there are so many sandboxes.
    pub(crate) async fn has_sandboxes(&self, count: usize) {
        let begun = std::time::Instant::now();
        while sandbox::Runtime::list(&*self.runtime).await.unwrap().len() != count {
            assert!(begun.elapsed() < Duration::from_secs(20), "still not {count} sandboxes");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
