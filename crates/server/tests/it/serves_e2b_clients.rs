//! Unedited clients: the packages `e2b` of PyPI, synchronous and asynchronous, and of npm.

use std::process::Stdio;

use lis_server::{KeyHash, Quotas, ServeOptions, Token, Tokens};
use sandbox_testkit::{setting, skip};
use tokio::process::Command;

use crate::support::{TestServer, with_server};

/// The key of all clients.
fn key() -> String {
    format!("e2b_{}", "0".repeat(40))
}

/// Runs a client's script against a server of its own; it ends with the word `done`.
fn runs(command: Command) {
    runs_with(ServeOptions::default(), command);
}

fn runs_with(options: ServeOptions, mut command: Command) {
    with_server(options, async |server| {
        let output = environment(&mut command, server).output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.ends_with("done\n"), "{text}\n{errors}");
    });
}

fn environment<'a>(command: &'a mut Command, server: &TestServer) -> &'a mut Command {
    let url = format!("http://{}", server.address);
    for proxy in
        ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    {
        command.env_remove(proxy);
    }
    command
        .env("E2B_API_URL", &url)
        .env("E2B_SANDBOX_URL", &url)
        .env("E2B_API_KEY", key())
        .stdin(Stdio::null())
        .kill_on_drop(true)
}

fn python(script: &str) -> Option<Command> {
    let Some(package) = setting("LIS_TEST_E2B") else {
        skip("e2b", "LIS_TEST_E2B names no directory with the package e2b");
        return None;
    };
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", package).args(["-c", script]);
    Some(command)
}

#[test]
fn the_python_package() {
    let Some(command) = python(include_str!("../clients/sync.py")) else { return };
    runs(command);
}

#[test]
fn refusals_are_exceptions_of_the_python_package() {
    let Some(command) = python(include_str!("../clients/refusals.py")) else { return };
    let quotas = Quotas { sandboxes: Some(1), ..Quotas::default() };
    let token = Token { name: "client".into(), key: KeyHash::of(key().as_bytes()), quotas };
    let tokens = Tokens::new(vec![token]).unwrap();
    runs_with(ServeOptions { tokens, ..ServeOptions::default() }, command);
}

#[test]
fn the_asynchronous_python_package() {
    let Some(command) = python(include_str!("../clients/asynchronous.py")) else { return };
    runs(command);
}

#[test]
fn the_npm_package() {
    let Some(package) = setting("LIS_TEST_E2B_JS") else {
        return skip("e2b-js", "LIS_TEST_E2B_JS names no directory with the package e2b");
    };
    let mut command = Command::new("node");
    // Found by its path: packages are looked up beside the script, which is elsewhere.
    command.env("E2B_PACKAGE", package);
    command.args(["--input-type=module", "-e", include_str!("../clients/client.mjs")]);
    runs(command);
}
