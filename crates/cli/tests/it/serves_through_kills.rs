//! The real server is killed at random moments while clients use every part of it: what was acknowledged is there afterwards,
//! and what ended with it says so.
//!
//! With `LIS_SLOW` set it is killed 50 times.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Answer, MockServer, bash, submit};

use crate::{
    serves_episodes::{Server, serve},
    support::{Home, crate_path, setting, unique_sleep, wait_for},
    survives_kills::{Dice, control_groups, mounts_of, processes_with},
};

fn kills() -> u32 {
    if setting("LIS_SLOW").is_some() { 50 } else { 4 }
}

/// What chats ask for; no prompt has these words.
const REMEMBER: &str = "remember-this-word";
const RECALL: &str = "recall-that-word";
/// Steps of an episode.
const STEPS: usize = 4;
/// What each client does at most until the server is killed.
const MOST: usize = 3;
/// The file with the answer.
const ANSWER: &str = "/testbed/output/answer.txt";

/// A model that writes lists in episodes, and notes in chats.
fn model() -> MockServer {
    MockServer::answering(|asked| {
        let turn = match asked.turns() {
            spoken if asked.mentions(REMEMBER) => match spoken {
                0 => bash(format!("cp /testbed/input/word /testbed/note; echo ok > {ANSWER}")),
                _ => submit(),
            },
            0 if asked.mentions(RECALL) => bash(format!("cp /testbed/note {ANSWER}")),
            _ if asked.mentions(RECALL) => submit(),
            STEPS => bash("cd /testbed/output && paste -sd' ' list > answer.txt"),
            spoken if spoken > STEPS => submit(),
            spoken => bash(format!("echo {spoken} >> /testbed/output/list")),
        };
        Answer::says(turn).after(Duration::from_millis(5))
    })
    .unwrap()
}

/// What the server has acknowledged to its clients.
#[derive(Default)]
struct Acknowledged {
    episodes: Vec<String>,
    sandboxes: Vec<String>,
    /// Ids of files, with their content.
    files: Vec<(String, String)>,
    /// Ids of kept sandboxes, with the word that is in them.
    kept: Vec<(String, String)>,
    /// Names of snapshots, with the file that is in them.
    snapshots: Vec<String>,
    sessions: Vec<String>,
}

/// A client of a server that may be killed at any moment.
struct Client<'a> {
    address: &'a str,
    acknowledged: &'a Mutex<Acknowledged>,
    /// Answers that all clients got.
    answers: &'a AtomicUsize,
}

impl Client<'_> {
    /// Sends a request; the status and the body of a whole answer.
    fn exchange(&self, head: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        let request = format!(
            "{head}\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let body = match length {
            Some(length) => Some(body.to_owned()).filter(|body| length.parse() == Ok(body.len())),
            None if head.contains("transfer-encoding: chunked") => joined(body),
            None => Some(body.to_owned()),
        };
        self.answers.fetch_add(1, Ordering::SeqCst);
        Some((status, body?))
    }

    /// Sends JSON; the JSON of an answer that must have this status.
    fn send(&self, method: &str, path: &str, body: &Value, status: u16) -> Option<Value> {
        let head = format!("{method} {path} HTTP/1.1\r\nContent-Type: application/json");
        let (got, text) = self.exchange(&head, &body.to_string())?;
        // A server that is just killed cannot refuse.
        assert_eq!(got, status, "{method} {path}: {text}");
        Some(serde_json::from_str(&text).unwrap_or_default())
    }

    fn chat(&self, text: &str, word: Option<&str>, sandbox: Option<&str>) -> Option<Value> {
        let mut content = vec![json!({ "type": "text", "text": text })];
        content.extend(word.map(|word| {
            let file = json!({ "filename": "word", "file_data": base64(word) });
            json!({ "type": "file", "file": file })
        }));
        let mut body = json!({ "messages": [{ "role": "user", "content": content }] });
        if let Some(sandbox) = sandbox {
            body["sandbox"] = json!(sandbox);
        }
        self.send("POST", "/v1/chat/completions", &body, 200)
    }

    fn acknowledged(&self) -> std::sync::MutexGuard<'_, Acknowledged> {
        self.acknowledged.lock().unwrap()
    }

    fn keep_sandbox(&self, word: &str) -> Option<()> {
        let answer = self.chat(REMEMBER, Some(word), Some("new"))?;
        let id = answer["episode"]["sandbox"]["id"].as_str().unwrap().to_owned();
        self.acknowledged().kept.push((id, word.to_owned()));
        Some(())
    }

    fn upload(&self, content: &str) -> Option<()> {
        let part = |name: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"");
        let body = [
            part("purpose") + "\r\n\r\nuser_data\r\n",
            part("file") + "; filename=\"a\"\r\n\r\n" + content,
            "\r\n--b--\r\n".to_owned(),
        ]
        .concat();
        let head = "POST /v1/files HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b";
        let (status, text) = self.exchange(head, &body)?;
        assert_eq!(status, 200, "{text}");
        let file: Value = serde_json::from_str(&text).unwrap();
        self.acknowledged()
            .files
            .push((file["id"].as_str().unwrap().to_owned(), content.to_owned()));
        Some(())
    }

    fn save_snapshot(&self, name: &str) -> Option<()> {
        let new = json!({ "templateID": "base", "timeout": 600 });
        let sandbox = self.send("POST", "/v2/sandboxes", &new, 201)?;
        let (id, token) = (text(&sandbox, "sandboxID"), text(&sandbox, "envdAccessToken"));
        self.acknowledged().sandboxes.push(format!("/sandboxes/{id}"));
        let head = format!(
            "POST /files?path=/home/user/name HTTP/1.1\r\nE2b-Sandbox-Id: {id}\r\nX-Access-Token: \
             {token}\r\nContent-Type: application/octet-stream"
        );
        assert_eq!(self.exchange(&head, name)?.0, 200);
        let path = format!("/sandboxes/{id}/snapshots");
        self.send("POST", &path, &json!({ "name": name }), 201)?;
        self.acknowledged().snapshots.push(name.to_owned());
        Some(())
    }

    fn play_session(&self) -> Option<()> {
        let reset = self.send("POST", "/v1/environments/receipts/reset", &json!({}), 200)?;
        let path = format!("/v1/sessions/{}", text(&reset, "session"));
        self.acknowledged().sessions.push(path.clone());
        let function = json!({ "name": "execute_bash", "arguments": "{\"command\": \"true\"}" });
        let message = json!({ "tool_calls": [{ "function": function }] });
        self.send("POST", &format!("{path}/step"), &json!({ "message": message }), 200)?;
        self.send("POST", &format!("{path}/score"), &json!({}), 200)?;
        Some(())
    }

    fn start_episode(&self) -> Option<()> {
        let task = json!({ "task": "Make a list" });
        let info = self.send("POST", "/v1/episodes", &task, 201)?;
        self.acknowledged().episodes.push(format!("/v1/episodes/{}", text(&info, "id")));
        Some(())
    }
}

