//! `serve --model`: episodes behind the real server, which is stopped and started again.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{MockServer, bash, submit};

use crate::support::{Home, Running, crate_path, err, refusal, skip, wait_for};

/// A server of episodes, with its address.
pub(crate) struct Server {
    pub(crate) process: Running,
    pub(crate) address: String,
}

/// A server of episodes of the model at this address.
pub(crate) fn serve(home: &Home, base_url: &str, data: &Path) -> Command {
    let mut command = home.command(["serve", "--addr", "127.0.0.1:0", "--model", "mock"]);
    command.args(["--base-url", base_url, "--data-dir"]).arg(data);
    for name in ["LLM_NAME", "LLM_BASE_URL", "LLM_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"] {
        command.env_remove(name);
    }
    command.env_remove("LLM_IN_SANDBOX_CONFIG").env("HOME", home.file("nobody"));
    command
}

impl Server {
    /// Starts it and waits until it listens.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = Running(command.spawn().unwrap());
        let stderr = process.0.stderr.take().unwrap();
        let mut lines = BufReader::new(stderr).lines();
        let address = loop {
            let line = lines.next().unwrap().unwrap();
            if let Some((_, rest)) = line.split_once("://") {
                break rest.split(';').next().unwrap().to_owned();
            }
        };
        // What it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    /// Sends a request; the status and the JSON of the response.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// Reads JSON.
    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, value) = self.send("GET", path, None);
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    /// Starts an episode; its path.
    pub(crate) fn start_episode(&self) -> String {
        let body = json!({ "task": "Make a list" });
        let (status, info) = self.send("POST", "/v1/episodes", Some(&body));
        assert_eq!(status, 201, "{info}");
        format!("/v1/episodes/{}", info["id"].as_str().unwrap())
    }
}

#[test]
fn a_directory_has_one_server_and_a_stopped_one_parks_its_episodes() {
    let Some(home) = Home::with_sandboxes() else { return };
    let stopped = Arc::new(AtomicBool::new(false));
    let model = MockServer::answering({
        let stopped = Arc::clone(&stopped);
        move |asked| match (asked.turns(), stopped.load(Ordering::SeqCst)) {
            (0, _) => {
                testkit::Answer::says(bash("echo 1 >> /testbed/output/x; cat /testbed/output/x"))
            }
            (1, false) => testkit::Answer::hang(),
            (1, true) => bash("cp /testbed/output/x /testbed/output/answer.txt").into(),
            _ => submit().into(),
        }
    })
    .unwrap();
    let data = home.file("data");
    let mut server = Server::start(serve(&home, &model.base_url(), &data));
    let path = server.start_episode();
    model.wait_for_requests(2).unwrap();
    let second = serve(&home, &model.base_url(), &data).output().unwrap();
    let refused = refusal(&second, 2);
    assert!(
        refused.contains("another server is using") && refused.contains("--data-dir"),
        "{refused}"
    );
    server.process.signal(Signal::TERM);
    server.process.0.wait().unwrap();
    wait_for("clean-up", || home.traces().is_empty().then_some(()));
    stopped.store(true, Ordering::SeqCst);
    let mut server = Server::start(serve(&home, &model.base_url(), &data));
    assert_eq!(server.get(&path)["state"], "interrupted");
    assert_eq!(server.get("/v1/episodes?state=interrupted")["episodes"][0]["task"], "Make a list");
    let (status, resumed) = server.send("POST", &format!("{path}/resume"), None);
    assert_eq!((status, &resumed["state"]), (202, &json!("running")), "{resumed}");
    wait_for("the end", || (server.get(&path)["state"] != "running").then_some(()));
    let info = server.get(&path);
    assert_eq!(info["state"], "finished", "{info}");
    assert_eq!(info["result"]["answer"], "1", "its files were kept, and no command was repeated");
    let again = server.send("POST", &format!("{path}/resume"), None);
    assert_eq!(again.0, 409, "{again:?}");
    server.process.signal(Signal::TERM);
    server.process.0.wait().unwrap();
}

/// Without a model and without a directory of its own as well: who owns which snapshot is kept in the usual one.
#[test]
fn the_usual_directory_has_one_server_too() {
    let home = Home::new();
    let plain = || {
        let mut command = home.command(["serve", "--addr", "127.0.0.1:0"]);
        command.env("HOME", home.file("nobody"));
        command
    };
    let mut server = Server::start(plain());
    let refused = refusal(&plain().output().unwrap(), 2);
    assert!(
        refused.contains("another server is using") && refused.contains("--data-dir"),
        "{refused}"
    );
    let mut elsewhere = plain();
    elsewhere.arg("--data-dir").arg(home.file("data"));
    drop(Server::start(elsewhere));
    server.process.signal(Signal::TERM);
    server.process.0.wait().unwrap();
    drop(Server::start(plain()));
}

#[test]
fn a_server_without_a_model_names_the_option() {
    let home = Home::new();
    let mut command = home.command(["serve", "--addr", "127.0.0.1:0"]);
    command.env("HOME", home.file("nobody"));
    let server = Server::start(command);
    let (status, answer) = server.send("POST", "/v1/episodes", Some(&json!({ "task": "x" })));
    assert_eq!(status, 501);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("--model"), "{message}");
    let lonely = home.run(["serve", "--base-url", "http://localhost:1/v1"]);
    assert!(err(&lonely).contains("--model"), "{}", err(&lonely));
}

/// The commands of the page about the server, as they stand there, but for the address.
#[test]
fn the_page_about_the_server_is_true() {
    let Some(home) = Home::with_sandboxes() else { return };
    let has = |name: &str| Command::new(name).arg("--version").output().is_ok();
    if !has("curl") || !has("jq") {
        return skip("curl", "curl and jq are not installed");
    }
    let model = MockServer::answering(|asked| match asked.turns() {
        0 => bash("cat /testbed/input/* 2> /dev/null | wc -w > /testbed/output/answer.txt"),
        _ => submit(),
    })
    .unwrap();
    let server = Server::start(serve(&home, &model.base_url(), &home.file("data")));
    let page = std::fs::read_to_string(crate_path("../../docs/server.md")).unwrap();
    let (_, section) = page.split_once("## Episodes").unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let script: String = blocks.filter(|block| block.contains("curl")).collect();
    assert!(script.matches("curl").count() >= 7, "{script}");
    let script = script.replace("127.0.0.1:7777", &server.address);
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &script]).env("NO_PROXY", "127.0.0.1");
    let output = command.current_dir(home.file("")).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}{}", err(&output));
    assert!(shown.contains("\"validity\": \"valid\"") && shown.contains("\n4\n"), "{shown}");
    assert!(shown.contains("\"turn\": 1"), "{shown}");
}
