//! Requests that Schemathesis invents from the server's own OpenAPI document: no crash, no undocumented answer.

use std::process::Stdio;

use lis_server::ServeOptions;
use model::SharedModel;
use reqwest::Method;
use sandbox_testkit::{setting, skip};
use serde_json::Value;
use testkit::{ScriptedModel, submit};
use tokio::process::Command;

use crate::{
    answers_chats, environments,
    support::{Created, TestServer, with_server},
};

const CONFIGURATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/schemathesis.toml");
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
/// Paths of requests to one sandbox.
const INSIDE: &str = "^/(files|envs|process|filesystem)";
/// Paths of a model's work: episodes, chats, environments, MCP.
const MODELS: &str = "^/(v1|openenv|ws$|metadata$|schema$|mcp)";

/// How long requests are invented, in seconds.
fn seconds(usual: u32) -> String {
    if setting("LIS_SLOW").is_some() { 120 } else { usual }.to_string()
}

/// Invents requests for some time.
async fn invent(server: &TestServer, package: &std::ffi::OsStr, options: &[&str]) {
    let script = "from schemathesis.cli import schemathesis; schemathesis()";
    let url = format!("http://{}", server.address);
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", package)
        .env("NO_PROXY", "*")
        .args(["-c", script, "--config-file", CONFIGURATION, "run", DOCUMENT, "--url", &url])
        .args(["--max-time", &seconds(4), "--phases", "coverage,fuzzing", "--no-shrink"])
        .args(["--request-timeout", "20", "--generation-deterministic"])
        .args(options)
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("generated"), "{text}\n{errors}");
}

/// The package, or a visible skip.
fn package() -> Option<std::ffi::OsString> {
    let package = setting("LIS_TEST_SCHEMATHESIS");
    if package.is_none() {
        let reason = "LIS_TEST_SCHEMATHESIS names no directory with the package schemathesis";
        skip("schemathesis", reason);
    }
    package
}

#[test]
fn the_description_holds_for_invented_requests_about_sandboxes() {
    let Some(package) = package() else { return };
    with_server(ServeOptions::default(), async |server| {
        let served = server.request(Method::GET, "/openapi.json").send().await.unwrap();
        let served: Value = served.json().await.unwrap();
        let stored: Value = serde_json::from_slice(&std::fs::read(DOCUMENT).unwrap()).unwrap();
        assert_eq!(served, stored);
        // The last one of several options counts.
        let others = ["--exclude-path-regex", &format!("{INSIDE}|{MODELS}")];
        invent(server, &package, &others).await;
    });
}

#[test]
fn the_description_holds_for_invented_requests_about_models() {
    let Some(package) = package() else { return };
    let data = tempfile::tempdir().unwrap();
    let model = SharedModel::new(ScriptedModel::answering(|_| submit()));
    let chats = answers_chats::options(model, &data);
    let options = ServeOptions {
        episodes: chats.episodes,
        chat: chats.chat,
        ..environments::options(environment::Options::default())
    };
    with_server(options, async |server| {
        invent(server, &package, &["--include-path-regex", MODELS]).await;
    });
}

#[test]
fn the_description_holds_where_no_model_is_served() {
    let Some(package) = package() else { return };
    with_server(ServeOptions::default(), async |server| {
        // The last limit counts. Most is refused before it is read.
        let options = ["--include-path-regex", MODELS, "--max-time", &seconds(2)];
        invent(server, &package, &options).await;
    });
}

#[test]
fn the_description_holds_for_invented_requests_to_a_sandbox() {
    let Some(package) = package() else { return };
    with_server(ServeOptions::default(), async |server| {
        let Created { id, token } = server.create().await;
        let (id, token) = (format!("E2b-Sandbox-Id: {id}"), format!("X-Access-Token: {token}"));
        let inside = ["--include-path-regex", INSIDE, "-H", &id, "-H", &token];
        invent(server, &package, &inside).await;
    });
}
