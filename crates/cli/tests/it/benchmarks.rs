//! Benchmarks from rows to results: the real program, real sandboxes, a scripted model.
//!
//! Real rows come from the directory of shared data beside the repository; a test that needs them says `skip:`
//! where it is absent, and fails when `LIS_REQUIRE` names `shared`.

mod checks_first;
mod compares;
mod fails_well;
mod grows;
mod keeps_the_adapter;
mod own_tasks;
mod real_rows;
mod regrades;
mod resumes;
mod takes_away;
mod under_siege;

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};
use testkit::{Answer, Call, MockServer, Received, calls, say};

use crate::{
    episodes::json as read_json,
    support::{self, Home, err, setting, skip, write},
};

/// `benchmark` with a model at this server, into `out`; the rest of the arguments follow.
pub(crate) fn bench<S: AsRef<OsStr>>(
    home: &Home,
    base_url: &str,
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = home.command(["benchmark", "--model", "mock", "--base-url", base_url]);
    command.args(["--output", "out", "--concurrency", "4"]).args(args);
    for name in ["LLM_NAME", "LLM_BASE_URL", "LLM_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"] {
        command.env_remove(name);
    }
    command.env_remove("LLM_IN_SANDBOX_CONFIG").env("HOME", home.file("nobody"));
    command
}

/// The same to its end, which has to have this exit code; what it printed.
fn benched(home: &Home, server: &MockServer, args: &[&str], expected: i32) -> Value {
    let args = args.iter().copied().chain(["--json", "--quiet"]);
    let output = bench(home, &server.base_url(), args).output().unwrap();
    assert_eq!(output.status.code(), Some(expected), "{}", err(&output));
    printed(&output)
}

fn printed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {} {}", String::from_utf8_lossy(&output.stdout), err(output))
    })
}

/// The figures of one task and mode.
fn group<'a>(results: &'a Value, task: &str, mode: &str) -> &'a Value {
    let groups = results["groups"].as_array().unwrap();
    let found = groups.iter().find(|group| group["task"] == task && group["mode"] == mode);
    found.unwrap_or_else(|| panic!("no {task} {mode}: {results}"))
}

/// All kept attempts, in the order of their names.
fn attempts(dir: &Path) -> Vec<Value> {
    let mut files = Vec::new();
    for task in fs::read_dir(dir.join("attempts")).into_iter().flatten().flatten() {
        for mode in fs::read_dir(task.path()).unwrap().flatten() {
            let found = fs::read_dir(mode.path()).unwrap().flatten().map(|entry| entry.path());
            files.extend(found.filter(|path| path.extension().is_some_and(|e| e == "json")));
        }
    }
    files.sort();
    files.iter().map(|file| read_json(file)).collect()
}

/// Small sums, as rows of task math.
pub(crate) fn sums(home: &Home, count: usize) -> PathBuf {
    let path = home.file("sums.jsonl");
    let rows = (0..count).map(|n| sum(n).to_string() + "\n");
    write(&path, rows.collect::<String>());
    path
}

pub(crate) fn sum(n: usize) -> Value {
    json!({
        "id": format!("sum-{n}"),
        "domain": "math",
        "problem_statement": format!("Sum number {n}: what is {n} + 1?"),
        "ground_truth": (n + 1).to_string(),
        "input_files": {},
    })
}

/// What a model answers to whom.
#[derive(Clone)]
pub(crate) struct Script {
    /// Statements, longest first, and answers.
    answers: Vec<(String, String)>,
}

impl Script {
    /// The right answers to rows, as `answer` makes them of a row.
    fn new(rows: &[Value], answer: impl Fn(&Value) -> String) -> Self {
        let pair = |row: &Value| (text(&row["problem_statement"]), answer(row));
        let mut answers: Vec<(String, String)> = rows.iter().map(pair).collect();
        answers.sort_by_key(|(statement, _)| std::cmp::Reverse(statement.len()));
        Self { answers }
    }

    /// The answer to what is asked.
    fn answer(&self, asked: &Received) -> &str {
        let found = self.answers.iter().find(|(statement, _)| asked.mentions(statement));
        &found.unwrap_or_else(|| panic!("nobody knows {:?}", asked.messages())).1
    }

    /// One reply for a whole attempt: plain where there are no tools, else the file and the end of the work.
    fn reply(&self, asked: &Received) -> Answer {
        let answer = self.answer(asked);
        if asked.body["tools"].is_null() {
            return say(answer).into();
        }
        let told = ["/testbed/output/answer.txt", "/testbed/answer.txt"];
        let path = told.into_iter().find(|path| asked.mentions(path)).unwrap();
        leave_at(path, answer).into()
    }