/// The content of a whole body in chunks.
pub(crate) fn joined(mut chunks: &str) -> Option<String> {
    let mut content = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).ok()?;
        content += rest.get(..length)?;
        chunks = rest[length..].strip_prefix("\r\n")?;
        if length == 0 {
            return Some(content);
        }
    }
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}")).to_owned()
}

/// Of ASCII text whose length is a multiple of three.
fn base64(text: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    assert_eq!(text.len() % 3, 0);
    let of = |bits: u32| char::from(LETTERS[(bits & 63) as usize]);
    let encoded = text.as_bytes().chunks(3).flat_map(|three| {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
        [of(bits >> 18), of(bits >> 12), of(bits >> 6), of(bits)]
    });
    encoded.collect()
}

/// A server of episodes, chats and environments.
fn start(home: &Home, base_url: &str, data: &Path) -> Server {
    let mut command: Command = serve(home, base_url, data);
    Server::start({
        command.arg("--task").arg(crate_path("../../examples/tasks/receipts"));
        command
    })
}

/// Uses every part of the server at once until it is killed.
fn use_all(client: &Client<'_>, round: u32, kill: impl FnOnce()) {
    // Each client ends with its server.
    let repeat = |action: &(dyn Fn(usize) -> Option<()> + Sync)| (0..MOST).try_for_each(action);
    std::thread::scope(|scope| {
        scope.spawn(|| repeat(&|_| client.start_episode()));
        scope.spawn(|| repeat(&|_| client.chat(REMEMBER, Some("abc"), None).map(drop)));
        scope.spawn(|| client.keep_sandbox(&format!("the-word-{round:03}")));
        scope.spawn(|| repeat(&|at| client.upload(&format!("file {round} {at}"))));
        scope.spawn(|| client.save_snapshot(&format!("snapped-{round}")));
        scope.spawn(|| repeat(&|_| client.play_session()));
        kill();
    });
}

