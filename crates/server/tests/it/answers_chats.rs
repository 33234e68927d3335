//! Chats: OpenAI's own package, the page's snippets, many at once, clients that disappear, models that are dead.

use std::{
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use episodes::{EpisodeOptions, ServedModel, Store};
use lis_server::{ChatOptions, FileLimits, FileStore, ServeOptions};
use model::{Endpoint, OpenAi, Request, SharedModel};
use reqwest::Method;
use sandbox::{RemoteRuntime, Runtime};
use sandbox_testkit::{setting, skip};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{ScriptedModel, Step, Turn, UnusedPort, bash, say, submit};
use tokio::process::Command;
use trajectory::{Content, Message};

use crate::support::{TestServer, becomes, with_server};

const OUT: &str = "/testbed/output";

/// The text of a message.
fn text(message: &Message) -> String {
    let content = match message {
        Message::User { content } => content,
        Message::Assistant(message) => return message.text.clone(),
        Message::System { .. } | Message::Tool(_) => return String::new(),
    };
    content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
}

/// What the scripted model does: what the task says.
fn act(request: &Request<'_>) -> Step {
    let users = request.messages.iter().filter(|message| matches!(message, Message::User { .. }));
    let task = users.map(text).find(|text| text.contains("answer.txt")).unwrap_or_default();
    let has_acted = matches!(request.messages.last(), Some(Message::Tool(_)));
    let word = |word: &str| task.contains(word);
    let command = match () {
        () if word("talk") => return say("Hello there.").tokens(10, 5).into(),
        () if word("endless") => "true".to_owned(),
        () if has_acted => return submit().tokens(20, 5).into(),
        () if word("count") => {
            format!(
                "wc -w < /testbed/input/words.txt > {OUT}/answer.txt || echo 0 > {OUT}/answer.txt"
            )
        }
        () if word("table") => format!(
            "mkdir -p {OUT}/tables; printf '1\\n2\\n' > {OUT}/tables/numbers.csv; \
             echo two rows > {OUT}/answer.txt"
        ),
        () if word("remember") => format!("echo kept > /testbed/note; echo ok > {OUT}/answer.txt"),
        () if word("recall") => format!("cp /testbed/note {OUT}/answer.txt"),
        () if word("history") => {
            let before: Vec<String> = request.messages.iter().map(text).collect();
            let at = before.iter().position(|text| text.contains("My name")).unwrap_or_default();
            let instruction = task.lines().next().unwrap_or_default();
            format!("echo '{} | {} | {instruction}' > {OUT}/answer.txt", before[at], before[at + 1])
        }
        () if word("sleep") => "sleep 600".to_owned(),
        () => "true".to_owned(),
    };
    let turn: Turn = bash(command);
    turn.tokens(10, 5).into()
}

/// Options that serve a model.
pub(crate) fn options(model: SharedModel, data: &TempDir) -> ServeOptions {
    let store = Arc::new(Store::open(&data.path().join("episodes")).unwrap());
    let files = FileStore::open(data.path().join("files"), FileLimits::default()).unwrap();
    let mut episodes = EpisodeOptions::new(store, vec![ServedModel::new(model)]);
    episodes.limits.turns = 6;
    let chat =
        ChatOptions { heartbeat: Duration::from_millis(50), ..ChatOptions::new(Arc::new(files)) };
    ServeOptions { episodes: Some(episodes), chat: Some(chat), ..ServeOptions::default() }
}

fn with_chats(test: impl AsyncFnOnce(&TestServer)) {
    let data = tempfile::tempdir().unwrap();
    let model = SharedModel::new(ScriptedModel::answering(act));
    with_server(options(model, &data), test);
}

fn question(text: &str, stream: bool) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }], "stream": stream })
}

impl TestServer {
    fn chat(&self, body: &Value) -> reqwest::RequestBuilder {
        self.request(Method::POST, "/v1/chat/completions").json(body)
    }
}

/// Runs a client's program with OpenAI's package.
async fn run(server: &TestServer, mut command: Command) -> String {
    let Some(package) = setting("LIS_TEST_OPENAI") else { return "done\n".into() };
    // Snippets write files.
    let dir = tempfile::tempdir().unwrap();
    let output = command
        .current_dir(dir.path())
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("PYTHONPATH", package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OPENAI_BASE_URL", format!("http://{}/v1", server.address))
        .env("OPENAI_API_KEY", "any")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = output.await.unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    text.into_owned()
}

fn has_package() -> bool {
    let found = setting("LIS_TEST_OPENAI").is_some();
    if !found {
        skip("pip", "LIS_TEST_OPENAI names no directory with the package openai");
    }
    found
}

#[test]
fn the_openai_package() {
    if !has_package() {
        return;
    }
    with_chats(async |server| {
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("../clients/openai_client.py")]);
        assert_eq!(run(server, command).await, "done\n");
    });
}