    /// A server that answers so.
    pub(crate) fn serve(self) -> MockServer {
        MockServer::answering_and(testkit::Keep::Counts, move |asked| self.reply(asked)).unwrap()
    }
}

/// The sums' right answers.
pub(crate) fn sums_script(count: usize) -> Script {
    let rows: Vec<Value> = (0..count).map(sum).collect();
    Script::new(&rows, |row| format!("\\boxed{{{}}}", text(&row["ground_truth"])))
}

/// Leaves an answer where built-in tasks want it, and submits.
fn leave(answer: &str) -> testkit::Turn {
    leave_at("/testbed/answer.txt", answer)
}

fn leave_at(path: &str, answer: &str) -> testkit::Turn {
    let file = json!({"command": "create", "path": path, "file_text": answer});
    calls([Call::new("str_replace_editor", file), Call::submit()])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// A file of the shared data; announces a skip where there is none.
fn shared(path: &str) -> Option<PathBuf> {
    let file = support::shared(path);
    if file.exists() {
        return Some(file);
    }
    skip("shared", &format!("there is no {}", file.display()));
    None
}

fn rows(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_model_is_measured_with_and_without_a_computer() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 3);
    let server = sums_script(3).serve();
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "both", "--repeat", "2"];
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(table.contains("math  sandbox  1.0000  6/6"), "{table}");
    assert!(err(&output).contains("report out"), "{}", err(&output));

    let out = home.file("out");
    let results = read_json(&out.join("results.json"));
    assert_eq!((&results["total"], &results["mean_score"]), (&json!(12), &json!(1.0)));
    assert_eq!((&results["task"], &results["num_errors"]), (&json!("math"), &json!(0)));
    assert_eq!(results["config"]["llm_name"], "mock");
    assert_eq!(results["config"]["mode"], "both");
    assert!(results["elapsed_time_seconds"].as_f64().unwrap() > 0.0);
    let run = read_json(&out.join("run.json"));
    assert_eq!(run["modes"], json!(["llm", "sandbox"]));
    assert_eq!(run["tasks"][0]["problems"], 3);
    let attempts = attempts(&out);
    assert_eq!(attempts.len(), 12);
    for attempt in &attempts {
        let (mode, id) = (text(&attempt["mode"]), text(&attempt["id"]));
        assert_eq!((&attempt["score"], &attempt["outcome"]), (&json!(1.0), &json!("submitted")));
        assert!(attempt["tokens"]["prompt"].as_u64().unwrap() > 0, "{attempt}");
        assert_eq!(attempt["tries"], 1);
        let file = format!("trajectories/math/{mode}/{id}.{}.jsonl", attempt["repeat"]);
        let events = fs::read_to_string(out.join(file)).unwrap();
        let kinds: Vec<String> = events
            .lines()
            .map(|line| text(&serde_json::from_str::<Value>(line).unwrap()["kind"]))
            .collect();
        assert_eq!((kinds[0].as_str(), kinds.last().unwrap().as_str()), ("started", "ended"));
        assert!(kinds.contains(&"replied".to_owned()));
    }
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}

#[test]
fn the_references_spelling_works() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 5);
    let server = sums_script(5).serve();
    let url = server.base_url();
    let args = [
        "benchmark",
        "--task",
        "math",
        "--llm_name",
        "mock",
        "--llm_base_url",
        &url,
        "--mode",
        "llm-in-sandbox",
        "--num_workers",
        "2",
        "--start_id",
        "1",
        "--end_id",
        "3",
        "--max_response_len",
        "512",
        "--max_steps",
        "7",
        "--max_token_limit",
        "4096",
        "--max_tokens_per_call",
        "256",
        "--temperature",
        "0.5",
        "--output_dir",
        "out",
    ];
    let mut command = home.command(args);
    command.arg("--data").arg(&data);
    let output = command.env("HOME", home.file("nobody")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let results = read_json(&home.file("out/results.json"));
    assert_eq!((&results["total"], &results["mean_score"]), (&json!(2), &json!(1.0)));
    let config = &results["config"];
    assert_eq!((&config["mode"], &config["max_steps"]), (&json!("llm-in-sandbox"), &json!(7)));
    assert_eq!((&config["temperature"], &config["max_response_len"]), (&json!(0.5), &json!(512)));
    assert_eq!(
        (&config["max_token_limit"], &config["max_tokens_per_call"]),
        (&json!(4096), &json!(256))
    );
    let ids: Vec<String> = attempts(&home.file("out")).iter().map(|a| text(&a["id"])).collect();
    assert_eq!(ids, ["sum-1", "sum-2"]);
}

