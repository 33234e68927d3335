//! The clock of the machine is set while the real server runs: nothing ends early, late or never, and lists stay whole.
//!
//! A small C library shifts the time of day that the server sees, and nothing else.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Answer, MockServer, bash, submit};

use crate::{
    serves_episodes::{Server, serve},
    serves_through_kills::joined,
    support::{Home, crate_path, skip, wait_for},
};

/// In place of the C library's functions: the time of day plus the seconds in a file.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    char text[32] = {0};
    int before = errno, file = open(getenv("CLOCK_SHIFT_FILE"), O_RDONLY | O_CLOEXEC);
    if (file >= 0 && read(file, text, sizeof text - 1) < 0) text[0] = 0;
    if (file >= 0) close(file);
    errno = before;
    return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *now) {
    struct timeval exact;
    gettimeofday(&exact, NULL);
    return now ? *now = exact.tv_sec : exact.tv_sec;
}
"#;

const DAY: i64 = 24 * 3600;
/// What chats ask for; no prompt has these words.
const REMEMBER: &str = "remember-this-word";
const RECALL: &str = "recall-that-word";

/// The clock of a server.
struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// Nothing where there is no C compiler.
    fn build(home: &Home) -> Option<Self> {
        let (source, library) = (home.file("clock.c"), home.file("clock.so"));
        fs::write(&source, SHIM).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        let Ok(built) = compiler.output() else {
            skip("cc", "there is no C compiler");
            return None;
        };
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let clock = Self { library, file: home.file("clock-shift") };
        clock.shift(0);
        Some(clock)
    }

    /// From now on the server sees the real time of day plus so many seconds.
    fn shift(&self, seconds: i64) {
        let new = self.file.with_extension("new");
        fs::write(&new, seconds.to_string()).unwrap();
        // At once: the server may read it now.
        fs::rename(new, &self.file).unwrap();
    }

    /// A server of episodes, chats and environments with this clock.
    fn serve(&self, home: &Home, model: &MockServer) -> Server {
        let mut command = serve(home, &model.base_url(), &home.file("data"));
        command.arg("--task").arg(crate_path("../../examples/tasks/receipts"));
        command.args(["--lease", "1h", "--max-turns", "1000"]);
        command.env("LD_PRELOAD", &self.library).env("CLOCK_SHIFT_FILE", &self.file);
        Server::start(command)
    }
}

/// A model that remembers a word in chats, and in episodes works until it is told to end.
fn model(is_over: &Arc<AtomicBool>) -> MockServer {
    const ANSWER: &str = "/testbed/output/answer.txt";
    let is_over = Arc::clone(is_over);
    MockServer::answering(move |asked| {
        let first = asked.turns() == 0;
        let turn = match () {
            () if asked.mentions(REMEMBER) && first => {
                bash(format!("echo kept > /testbed/note; echo ok > {ANSWER}"))
            }
            () if asked.mentions(RECALL) && first => bash(format!("cp /testbed/note {ANSWER}")),
            () if asked.mentions(REMEMBER) || asked.mentions(RECALL) => submit(),
            () if is_over.load(Ordering::SeqCst) => submit(),
            () => bash("true"),
        };
        Answer::says(turn).after(Duration::from_millis(200))
    })
    .unwrap()
}

impl Server {
    /// Sends a request; the status, the head and the body of the response.
    fn exchange(&self, head: &str, body: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!(
            "{head}\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let is_chunked = head.contains("transfer-encoding: chunked");
        let body = if is_chunked { joined(body).unwrap() } else { body.to_owned() };
        (status, head.to_owned(), body)
    }

    /// Posts JSON; the JSON of a response that must have this status.
    fn post(&self, path: &str, body: &Value, status: u16) -> Value {
        let (got, answer) = self.send("POST", path, Some(body));
        assert_eq!(got, status, "{path}: {answer}");
        answer
    }

    /// Creates a sandbox that lives for so many seconds; its path.
    fn create_sandbox(&self, timeout: u64) -> String {
        let new = json!({ "templateID": "base", "timeout": timeout });
        path("/sandboxes", &self.post("/v2/sandboxes", &new, 201)["sandboxID"])
    }

    /// Uploads a file that expires after an hour; its path.
    fn upload_for_an_hour(&self, content: &str) -> String {
        let part = |name: &str| format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"");
        let body = [
            part("purpose") + "\r\n\r\nuser_data\r\n",
            part("expires_after[anchor]") + "\r\n\r\ncreated_at\r\n",
            part("expires_after[seconds]") + "\r\n\r\n3600\r\n",
            part("file") + "; filename=\"a\"\r\n\r\n" + content,
            "\r\n--b--\r\n".to_owned(),
        ]
        .concat();
        let head = "POST /v1/files HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b";
        let (status, _, text) = self.exchange(head, &body);
        assert_eq!(status, 200, "{text}");
        path("/v1/files", &serde_json::from_str::<Value>(&text).unwrap()["id"])
    }