/// Checks a new server against what earlier ones have acknowledged; `since` are the counts before the last round.
fn check(client: &Client<'_>, finished: &mut Vec<String>, since: [usize; 2]) {
    let acknowledged = std::mem::take(&mut *client.acknowledged());
    let get = |path: &str, status: u16| client.send("GET", path, &json!({}), status).unwrap();
    for path in &acknowledged.sandboxes {
        let gone = get(path, 404);
        let message = text(&gone, "message");
        assert!(message.ends_with("it ended with the server that ran it"), "{message}");
    }
    for path in &acknowledged.sessions {
        get(path, 404);
    }
    for path in &acknowledged.episodes {
        let info = get(path, 200);
        match info["state"].as_str().unwrap() {
            "finished" => {
                assert_eq!(info["result"]["answer"], "0 1 2 3", "{info}");
                finished.push(path.clone());
            }
            state => {
                assert_eq!(state, "interrupted", "{info}");
                assert!(!finished.contains(path), "{path} was finished before");
                client.send("POST", &format!("{path}/resume"), &json!({}), 202).unwrap();
            }
        }
    }
    for (id, content) in &acknowledged.files {
        let head = format!("GET /v1/files/{id}/content HTTP/1.1");
        assert_eq!(client.exchange(&head, "").unwrap(), (200, content.clone()));
    }
    for (id, word) in &acknowledged.kept[since[0]..] {
        let answer = client.chat(RECALL, None, Some(id)).unwrap();
        assert_eq!(answer["episode"]["answer"], json!(word), "{answer}");
    }
    let listed = get("/snapshots", 200);
    for name in &acknowledged.snapshots {
        let is_it = |snapshot: &Value| snapshot["snapshotID"] == json!(name);
        assert!(listed.as_array().unwrap().iter().any(is_it), "{name}: {listed}");
    }
    for name in &acknowledged.snapshots[since[1]..] {
        let new = json!({ "templateID": name, "timeout": 600 });
        let sandbox = client.send("POST", "/v2/sandboxes", &new, 201).unwrap();
        let (id, token) = (text(&sandbox, "sandboxID"), text(&sandbox, "envdAccessToken"));
        let head = format!(
            "GET /files?path=/home/user/name HTTP/1.1\r\nE2b-Sandbox-Id: {id}\r\nX-Access-Token: {token}"
        );
        assert_eq!(client.exchange(&head, "").unwrap(), (200, name.clone()));
        client.send("DELETE", &format!("/sandboxes/{id}"), &json!({}), 204).unwrap();
    }
    *client.acknowledged() = acknowledged;
}

#[test]
fn random_moment_kills_of_a_server_lose_nothing_and_leave_nothing() {
    let Some(home) = Home::with_sandboxes() else { return };
    let (model, data, begun) = (model(), home.file("data"), Instant::now());
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let (acknowledged, mut finished, mut since) =
        (Mutex::new(Acknowledged::default()), Vec::new(), [0; 2]);
    let counts = || {
        let acknowledged = acknowledged.lock().unwrap();
        [acknowledged.kept.len(), acknowledged.snapshots.len()]
    };
    for round in 0..kills() {
        let mut server = start(&home, &model.base_url(), &data);
        let (address, answers) = (server.address.clone(), AtomicUsize::new(0));
        let client = Client { address: &address, acknowledged: &acknowledged, answers: &answers };
        check(&client, &mut finished, since);
        since = counts();
        let sleep = unique_sleep();
        let (path, _output) = server.start_program(&sleep.join(" "));
        acknowledged.lock().unwrap().sandboxes.push(path);
        let wanted = answers.load(Ordering::SeqCst) + usize::try_from(dice.roll(20)).unwrap();
        use_all(&client, round, || {
            wait_for("answers", || {
                let acknowledged = acknowledged.lock().unwrap();
                // At least one of everything.
                let all = !acknowledged.kept.is_empty() && !acknowledged.snapshots.is_empty();
                (answers.load(Ordering::SeqCst) >= wanted && all).then_some(())
            });
            std::thread::sleep(Duration::from_millis(dice.roll(30)));
            server.process.signal(Signal::KILL);
            server.process.0.wait().unwrap();
        });
        let own = format!("lis-{}-", server.process.0.id());
        wait_for(&format!("clean-up after round {round}"), || {
            let clean = home.traces().is_empty()
                && !control_groups().iter().any(|group| group.contains(&own))
                && processes_with(&sleep.join("\0")).is_empty();
            clean.then_some(())
        });
    }
    assert_eq!(mounts_of(&home.state()), Vec::<String>::new());
    let mut server = start(&home, &model.base_url(), &data);
    let (address, answers) = (server.address.clone(), AtomicUsize::new(0));
    let client = Client { address: &address, acknowledged: &acknowledged, answers: &answers };
    check(&client, &mut finished, since);
    let acknowledged = acknowledged.lock().unwrap();
    assert!(
        !acknowledged.files.is_empty() && !acknowledged.episodes.is_empty(),
        "nothing was done"
    );
    for path in &acknowledged.episodes {
        wait_for("the end", || (server.get(path)["state"] != "running").then_some(()));
        let info = server.get(path);
        assert_eq!(info["state"], "finished", "{info}");
        assert_eq!(info["result"]["answer"], "0 1 2 3", "{info}");
    }
    server.process.signal(Signal::TERM);
    server.process.0.wait().unwrap();
    wait_for("clean-up", || home.traces().is_empty().then_some(()));
    println!(
        "{} kills of a server in {:.0?}: {} episodes, {} files, {} snapshots, {} kept sandboxes, {} sandboxes, {} sessions; \
         nothing was lost or left",
        kills(),
        begun.elapsed(),
        acknowledged.episodes.len(),
        acknowledged.files.len(),
        acknowledged.snapshots.len(),
        acknowledged.kept.len(),
        acknowledged.sandboxes.len(),
        acknowledged.sessions.len(),
    );
}