#[test]
fn progress_is_told_as_json_lines() {
    let Some(home) = Home::with_sandboxes() else { return };
    let data = sums(&home, 2);
    let rows = fs::read_to_string(&data).unwrap();
    write(&data, rows + "not a row\n");
    let server = sums_script(2).serve();
    let args = ["math", "--data", data.to_str().unwrap(), "--mode", "llm", "--json-progress"];
    let output = bench(&home, &server.base_url(), args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let lines = err(&output);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["event"], "note");
    assert!(text(&lines[0]["text"]).contains("row 3:"), "{lines:?}");
    assert_eq!((&lines[1]["event"], &lines[1]["attempts"]), (&json!("estimate"), &json!(2)));
    assert_eq!((&lines[2]["event"], &lines[2]["due"]), (&json!("begun"), &json!(2)));
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["event"], &last["done"], &last["score"]),
        (&json!("finished"), &json!(2), &json!(1.0))
    );
    assert_eq!(last["groups"][0]["mean_score"], 1.0);
    assert!(last["per_minute"].as_f64().unwrap() > 0.0 && last["tokens"].as_u64().unwrap() > 0);
    // A plain reply needs no sandbox, so none was prepared.
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}

#[test]
fn many_one_command_episodes_are_measured() {
    let Some(home) = Home::with_sandboxes() else { return };
    let command = "echo A > /testbed/answer.txt".into();
    let conversation = testkit::Conversation { turns: 2, command, ..Default::default() };
    let server =
        MockServer::answering_and(testkit::Keep::Counts, move |asked| conversation.answer(asked))
            .unwrap();
    let url = server.base_url();
    let figures =
        home.json(["perf", "benchmark", "--base-url", &url, "--episodes", "24", "--json"]);
    let ours = &figures["ours"];
    assert_eq!((&ours["episodes"], &ours["failures"]), (&json!(24), &json!(0)), "{figures}");
    assert!(ours["episodes_per_second"].as_f64().unwrap() > 0.0, "{figures}");
    assert_eq!(server.count(), 48);
    assert_eq!(home.traces(), Vec::<PathBuf>::new());
}

#[test]
fn episodes_that_fail_are_not_fast() {
    let Some(home) = Home::with_sandboxes() else { return };
    let server = MockServer::answering(|_| testkit::submit()).unwrap();
    let url = server.base_url();
    let output = home.run(["perf", "benchmark", "--base-url", &url, "--episodes", "2", "--json"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(err(&output).contains("2 of our episodes"), "{}", err(&output));
}

/// Needs a Docker daemon, its image's root file system, and a directory with the reference package.
#[test]
fn many_more_episodes_than_the_reference_in_the_same_time() {
    let needed = ["DOCKER_HOST", "LIS_TEST_IMAGE", "LIS_TEST_ROOTFS", "LIS_TEST_REFERENCE"];
    let [Some(host), Some(image), Some(rootfs), Some(package)] = needed.map(setting) else {
        return skip(
            "reference",
            "LIS_TEST_REFERENCE names no directory with the reference package",
        );
    };
    let Some(home) = Home::with_sandboxes() else { return };
    let command = "echo A > /testbed/answer.txt".into();
    let conversation = testkit::Conversation { turns: 2, command, ..Default::default() };
    let server =
        MockServer::answering_and(testkit::Keep::Counts, move |asked| conversation.answer(asked))
            .unwrap();
    let mut command =
        home.command(["perf", "benchmark", "--episodes", "60", "--json", "--base-url"]);
    command.arg(server.base_url()).arg("--image").arg(rootfs).arg("--docker-image").arg(image);
    command.args(["--reference-episodes", "3", "--python", "python3"]);
    let output = command.env("DOCKER_HOST", host).env("PYTHONPATH", package).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let figures = printed(&output);
    for who in ["ours", "reference"] {
        assert_eq!(figures[who]["failures"], 0, "{figures}");
    }
    // A busy machine and an unoptimised build leave much of the distance.
    assert!(figures["ratio"].as_f64().unwrap() > 10.0, "{figures}");
}