/// The code blocks of a section of the page.
fn snippets(page: &str, section: &str, kind: &str) -> Vec<String> {
    let section = page.split("\n## ").find(|part| part.starts_with(section)).unwrap();
    let opening = format!("```{kind}\n");
    let blocks = section.split(&opening).skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_snippets_of_the_page() {
    if !has_package() {
        return;
    }
    with_chats(async |server| {
        let page = include_str!("../../../../docs/server.md");
        let python = snippets(page, "Chat with a model", "python");
        let shell = snippets(page, "Chat with a model", "sh");
        assert!(python.len() >= 2 && shell.len() >= 2);
        let address = server.address.to_string();
        // In one process: importing the package takes longest.
        let mut command = Command::new("python3");
        command.args(["-c", &python.join("\n")]);
        let text = run(server, command).await;
        assert!(text.lines().count() >= python.len(), "{text}");
        for snippet in shell.iter().filter(|snippet| snippet.contains("curl")) {
            let mut command = Command::new("bash");
            let script = format!("set -e; {}", snippet.replace("127.0.0.1:7777", &address));
            command.args(["-c", &script]);
            let text = run(server, command).await;
            assert!(
                text.contains("\"object\"") && !text.contains("\"error\""),
                "{snippet}\n{text}"
            );
        }
    });
}

#[test]
fn many_at_once() {
    with_chats(async |server| {
        let asked = (0..64).map(|number| {
            let body = question(&format!("count {number}"), number % 2 == 0);
            async move {
                let answer = server.chat(&body).send().await.unwrap();
                assert_eq!(answer.status(), 200);
                let text = answer.text().await.unwrap();
                assert!(text.contains(r#""finish_reason":"stop""#), "{text}");
            }
        });
        futures_util::future::join_all(asked).await;
        becomes(server, 0).await;
    });
}

#[test]
fn a_client_that_disappears_frees_its_sandbox() {
    with_chats(async |server| {
        for stream in [true, false] {
            let body = question("sleep", stream);
            let mut asked = Box::pin(server.chat(&body).send());
            let waiting = tokio::time::timeout(Duration::from_millis(100), &mut asked);
            let answer = waiting.await;
            becomes(server, 1).await;
            if stream {
                let mut answer = match answer {
                    Ok(answer) => answer.unwrap(),
                    Err(_) => asked.await.unwrap(),
                };
                // Comments keep it alive meanwhile.
                let mut text = String::new();
                while !text.contains("sleep 600") || !text.contains(": still writing") {
                    text += &String::from_utf8_lossy(&answer.chunk().await.unwrap().unwrap());
                }
                drop(answer);
            } else {
                drop(asked);
            }
            becomes(server, 0).await;
        }
        // The result is stored once the sandbox is gone.
        let begun = Instant::now();
        loop {
            let listed = server.request(Method::GET, "/v1/episodes").send().await.unwrap();
            let text = listed.text().await.unwrap();
            if text.matches(r#""state":"cancelled""#).count() == 2 {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{text}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn a_dead_model_is_no_answer() {
    let data = tempfile::tempdir().unwrap();
    let port = UnusedPort::new().unwrap();
    let model = OpenAi::new(Endpoint::new("dead", port.base_url().unwrap())).unwrap();
    let mut options = options(SharedModel::new(model), &data);
    if let Some(chat) = &mut options.chat {
        chat.heartbeat = Duration::from_secs(15);
    }
    with_server(options, async |server| {
        for stream in [true, false] {
            let answer = server.chat(&question("talk", stream)).send().await.unwrap();
            assert_eq!(answer.status(), 502);
            assert!(answer.headers().contains_key("x-episode-id"));
            let body: Value = answer.json().await.unwrap();
            assert_eq!(body["error"]["code"], "model_unavailable", "{body}");
            assert_eq!(body["error"]["type"], "server_error", "{body}");
        }
        becomes(server, 0).await;
    });
}

#[test]
fn a_kept_sandbox_is_forgotten_with_its_files() {
    let data = tempfile::tempdir().unwrap();
    let model = SharedModel::new(ScriptedModel::answering(act));
    let mut options = options(model, &data);
    if let Some(chat) = &mut options.chat {
        chat.sandbox_lifetime = Duration::from_millis(300);
    }
    with_server(options, async |server| {
        let mut body = question("remember", false);
        body["sandbox"] = json!("new");
        let answer = server.chat(&body).send().await.unwrap();
        let id = answer.headers()["x-sandbox-id"].to_str().unwrap().to_owned();
        let episode = answer.headers()["x-episode-id"].to_str().unwrap().to_owned();
        let image = format!("episode-{}-end", episode.trim_start_matches("ep_"));
        assert!(server.runtime.has_image(&image).await.unwrap());
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(!server.runtime.has_image(&image).await.unwrap());
        body["sandbox"] = json!(id);
        let answer = server.chat(&body).send().await.unwrap();
        assert_eq!(answer.status(), 404);
        assert_eq!(answer.json::<Value>().await.unwrap()["error"]["code"], "sandbox_not_found");
    });
}

#[test]
fn a_server_without_a_model_says_so() {
    with_server(ServeOptions::default(), async |server| {
        let answer = server.chat(&question("talk", false)).send().await.unwrap();
        assert_eq!(answer.status(), 501);
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["error"]["message"], "this server has no model");
        assert!(server.runtime.list().await.unwrap().is_empty());
    });
}
