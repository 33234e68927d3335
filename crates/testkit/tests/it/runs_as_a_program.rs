//! The server as a program: prints its address, serves, and ends with its standard input.

use std::{process::Stdio, time::Duration};

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::client::{Client, OPENAI, request};

const PATIENCE: Duration = Duration::from_secs(20);

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_mock-server"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn it_serves_until_its_input_ends() {
    let mut child = start(&["--turns", "2", "--command", "date", "--tokens", "9", "--chunks", "3"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let address = url.strip_prefix("http://").and_then(|url| url.strip_suffix("/v1")).unwrap();
    let mut client = Client::open(address.parse().unwrap()).await;
    client.post(OPENAI, &request(true)).await;
    let response = client.response(PATIENCE).await;
    assert_eq!(response.joined("/choices/0/delta/content"), "word ".repeat(9));
    let texts = response
        .events()
        .into_iter()
        .filter(|event| event.pointer("/choices/0/delta/content").is_some_and(|text| text != ""));
    assert_eq!(texts.count(), 3);
    let arguments = response.joined("/choices/0/delta/tool_calls/0/function/arguments");
    assert_eq!(arguments, r#"{"command":"date"}"#);
    client.post(OPENAI, &json!({"stream": true, "messages": [{"role": "assistant"}]})).await;
    let response = client.response(PATIENCE).await;
    assert_eq!(response.joined("/choices/0/delta/tool_calls/0/function/name"), "submit");

    drop(child.stdin.take());
    let status = timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn it_refuses_options_it_does_not_know() {
    for wrong in [&["--sleep", "1"][..], &["--turns"], &["--turns", "many"]] {
        let status = timeout(PATIENCE, start(wrong).wait()).await.unwrap().unwrap();
        assert!(!status.success(), "{wrong:?}");
    }
}