    /// A chat in a kept sandbox, or a new one.
    fn chat(&self, text: &str, sandbox: &str) -> Value {
        let message = json!({ "role": "user", "content": text });
        let body = json!({ "messages": [message], "sandbox": sandbox });
        self.post("/v1/chat/completions", &body, 200)["episode"].take()
    }

    /// Starts an episode of two minutes at most; its path.
    fn start_short_episode(&self) -> String {
        let task = json!({ "task": "Wait", "limits": { "time": 110 } });
        path("/v1/episodes", &self.post("/v1/episodes", &task, 201)["id"])
    }

    /// Follows the events of an episode after this number.
    fn follow(&self, episode: &str, after: u64) -> Numbers {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "GET {episode}/events HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nLast-Event-ID: {after}\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Numbers(BufReader::new(stream))
    }

    fn end(mut self) {
        self.process.signal(Signal::TERM);
        self.process.0.wait().unwrap();
    }
}

/// The numbers of events, as they arrive.
struct Numbers(BufReader<TcpStream>);

impl Iterator for Numbers {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(number) = line.strip_prefix("id: ") {
                return Some(number.trim().parse().unwrap());
            }
        }
    }
}

fn path(of: &str, id: &Value) -> String {
    format!("{of}/{}", id.as_str().unwrap_or_else(|| panic!("no id: {id}")))
}

/// All that a list has, by pages of one; nothing is listed twice.
fn listed(mut page: impl FnMut(Option<&str>) -> (Vec<String>, Option<String>)) -> BTreeSet<String> {
    let (mut found, mut next) = (BTreeSet::new(), None);
    loop {
        let (items, after) = page(next.as_deref());
        for item in items {
            assert!(!found.contains(&item), "{item} is listed twice");
            found.insert(item);
        }
        match after {
            Some(after) => next = Some(after),
            None => return found,
        }
    }
}

#[test]
fn a_clock_that_is_set_a_day_ahead_ends_nothing() {
    let Some(home) = Home::with_sandboxes() else { return };
    let Some(clock) = Clock::build(&home) else { return };
    let is_over = Arc::new(AtomicBool::new(false));
    let model = model(&is_over);
    let server = clock.serve(&home, &model);
    let (sandbox, mut output) = server.start_program("while :; do echo tick; sleep 0.1; done");
    let before = server.get(&sandbox);
    let kept = server.chat(REMEMBER, "new")["sandbox"]["id"].as_str().unwrap().to_owned();
    let file = server.upload_for_an_hour("content");
    let reset = server.post("/v1/environments/receipts/reset", &json!({}), 200);
    let session = path("/v1/sessions", &reset["session"]);
    let episode = server.start_short_episode();
    let mut events = server.follow(&episode, 0);
    assert_eq!(events.next(), Some(1));

    clock.shift(DAY);
    let new = server.get(&server.create_sandbox(600));
    let text = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
    assert!(text(&new, "startedAt") > text(&before, "endAt"), "the clock was not set: {new}");
    // Time for whoever waits.
    std::thread::sleep(Duration::from_secs(1));

    let after = server.get(&sandbox);
    assert_eq!(after["state"], "running");
    // It has as much time as before, by the new clock.
    assert!(text(&after, "endAt") > text(&new, "startedAt"), "{after}");
    // What the program wrote until now, then more.
    output.set_nonblocking(true).unwrap();
    while matches!(output.read(&mut [0; 4096]), Ok(1..)) {}
    output.set_nonblocking(false).unwrap();
    let mut more = String::new();
    while more.matches("stdout").count() < 3 {
        let mut piece = [0; 4096];
        let length = output.read(&mut piece).unwrap();
        assert!(length > 0, "the program ended: {more}");
        more += &String::from_utf8_lossy(&piece[..length]);
    }
    assert_eq!(server.chat(RECALL, &kept)["answer"], "kept");
    let content = server.exchange(&format!("GET {file}/content HTTP/1.1"), "");
    assert_eq!((content.0, content.2.as_str()), (200, "content"));
    server.post(&format!("{session}/heartbeat"), &json!({}), 200);
    let function = json!({ "name": "execute_bash", "arguments": "{\"command\": \"true\"}" });
    let message = json!({ "tool_calls": [{ "function": function }] });
    server.post(&format!("{session}/step"), &json!({ "message": message }), 200);
    assert_eq!(server.get(&episode)["state"], "running");
    is_over.store(true, Ordering::SeqCst);
    let rest: Vec<u64> = events.collect();
    assert!(rest.len() > 3 && rest.iter().copied().eq(2..2 + rest.len() as u64), "{rest:?}");
    wait_for("the end", || (server.get(&episode)["state"] != "running").then_some(()));
    assert_eq!(server.get(&episode)["state"], "finished");
    server.end();
}

