//! A model's server that answers at once: first with a command, then with the end of its work.

use std::io;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What the command writes as the answer.
pub(super) const ANSWER: &str = "42";
/// A task with this word, which no prompt has, is not answered.
pub(super) const HOLD: &str = "wait-for-no-answer";
/// Longest request, in bytes.
const MAX_REQUEST: usize = 16 << 20;

/// A model's server in this process, gone when this is dropped.
#[derive(Debug)]
pub struct StubModel {
    url: String,
    serving: JoinHandle<()>,
}

impl StubModel {
    /// Listens on a free port of the loopback address.
    ///
    /// # Errors
    /// If there is none.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let serving = tokio::spawn(async move {
            loop {
                // Without descriptors for another connection, those that exist go on.
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(serve(stream))),
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
                }
            }
        });
        Ok(Self { url, serving })
    }

    /// Its address, as servers of OpenAI's protocol have it.
    pub fn base_url(&self) -> &str {
        &self.url
    }
}

impl Drop for StubModel {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Answers the requests of one connection.
async fn serve(stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(body) = receive(&mut stream).await? {
        let text = String::from_utf8_lossy(&body);
        if text.contains(HOLD) {
            // Until the client gives up.
            let _ = stream.read_u8().await;
            return Ok(());
        }
        let events = answer(&serde_json::from_slice(&body)?);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n",
            events.len()
        );
        stream.get_mut().write_all((head + &events).as_bytes()).await?;
    }
    Ok(())
}

/// The body of the next request; `None` if there is none.
async fn receive(stream: &mut BufReader<TcpStream>) -> Result<Option<Vec<u8>>> {
    let mut length = 0;
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let field = line.trim().to_ascii_lowercase();
        if field.is_empty() {
            anyhow::ensure!(length <= MAX_REQUEST, "the request is too long");
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await?;
            return Ok(Some(body));
        }
        if let Some(value) = field.strip_prefix("content-length:") {
            length = value.trim().parse().context("a length")?;
        }
        line.clear();
    }
    Ok(None)
}

/// The response to a request, as events.
fn answer(request: &Value) -> String {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let turn = messages.iter().filter(|message| message["role"] == "assistant").count();
    let (name, arguments) = match turn {
        0 => {
            let command = format!("echo {ANSWER} > /testbed/output/answer.txt");
            ("execute_bash", json!({ "command": command }))
        }
        _ => ("submit", json!({})),
    };
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    let id = format!("call_{turn}");
    let call = json!({ "index": 0, "id": id, "type": "function", "function": function });
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 });
    let chunk = |delta: Value, finish: Value, usage: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        let chunk = json!({
            "id": "perf", "object": "chat.completion.chunk", "created": 1, "model": "perf",
            "choices": [choice], "usage": usage,
        });
        format!("data: {chunk}\n\n")
    };
    let delta = json!({ "role": "assistant", "content": "", "tool_calls": [call] });
    let first = chunk(delta, Value::Null, Value::Null);
    let last = chunk(json!({}), json!("tool_calls"), usage);
    format!("{first}{last}data: [DONE]\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_answers_on_one_connection_and_holds_what_it_is_told_to() {
        let stub = StubModel::start().await.unwrap();
        let address = stub.base_url().trim_start_matches("http://").trim_end_matches("/v1");
        let mut stream = TcpStream::connect(address).await.unwrap();
        for (messages, expected) in [
            (json!([]), "execute_bash"),
            (json!([{ "role": "assistant" }]), "submit"),
            (json!([{ "content": HOLD }]), ""),
        ] {
            let body = json!({ "messages": messages }).to_string();
            let request =
                format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            let mut piece = [0; 4096];
            let answered = async {
                while !answer.contains("[DONE]") {
                    let read = stream.read(&mut piece).await.unwrap();
                    answer.push_str(std::str::from_utf8(&piece[..read]).unwrap());
                }
            };
            let soon =
                std::time::Duration::from_millis(if expected.is_empty() { 50 } else { 5000 });
            let done = tokio::time::timeout(soon, answered).await.is_ok();
            assert_eq!((done, answer.contains(expected)), (!expected.is_empty(), true), "{answer}");
        }
    }
}
