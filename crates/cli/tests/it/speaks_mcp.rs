//! `mcp`: a client starts the program and uses the sandbox over standard input and output. However it ends, nothing is left.

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{ChildStdout, Command, Stdio},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Home, Running, is_running, setting, skip, unique_sleep, wait_for};

/// The program with an open session.
struct Client {
    running: Running,
    lines: BufReader<ChildStdout>,
}

impl Client {
    fn start(home: &Home, more: &[&str]) -> Self {
        let mut command = home.command(["mcp"]);
        command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running(command.spawn().unwrap());
        let lines = BufReader::new(running.0.stdout.take().unwrap());
        let mut client = Self { running, lines };
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        client.send(0, "initialize", &params);
        assert_eq!(client.receive()["result"]["serverInfo"]["name"], "llm-in-sandbox");
        client
    }

    fn send(&mut self, id: u64, method: &str, params: &Value) {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let input = self.running.0.stdin.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
    }

    fn call(&mut self, id: u64, command: &str) {
        let params = json!({ "name": "execute_bash", "arguments": { "command": command } });
        self.send(id, "tools/call", &params);
    }

    /// The next line; every line of the program is a message.
    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

#[test]
fn input_is_there_and_the_end_of_input_ends_it() {
    let Some(home) = Home::with_sandboxes() else { return };
    let input = tempfile::tempdir().unwrap();
    std::fs::write(input.path().join("a.txt"), "from the host\n").unwrap();
    let mut client = Client::start(&home, &["--input", input.path().to_str().unwrap()]);
    client.call(1, "cat input/a.txt");
    assert!(client.receive().to_string().contains("from the host"));
    drop(client.running.0.stdin.take());
    assert_eq!(client.running.end(), 0);
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}

#[test]
fn signals_and_lost_clients_end_a_running_call() {
    let Some(home) = Home::with_sandboxes() else { return };
    for signal in [Some(Signal::TERM), None] {
        let sleep = unique_sleep();
        let mut client = Client::start(&home, &[]);
        client.call(1, &sleep.join(" "));
        wait_for("the command", || is_running(&sleep).then_some(()));
        match signal {
            Some(signal) => {
                client.running.signal(signal);
                assert_eq!(client.running.end(), 143);
            }
            None => {
                // As when the client is killed: both pipes are closed.
                let Client { mut running, lines } = client;
                drop((running.0.stdin.take(), lines));
                assert_eq!(running.end(), 0);
            }
        }
        assert!(!is_running(&sleep));
        assert_eq!(home.traces(), Vec::<PathBuf>::new());
    }
}

/// The first block of the documentation in this language.
fn snippet(language: &str) -> &'static str {
    let page = include_str!("../../../../docs/mcp.md");
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn the_configuration_of_the_documentation() {
    let Some(home) = Home::with_sandboxes() else { return };
    let config: Value = serde_json::from_str(snippet("json")).unwrap();
    let server = &config["mcpServers"]["sandbox"];
    assert_eq!(server["command"], "llm-in-sandbox");
    let args = server["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let output = home.command(args).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
}

/// With the snippet of the documentation.
#[test]
fn the_python_package() {
    let Some(package) = setting("LIS_TEST_MCP") else {
        return skip("mcp", "LIS_TEST_MCP names no directory with the package mcp");
    };
    let Some(home) = Home::with_sandboxes() else { return };
    let program = home.command(["mcp"]);
    let variable = |(name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)| {
        Some((name.to_owned(), value?.to_owned()))
    };
    let script =
        snippet("python").replace("\"llm-in-sandbox\"", &format!("{:?}", program.get_program()));
    // The package passes few variables on to servers.
    let script =
        script.replace("args=[\"mcp\"]", "args=[\"mcp\"], env=dict(__import__(\"os\").environ)");
    let output = Command::new("python3")
        .envs(program.get_envs().filter_map(variable))
        .env("PYTHONPATH", package)
        .args(["-c", &script])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("execute_bash") && text.contains("\n42\n"), "{text}\n{errors}");
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}
