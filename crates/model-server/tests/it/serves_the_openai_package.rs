//! OpenAI's own Python package works with the endpoint as with OpenAI.

use std::{ffi::OsString, path::PathBuf, process::Stdio};

use lis_model_server::{ServeOptions, Served};
use model::{Delta, Error, Listener, Model, Overflow, Request, Response, Secret};
use serde_json::{Value, json};
use testkit::{Call, ScriptedModel, Step, calls, say};
use tokio::time::timeout;
use trajectory::{Message, Usage};

use crate::support::{LONGEST, Server};

/// Where the package is. Announces a skip where it is not, or fails where it is required.
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "test runs are configured by the environment"
)]
fn package() -> Option<OsString> {
    let package = std::env::var_os("LIS_TEST_OPENAI");
    if package.is_none() {
        let reason = "LIS_TEST_OPENAI names no directory with the package openai";
        let required = std::env::var("LIS_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name.trim() == "pip"), "pip: {reason}");
        println!("skip: {reason}");
    }
    package
}

/// The directory of this crate, as the test runner names it: the one it was built in may belong to another checkout.
#[expect(clippy::disallowed_methods, reason = "the test runner names the directory of the crate")]
fn crate_dir() -> PathBuf {
    let dir = std::env::var_os("CARGO_MANIFEST_DIR");
    dir.unwrap_or(env!("CARGO_MANIFEST_DIR").into()).into()
}

const USAGE: Usage =
    Usage { input: 20, cached: 16, cache_writes: 0, output: 7, reasoning: 2, estimated: false };

fn line(request: &Request<'_>) -> Step {
    let text = match request.messages.last() {
        Some(Message::User { content }) => content[0].as_text().unwrap_or_default(),
        Some(Message::Tool(result)) => {
            assert_eq!(result.name, "add");
            return say("It is 5.").into();
        }
        _ => "",
    };
    match text {
        "think" => {
            say("The answer, größer als nichts, is 42.").reasoning("Hm, 素数.").usage(USAGE).into()
        }
        "add" => calls([Call::new("add", json!({ "a": 2, "b": 3 }))]).text("Adding.").into(),
        "long" => {
            let numbers = Overflow { context: Some(4096), prompt: Some(5000), output: None };
            Step::Error(Error::Overflow { numbers, message: "too long".into() })
        }
        "picture" => {
            let shown = format!("{:?}", request.messages[0]).contains("image/png");
            say(if shown { "seen" } else { "not seen" }).into()
        }
        _ => Step::Error(Error::Cut("it broke".into())),
    }
}

/// The scripted model, which for one request streams something before it fails.
struct Breaking(ScriptedModel);

impl Model for Breaking {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        if request.messages.last() == Some(&Message::user("breaks")) {
            listener.on_delta(Delta::Text("half"));
        }
        self.0.complete(request, listener).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_package_works() {
    let Some(package) = package() else { return };
    let options =
        ServeOptions { api_key: Some(Secret::new("sk-test-1234")), ..ServeOptions::default() };
    let served = Served::new(Breaking(ScriptedModel::answering(line)), 1000);
    let server = Server::with(vec![served], options).await;
    let script = crate_dir().join("tests/real-client/openai_client.py");
    let client = tokio::process::Command::new("/usr/bin/python3")
        .arg(script)
        .args([&server.base_url(), "sk-test-1234"])
        .env_clear()
        .env("PYTHONPATH", package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(2 * LONGEST, client).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sum = json!({ "a": 2, "b": 3 });
    let answer = "The answer, größer als nichts, is 42.";
    assert!(seen["pieces"].as_u64().unwrap() > 2, "{seen}");
    for (what, expected) in [
        ("models", json!(["scripted"])),
        ("one", json!("model")),
        ("text", json!(answer)),
        ("reasoning", json!("Hm, 素数.")),
        ("finish", json!("stop")),
        ("usage", json!([20, 7, 27, 16])),
        ("streamed", json!([answer, "Hm, 素数.", "stop", 27])),
        ("call", json!(["add", sum, "tool_calls"])),
        ("after", json!("It is 5.")),
        ("streamed_call", json!(["add", sum, "Adding."])),
        ("picture", json!("seen")),
        (
            "failures",
            json!([
                ["NotFoundError", 404, "model_not_found", "model"],
                ["BadRequestError", 400, "context_length_exceeded", "messages"],
                ["BadRequestError", 400, null, "n"],
                ["BadRequestError", 400, null, "temperature"],
                ["AuthenticationError", 401, "invalid_api_key", null],
                ["APIError", null, null, null],
            ]),
        ),
    ] {
        assert_eq!(seen[what], expected, "{what}");
    }
}
