//! `serve -v --log-format json`: a log that programs read.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Home, Running};

#[test]
fn the_log_of_a_server_is_one_object_a_line() {
    let home = Home::new();
    let mut command =
        home.command(["serve", "--addr", "127.0.0.1:0", "-v", "--log-format", "json"]);
    command.env("HOME", home.file("nobody")).env_remove("LLM_IN_SANDBOX_LOG");
    let mut server = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let mut log = Vec::new();
    // What the program says to its user is not a line of the log.
    let note = loop {
        let line = lines.next().unwrap().unwrap();
        if line.starts_with("llm-in-sandbox: ") {
            break line;
        }
        log.push(line);
    };
    let (_, rest) = note.split_once("http://").unwrap();
    let mut stream = TcpStream::connect(rest.split(';').next().unwrap()).unwrap();
    let head =
        "GET /sandboxes?name=a%22b HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: my-id\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    while !log.last().is_some_and(|line| line.contains("my-id")) {
        log.push(lines.next().unwrap().unwrap());
    }
    drop(stream);
    server.signal(Signal::TERM);
    log.extend(lines.map(Result::unwrap).filter(|line| !line.starts_with("llm-in-sandbox: ")));
    assert_eq!(server.end(), 143);
    let log: Vec<Value> = log
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for entry in &log {
        let has = |name: &str| entry[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(has("time") && has("level") && has("target"), "{entry}");
    }
    let request = log.iter().find(|entry| entry["fields"]["request"] == "my-id").unwrap();
    let fields = &request["fields"];
    assert_eq!((&request["level"], &request["message"]), (&"INFO".into(), &"request".into()));
    assert_eq!((&fields["status"], &fields["path"]), (&200.into(), &"/sandboxes".into()));
    assert!(fields["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{request}");
}
