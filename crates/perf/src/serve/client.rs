//! The few requests of the server's protocols that are measured.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lis_http::{ClientSettings, Transport, read_body};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

/// Longest response that is read, in bytes.
const MAX_RESPONSE: u64 = 1 << 20;

/// Longest silence of the server.
const MAX_SILENCE: Duration = Duration::from_secs(120);

/// A sandbox, as its creator knows it.
pub(super) struct Created {
    id: String,
    token: Option<String>,
}

pub(super) struct ServeClient {
    http: Client,
    url: String,
}

impl ServeClient {
    pub(super) fn new(url: &str) -> Result<Self> {
        let settings = ClientSettings {
            read_timeout: Some(MAX_SILENCE),
            redirects: 0,
            transport: Transport::Loopback,
            ..ClientSettings::default()
        };
        Ok(Self { http: settings.build()?, url: url.trim_end_matches('/').to_owned() })
    }

    pub(super) async fn create(&self) -> Result<Created> {
        let body = json!({ "templateID": "base", "timeout": 600 }).to_string();
        let request = self.http.post(format!("{}/v2/sandboxes", self.url));
        let response = request.header("Content-Type", "application/json").body(body).send().await?;
        let status = response.status();
        let body = read_body(response, MAX_RESPONSE).await?;
        ensure!(status == StatusCode::CREATED, "the server answered {status}: {}", shown(&body));
        let value: Value = serde_json::from_slice(&body)?;
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let id = text("sandboxID").context("the server named no sandbox")?;
        Ok(Created { id, token: text("envdAccessToken") })
    }

    pub(super) async fn end(&self, sandbox: &Created) -> Result<()> {
        let response =
            self.http.delete(format!("{}/sandboxes/{}", self.url, sandbox.id)).send().await?;
        ensure!(response.status().is_success(), "the server answered {}", response.status());
        Ok(())
    }

    /// Runs `echo hi` and checks its output and its exit code.
    pub(super) async fn hello(&self, sandbox: &Created) -> Result<()> {
        let response = self.start(sandbox, "echo hi").send().await?;
        let body = read_body(checked(response).await?, MAX_RESPONSE).await?;
        let events = messages(&body).context("the stream is cut off")?;
        let of = |kind: &str| events.iter().find(|event| !event["event"][kind].is_null());
        // `hi` and a line feed, in base64.
        let printed = of("data").is_some_and(|event| event["event"]["data"]["stdout"] == "aGkK");
        let ended = of("end").is_some_and(|event| event["event"]["end"]["exited"] == true);
        ensure!(printed && ended, "`echo hi` was answered with {}", shown(&body));
        Ok(())
    }

    /// Starts a program that waits, and returns its stream after the first message.
    pub(super) async fn wait_in(&self, sandbox: &Created) -> Result<Response> {
        let mut response = checked(self.start(sandbox, "echo on; sleep 600").send().await?).await?;
        response.chunk().await?.context("the stream ended before its first message")?;
        Ok(response)
    }

    fn start(&self, sandbox: &Created, script: &str) -> RequestBuilder {
        let message =
            json!({ "process": { "cmd": "/bin/bash", "args": ["-c", script] }, "stdin": false });
        let message = message.to_string().into_bytes();
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
        let mut request = self
            .http
            .post(format!("{}/process.Process/Start", self.url))
            .header("Content-Type", "application/connect+json")
            .header("E2b-Sandbox-Id", &sandbox.id);
        if let Some(token) = &sandbox.token {
            request = request.header("X-Access-Token", token);
        }
        request.body([&[0], &length[..], &message].concat())
    }

    /// Sends JSON and reads JSON.
    async fn post(&self, path: &str, body: &Value) -> Result<(StatusCode, Value)> {
        let request = self.http.post(format!("{}{path}", self.url));
        let request = request.header("Content-Type", "application/json").body(body.to_string());
        let response = request.send().await?;
        let status = response.status();
        let body = read_body(response, MAX_RESPONSE).await?;
        ensure!(status.is_success(), "the server answered {status}: {}", shown(&body));
        Ok((status, serde_json::from_slice(&body)?))
    }

    /// Asks a question and checks the answer, which a command in a sandbox wrote.
    pub(super) async fn chat(&self, answer: &str) -> Result<()> {
        let message = json!({ "role": "user", "content": "What is the answer?" });
        let (_, value) =
            self.post("/v1/chat/completions", &json!({ "messages": [message] })).await?;
        let content = value["choices"][0]["message"]["content"].as_str().unwrap_or_default();
        ensure!(content.contains(answer), "the answer is {content:?}");
        Ok(())
    }

    /// Starts an episode; its path.
    pub(super) async fn start_episode(&self, task: &str) -> Result<String> {
        let (_, value) = self.post("/v1/episodes", &json!({ "task": task })).await?;
        let id = value["id"].as_str().context("the server named no episode")?;
        Ok(format!("/v1/episodes/{id}"))
    }

    /// The stream of an episode's events, after the first of them.
    pub(super) async fn follow(&self, episode: &str) -> Result<Response> {
        let request = self.http.get(format!("{}{episode}/events", self.url));
        let mut response = checked(request.send().await?).await?;
        response.chunk().await?.context("the stream ended before its first event")?;
        Ok(response)
    }

    /// Plays an episode to its end and checks its answer.
    pub(super) async fn episode(&self, task: &str, answer: &str) -> Result<()> {
        let episode = self.start_episode(task).await?;
        let mut events = self.follow(&episode).await?;
        while events.chunk().await?.is_some() {}
        let request = self.http.get(format!("{}{episode}", self.url));
        let body = read_body(checked(request.send().await?).await?, MAX_RESPONSE).await?;
        let value: Value = serde_json::from_slice(&body)?;
        let found = value["result"]["answer"].as_str().unwrap_or_default();
        ensure!(found.contains(answer), "the episode ended with {}", shown(&body));
        Ok(())
    }

    /// Ends a running episode.
    pub(super) async fn cancel(&self, episode: &str) -> Result<()> {
        self.post(&format!("{episode}/cancel"), &json!({})).await.map(drop)
    }
}

async fn checked(response: Response) -> Result<Response> {
    let status = response.status();
    if !status.is_success() {
        let body = read_body(response, MAX_RESPONSE).await?;
        anyhow::bail!("the server answered {status}: {}", shown(&body));
    }
    Ok(response)
}

/// The start of a response, for an error message.
fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(300)]).escape_debug().to_string()
}

/// The messages of a whole stream, each after its flags and its length; `None` if one is incomplete.
fn messages(mut body: &[u8]) -> Option<Vec<Value>> {
    let mut all = Vec::new();
    while !body.is_empty() {
        let (&[_, a, b, c, d], rest) = body.split_first_chunk::<5>()?;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
        let (message, rest) = rest.split_at_checked(length)?;
        all.push(serde_json::from_slice(message).ok()?);
        body = rest;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_split_and_must_be_whole() {
        let body = b"\0\0\0\0\x02{}\x02\0\0\0\x07{\"a\":1}";
        assert_eq!(messages(body), Some(vec![json!({}), json!({ "a": 1 })]));
        assert_eq!(messages(&body[..body.len() - 1]), None);
        assert_eq!(messages(b"\0\xff\xff\xff\xff{}"), None);
        assert_eq!(messages(b""), Some(Vec::new()));
    }
}
