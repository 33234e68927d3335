//! Directories as the programs leave them, and requests without a socket.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request, StatusCode},
};
use lis_viewer::{Library, PageOptions, routes};
use results::{AttemptKey, AttemptRecord, Mode, ResultsDir, Run, RunSettings, TaskInfo, Tokens};
use serde_json::{Map, Value, json};
use tower_service::Service;
use trajectory::{
    Arguments, Assistant, Content, Ended, Event, Line, Message, Observed, Outcome, Responded,
    Spent, Started, Stop, ToolCall, ToolResult, Usage,
};

pub(crate) const START: u64 = 1_780_000_000_000;

/// The routes over a directory.
pub(crate) struct Served {
    pub(crate) router: Router,
}

pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Served {
    pub(crate) fn at(path: &Path) -> Self {
        let library = Arc::new(Library::open(vec![path.to_owned()]));
        let options = PageOptions { program: "0.1.0".into(), ..PageOptions::default() };
        Self { router: routes(library, options) }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().call(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn reply(&self, path: &str) -> Reply {
        let request = Request::get(format!("/page/api/{path}")).body(Body::empty()).unwrap();
        self.send(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let reply = self.reply(path).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text());
        reply.json()
    }

    /// The id of the only run.
    pub(crate) async fn only_run(&self) -> String {
        let runs = self.get("runs").await;
        assert_eq!(runs["total"], 1, "{runs}");
        runs["runs"][0]["id"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn started(task: &str) -> Event {
    Event::Started(Box::new(Started {
        problem_statement: task.into(),
        messages: vec![
            Message::System { text: "You have a computer.".into() },
            Message::user(task),
        ],
        model: "scripted".into(),
        settings: json!({ "limits": { "turns": 10 } }),
        protection: json!({ "seccomp": true }),
        program: "0.1.0".into(),
    }))
}

pub(crate) fn call(name: &str, arguments: Value) -> ToolCall {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    ToolCall { id: format!("c-{name}"), name: name.into(), arguments: Arguments::Object(arguments) }
}

pub(crate) fn bash(command: &str) -> ToolCall {
    call("execute_bash", json!({ "command": command }))
}

pub(crate) fn responded(turn: u32, text: &str, calls: Vec<ToolCall>) -> Event {
    let stop = if calls.is_empty() { Stop::End } else { Stop::ToolCalls };
    Event::Responded(Box::new(Responded {
        turn,
        message: Assistant {
            text: text.into(),
            reasoning: "let me think".into(),
            calls,
            ..Assistant::default()
        },
        stop,
        usage: Usage { input: 100, output: 10, ..Usage::default() },
        cost: Some(0.001),
        millis: 1200,
        from_cache: false,
    }))
}

pub(crate) fn observed(turn: u32, name: &str, output: &str) -> Event {
    Event::Observed(Box::new(Observed {
        turn,
        message: Message::Tool(ToolResult {
            call_id: format!("c-{name}"),
            name: name.into(),
            content: vec![Content::text(output)],
            is_error: false,
        }),
        exit_code: Some(0),
        millis: 30,
    }))
}

pub(crate) fn ended(turns: u32) -> Event {
    let usage = Usage { input: 300, output: 30, ..Usage::default() };
    let spent = Spent { turns, usage, model_ms: 3600, tool_ms: 90, ..Spent::default() };
    Event::Ended(Ended { outcome: Outcome::Submitted, spent })
}

pub(crate) fn write_events(path: &Path, events: &[Event]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = fs::File::create(path).unwrap();
    for (at, event) in events.iter().enumerate() {
        let line = Line::new(START + 1000 * at as u64, event.clone());
        writeln!(file, "{}", serde_json::to_string(&line).unwrap()).unwrap();
    }
}

/// An episode that edits files.
pub(crate) fn episode() -> Vec<Event> {
    let create =
        json!({ "command": "create", "path": "/testbed/a.py", "file_text": "x = 1\ny = 2\n" });
    let replace = json!({ "command": "str_replace", "path": "/testbed/a.py", "old_str": "x = 1", "new_str": "x = 5" });
    vec![
        started("Count the words."),
        responded(1, "I write a file.", vec![call("str_replace_editor", create)]),
        observed(1, "str_replace_editor", "File created"),
        responded(2, "I change it.", vec![call("str_replace_editor", replace)]),
        observed(2, "str_replace_editor", "Replaced"),
        responded(3, "", vec![bash("echo 42 > output/answer.txt"), call("submit", json!({}))]),
        observed(3, "execute_bash", "[exit 0]"),
        ended(3),
    ]
}

/// A run directory.
pub(crate) fn run_directory(parent: &Path, name: &str) -> PathBuf {
    let dir = parent.join(name);
    write_events(&dir.join("events.jsonl"), &episode());
    let summary = json!({
        "outcome": "submitted", "answer": "42", "task": "Count the words.", "model": "scripted",
        "spent": { "turns": 3, "usage": { "input": 300, "output": 30 }, "context": 0, "model_ms": 3600, "tool_ms": 90 },
        "directory": dir, "files": ["answer.txt"], "file_count": 1, "skipped": [], "program": "0.1.0",
    });
    fs::write(dir.join("run.json"), summary.to_string()).unwrap();
    fs::create_dir_all(dir.join("files/sub")).unwrap();
    fs::write(dir.join("files/answer.txt"), "42").unwrap();
    fs::write(dir.join("files/page.html"), "<script>fetch('/page/api/runs')</script>").unwrap();
    fs::write(dir.join("files/sub/data.csv"), "a,b\n1,2\n").unwrap();
    dir
}

/// A results directory with attempts at problems; the score of each is told by `score`.
pub(crate) fn results_directory(
    dir: &Path,
    model: &str,
    problems: usize,
    score: impl Fn(usize) -> Option<f64>,
) {
    let results = ResultsDir::new(dir);
    let run = Run {
        v: results::VERSION,
        program: "0.1.0".into(),
        started: START,
        model: model.into(),
        tasks: vec![TaskInfo {
            name: "math".into(),
            problems,
            repeats: 1,
            grader: "math".into(),
            ..TaskInfo::default()
        }],
        modes: vec![Mode::Sandbox],
        without: Vec::new(),
        documents: "files".into(),
        settings: RunSettings::default(),
    };
    results.save_run(&run).unwrap();
    for problem in 0..problems {
        results.save(&attempt(problem, score(problem))).unwrap();
    }
}

pub(crate) fn attempt(problem: usize, score: Option<f64>) -> AttemptRecord {
    let outcome = match score {
        Some(_) => Outcome::Submitted,
        None => Outcome::Infrastructure {
            cause: "the sandbox failed".into(),
            fault: trajectory::Fault::Sandbox,
        },
    };
    AttemptRecord {
        v: results::VERSION,
        key: AttemptKey {
            task: "math".into(),
            mode: Mode::Sandbox,
            id: format!("p{problem}"),
            repeat: 0,
        },
        domain: String::new(),
        subject: None,
        problem_statement: format!("What is {problem} + 1?"),
        ground_truth: (problem + 1).to_string(),
        answer: "7".into(),
        score,
        grade: Value::Object(Map::new()),
        grading: results::GradingHistory::default(),
        outcome,
        spent: Spent { turns: 2, model_ms: 100, tool_ms: 10, ..Spent::default() },
        tokens: Tokens::default(),
        started: START + problem as u64,
        wall_ms: 1000,
        peak_memory: None,
        tries: 1,
    }
}

/// Announces that a test does not run here; fails if it should.
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests read from the environment what must work, and show what does not"
)]
pub(crate) fn skip(capability: &str, reason: &str) {
    let required = std::env::var("LIS_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == capability), "{capability}: {reason}");
    println!("skip: {reason}");
}

/// The directory of a Python package that the environment names.
#[expect(
    clippy::disallowed_methods,
    reason = "tests are told by the environment where packages are"
)]
pub(crate) fn package(variable: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(variable)
}