#[test]
fn a_clock_that_is_set_back_prolongs_nothing_and_lists_stay_whole() {
    let Some(home) = Home::with_sandboxes() else { return };
    let Some(clock) = Clock::build(&home) else { return };
    let is_over = Arc::new(AtomicBool::new(false));
    let model = model(&is_over);
    let server = clock.serve(&home, &model);
    let (mut sandboxes, mut files, mut episodes) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut add = |server: &Server, count: usize| {
        for number in 0..count {
            sandboxes.insert(server.create_sandbox(600));
            files.insert(server.upload_for_an_hour(&number.to_string()));
            episodes.insert(server.start_short_episode());
        }
    };
    add(&server, 2);
    let extended = server.create_sandbox(600);
    let episode = server.start_short_episode();
    let seen: Vec<u64> = server.follow(&episode, 0).take(3).collect();
    assert_eq!(seen, [1, 2, 3]);

    let started = |path: &str| server.get(path)["startedAt"].as_str().unwrap().to_owned();
    let before = started(&extended);
    clock.shift(-2 * DAY);
    add(&server, 2);
    let last = server.create_sandbox(600);
    assert!(started(&last) < before, "the clock was not set back");
    sandboxes.insert(last);
    let begun = Instant::now();
    let short = server.create_sandbox(3);
    assert_eq!(
        server.send("POST", &format!("{extended}/timeout"), Some(&json!({"timeout": 3}))).0,
        204
    );
    for path in [&short, &extended] {
        wait_for("the sandbox's end", || (server.send("GET", path, None).0 == 404).then_some(()));
        let lived = begun.elapsed();
        let expected = Duration::from_secs(3)..Duration::from_secs(13);
        assert!(expected.contains(&lived), "{lived:?}");
    }

    // An event stream that broke continues by the number, across the jump.
    is_over.store(true, Ordering::SeqCst);
    let rest: Vec<u64> = server.follow(&episode, 3).collect();
    assert!(!rest.is_empty() && rest.iter().copied().eq(4..4 + rest.len() as u64), "{rest:?}");
    episodes.insert(episode);
    for episode in &episodes {
        wait_for("the end", || (server.get(episode)["state"] != "running").then_some(()));
        assert_eq!(server.get(episode)["state"], "finished");
    }

    let found = listed(|after| {
        let after = after.map(|token| format!("&nextToken={token}")).unwrap_or_default();
        let request = format!("GET /v2/sandboxes?limit=1{after} HTTP/1.1");
        let (status, head, text) = server.exchange(&request, "");
        assert_eq!(status, 200, "{text}");
        let page: Vec<Value> = serde_json::from_str(&text).unwrap();
        let next = head.lines().find_map(|line| line.strip_prefix("x-next-token: "));
        (
            page.iter().map(|one| path("/sandboxes", &one["sandboxID"])).collect(),
            next.map(str::to_owned),
        )
    });
    assert_eq!(found, sandboxes);
    let found = listed(|after| {
        let after = after.map(|id| format!("&after={id}")).unwrap_or_default();
        let page = server.get(&format!("/v1/files?limit=1{after}"));
        let ids = page["data"].as_array().unwrap().iter().map(|one| path("/v1/files", &one["id"]));
        let next = page["last_id"].as_str().filter(|_| page["has_more"] == true);
        (ids.collect(), next.map(str::to_owned))
    });
    assert_eq!(found, files);
    let found = listed(|after| {
        let after = after.map(|id| format!("&after={id}")).unwrap_or_default();
        let page = server.get(&format!("/v1/episodes?limit=1{after}"));
        let all = page["episodes"].as_array().unwrap().iter();
        let ids = all.map(|one| path("/v1/episodes", &one["id"]));
        (ids.collect(), page["next"].as_str().map(str::to_owned))
    });
    assert_eq!(found, episodes);
    for sandbox in &sandboxes {
        assert_eq!(server.get(sandbox)["state"], "running");
    }
    server.end();
}
