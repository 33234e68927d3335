//! Models in the program's own process: the first command of the README, files that are none, serving,
//! measuring, calls that are forced.
//!
//! Reads `LIS_TEST_GGUF` (the catalogue's default model) and `LIS_TEST_TINY_GGUF` (a tiny one).

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    episodes,
    support::{Home, Running, code, crate_path, err, out, setting, skip},
};

fn tiny() -> Option<PathBuf> {
    let found = setting("LIS_TEST_TINY_GGUF").map(PathBuf::from);
    if found.is_none() {
        skip("gguf", "LIS_TEST_TINY_GGUF names no model");
    }
    found
}

/// Puts a file where the store of models has it.
fn put(home: &Home, model: &str, file: &Path) -> PathBuf {
    let dir = home.state().join("models").join(model);
    fs::create_dir_all(&dir).unwrap();
    let to = dir.join(file.file_name().unwrap());
    if fs::hard_link(file, &to).is_err() {
        fs::copy(file, &to).unwrap();
    }
    to
}

#[test]
fn the_readmes_first_command_answers() {
    let Some(home) = Home::with_sandboxes() else { return };
    let Some(model) = setting("LIS_TEST_GGUF") else {
        return skip("gguf", "LIS_TEST_GGUF names no model");
    };
    put(&home, "qwen2.5-coder-1.5b", Path::new(&model));
    let readme = fs::read_to_string(crate_path("../../README.md")).unwrap();
    let line = readme.lines().find(|line| line.starts_with("llm-in-sandbox run ")).unwrap();
    let task = line.split('"').nth(1).unwrap();
    assert!(line.ends_with('"'), "it wants more than a task: {line}");
    let output = home.run(["run", task, "--seed", "1", "--threads", "1"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "76127\n"), "{}", err(&output));
    let said = err(&output);
    let first = said.lines().next().unwrap();
    for told in ["qwen2.5-coder-1.5b", "GiB", "models", "--model"] {
        assert!(first.contains(told), "{first}");
    }
}

#[test]
fn the_default_models_own_adapter_solves_what_it_was_made_for() {
    let Some(home) = Home::with_sandboxes() else { return };
    let Some(model) = setting("LIS_TEST_GGUF") else {
        return skip("gguf", "LIS_TEST_GGUF names no model");
    };
    put(&home, "qwen2.5-coder-1.5b", Path::new(&model));
    let page = fs::read_to_string(crate_path("../../adapters/README.md")).unwrap();
    let task = page.lines().find(|line| line.starts_with("llm-in-sandbox run ")).unwrap();
    let task = task.split('"').nth(1).unwrap();
    let table = home.file("results.csv");
    fs::write(
        &table,
        "player,team,points\nAmara,red,45\nElif,red,52\nSilas,blue,61\nInga,blue,57\nNoor,red,49\n",
    )
    .unwrap();
    let settings = ["--temperature", "0", "--max-turns", "6", "--output", "out", "--threads", "1"];
    let input = ["run", task, "--input", table.to_str().unwrap()];
    let output = home.run(input.into_iter().chain(settings));
    assert_eq!((code(&output), out(&output).as_str()), (0, "Elif\n"), "{}", err(&output));
    // As it learnt it: a look, a few lines of Python, and the end.
    let said = err(&output);
    assert!(said.contains("python3 -") && said.contains("submitted · 3 turns"), "{said}");
    let run = episodes::json(&episodes::folder(&home).join("run.json"));
    assert_eq!(run["adapter"], "qwen2.5-coder-1.5b-rl");
}

#[test]
fn files_that_are_no_models_are_refused_at_once() {
    let Some(tiny) = tiny() else { return };
    let home = Home::new();
    let whole = fs::read(&tiny).unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = home.file(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut strange = whole.clone();
    let at = position(&strange, b"general.architecture") + 20 + 4 + 8;
    strange[at..at + 5].copy_from_slice(b"xyzzy");
    let mut corrupt = whole.clone();
    corrupt[8..64].fill(0xff);
    let tiny = tiny.to_str().unwrap();
    let missing = home.file("missing.gguf");
    let text = file("text.gguf", b"this is no model");
    let cases: [(&[&str], &str); 9] = [
        (&["--model", &file("half.gguf", &whole[..whole.len() / 2])], "half.gguf"),
        (&["--model", &file("corrupt.gguf", &corrupt)], "corrupt.gguf"),
        (&["--model", &file("empty.gguf", b"")], "not a GGUF file"),
        (&["--model", &text], "not a GGUF file"),
        (&["--model", &file("strange.gguf", &strange)], "xyzzy"),
        (&["--model", missing.to_str().unwrap()], "missing.gguf"),
        (&["--model", tiny, "--context", "99999999"], "at most"),
        (&["--model", tiny, "--adapter", &text], "text.gguf"),
        (&["--model", "local:no-such-model"], "no-such-model"),
    ];
    for (args, told) in cases {
        let output = home.run([&["run", "task"], args].concat());
        assert_eq!(code(&output), 2, "{args:?}: {}", err(&output));
        assert!(err(&output).contains(told), "{args:?}: {}", err(&output));
        assert!(err(&output).lines().count() <= 3, "{args:?}: {}", err(&output));
        let left = fs::read_dir(home.file("output")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{args:?} left something behind");
    }
}

fn position(bytes: &[u8], word: &[u8]) -> usize {
    bytes.windows(word.len()).position(|window| window == word).unwrap()
}

#[test]
fn a_damaged_file_of_the_store_is_not_used() {
    let Some(tiny) = tiny() else { return };
    let home = Home::new();
    let path = put(&home, "smollm2-135m", &tiny);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    let output = home.run(["run", "task", "--model", "local:smollm2-135m"]);
    assert_ne!(code(&output), 0);
    assert!(err(&output).contains("sha256"), "{}", err(&output));
}

#[test]
fn options_of_local_models_are_refused_for_servers() {
    let home = Home::new();
    for (args, told) in [
        (["--context", "4096"], "--context-tokens"),
        (["--force-calls", "yes"], "--force-calls"),
        (["--adapter", "a.gguf"], "--adapter"),
        (["--adapter", "none"], "--adapter"),
    ] {
        let server = ["run", "task", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"];
        let output = home.run([&server[..], &args].concat());
        assert_eq!(code(&output), 2);
        assert!(err(&output).contains(told), "{}", err(&output));
    }
}

#[test]
fn the_default_model_is_reported_unless_quiet() {
    let home = Home::new();
    for (quiet, told) in [(&[][..], 1), (&["--quiet"][..], 0)] {
        // There is no such daemon, so that nothing is fetched.
        let mut command = home.command(["run", "task", "--runtime", "docker"]);
        let output = command.args(quiet).env("DOCKER_HOST", "unix:///nowhere").output().unwrap();
        assert_ne!(code(&output), 0);
        let said = err(&output);
        assert_eq!(said.matches("no model given").count(), told, "{said}");
    }
}

#[test]
fn the_default_models_own_adapter_is_reported_where_it_is_used() {
    let home = Home::new();
    let list = home.json(["model", "list", "--json"]);
    let models = list.as_array().unwrap();
    let default = models.iter().find(|model| model["default"] == true).unwrap();
    let own = default["adapter"]["name"].as_str();
    let table = home.ok(["model", "list"]);
    assert_eq!(own.is_some_and(|own| table.contains(&format!("adapter {own}"))), own.is_some());
    let said = |args: &[&str], variable: &str| {
        // There is no such daemon, so that nothing is fetched.
        let mut command = home.command(["run", "task", "--runtime", "docker"]);
        command.env("DOCKER_HOST", "unix:///nowhere").env("LLM_ADAPTER", variable);
        let output = command.args(args).output().unwrap();
        assert_ne!(code(&output), 0);
        err(&output)
    };
    let named = ["--model", "local:qwen2.5-coder-1.5b"];
    for model in [&[][..], &named] {
        let with = said(model, "");
        assert_eq!(own.is_some_and(|own| with.contains(&format!("adapter {own}"))), own.is_some());
        assert_eq!(with.contains("--adapter none"), own.is_some(), "{with}");
        for without in [said(&[model, &["--adapter", "none"]].concat(), ""), said(model, "none")] {
            assert!(!without.contains("adapter"), "{without}");
        }
    }
}

#[test]
fn a_served_model_answers_and_ends() {
    let Some(tiny) = tiny() else { return };
    let home = Home::new();
    let mut command = home.command(["model", "serve", "--port", "0", "--parallel", "1"]);
    command.args(["--context", "8192"]).arg(&tiny);
    let mut serving = Running(command.spawn().unwrap());
    let mut said = BufReader::new(serving.0.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let url = line.split_whitespace().find(|word| word.starts_with("http://"));
    let url = url.unwrap_or_else(|| panic!("{line}")).trim_end_matches(';').to_owned();

    let health = curl(&[&url.replace("/v1", "/health")]);
    assert_eq!(health["status"], "ok");
    let name = tiny.file_stem().unwrap().to_str().unwrap();
    let listed = curl(&[&format!("{url}/models")])["data"][0].clone();
    assert_eq!((&listed["id"], &listed["max_model_len"]), (&json!(name), &json!(8192)));
    continues_tokens(&url);
    let body = json!({"max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]});
    let chat = format!("{url}/chat/completions");
    let reply = curl(&[&chat, "-H", "content-type: application/json", "-d", &body.to_string()]);
    assert!(reply["usage"]["completion_tokens"].as_u64().unwrap() >= 1, "{reply}");
    assert_eq!(reply["choices"][0]["message"]["role"], "assistant", "{reply}");
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(9000)}]});
    let long = curl(&[&chat, "-H", "content-type: application/json", "-d", &long.to_string()]);
    assert_eq!(long["error"]["code"], "context_length_exceeded", "{long}");

    // A model that could not call anything by itself does so where it has to.
    let parameters = json!({
        "type": "object", "properties": {"times": {"type": "integer"}}, "required": ["times"]
    });
    let tool = json!({"type": "function", "function": {"name": "ring", "parameters": parameters}});
    let named = json!({"type": "function", "function": {"name": "ring"}});
    for choice in [json!("required"), named] {
        let body = json!({
            "max_tokens": 100, "tools": [tool], "tool_choice": choice,
            "messages": [{"role": "user", "content": "Ring the bell three times."}]
        });
        let reply = curl(&[&chat, "-H", "content-type: application/json", "-d", &body.to_string()]);
        let call = &reply["choices"][0]["message"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "ring", "{reply}");
        let arguments = call["arguments"].as_str().unwrap();
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        assert!(arguments["times"].is_i64(), "{reply}");
    }

    // Whoever hangs up, while the prompt is read or tokens are sampled, frees the only slot there is: the next answer does not
    // wait for what nobody reads.
    let completions = format!("{url}/completions");
    let endless = json!({ "prompt": [1, 4093], "max_tokens": 8000, "ignore_eos": true });
    let prompt = |first: &str| {
        let content = format!("{first} {}", "word ".repeat(7000));
        json!({ "max_tokens": 1000, "messages": [{"role": "user", "content": content}] })
    };
    let requests = [
        (&chat, prompt("One")),
        (&completions, endless.clone()),
        (&chat, prompt("Two")),
        (&completions, endless),
    ];
    for (to, request) in requests {
        let hung_up = Command::new("curl")
            .args(["-sS", "--max-time", "0.5", to, "-H", "content-type: application/json"])
            .args(["-d", &request.to_string()])
            .output();
        assert!(!hung_up.unwrap().status.success(), "it ended too soon to be hung up on");
    }
    let reply = curl(&[&chat, "-H", "content-type: application/json", "-d", &body.to_string()]);
    assert!(reply["error"].is_null(), "{reply}");

    serving.signal(Signal::TERM);
    assert_eq!(serving.end(), 128 + 15);
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("panic"), "{rest}");
}

/// Token ids go in, and come back with log-probabilities.
fn continues_tokens(url: &str) {
    let ask = |max_tokens: u32, stop: Value| {
        let body = json!({
            "prompt": [1, 4093, 198, 1780, 314, 260], "max_tokens": max_tokens, "temperature": 0,
            "stop_token_ids": stop, "ignore_eos": true, "logprobs": 1, "return_token_ids": true
        });
        let path = format!("{url}/completions");
        let got = curl(&[&path, "-H", "content-type: application/json", "-d", &body.to_string()]);
        assert_eq!(got["choices"][0]["prompt_token_ids"], body["prompt"], "{got}");
        got["choices"][0].clone()
    };
    let free = ask(4, json!([]));
    let ids = free["token_ids"].as_array().unwrap();
    assert_eq!((ids.len(), &free["finish_reason"]), (4, &json!("length")), "{free}");
    let logprobs = free["logprobs"]["token_logprobs"].as_array().unwrap();
    assert!(logprobs.iter().all(|logprob| logprob.as_f64().unwrap() <= 0.0), "{free}");
    let stopped = ask(4, json!([ids[0]]));
    assert_eq!(stopped["token_ids"], json!([ids[0]]), "{stopped}");
    assert_eq!((&stopped["finish_reason"], &stopped["stop_reason"]), (&json!("stop"), &ids[0]));
}

fn curl(args: &[&str]) -> Value {
    let done = Command::new("curl").args(["-sS", "--max-time", "20"]).args(args).output().unwrap();
    serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

#[test]
fn a_model_is_not_offered_to_strangers() {
    let home = Home::new();
    let output = home.run(["model", "serve", "smollm2-135m", "--host", "0.0.0.0"]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("--api-key-env"), "{}", err(&output));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = home.run(["model", "serve", "smollm2-135m", "--port", &port]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("--port"), "{}", err(&output));
}

#[test]
fn a_model_is_measured() {
    let Some(tiny) = tiny() else { return };
    let home = Home::new();
    let figures =
        home.json(["perf", "model", "--rounds", "1", "--json", "--model", tiny.to_str().unwrap()]);
    for pace in ["prompt_tokens_per_second", "written_tokens_per_second"] {
        assert!(figures["here"][pace].as_f64().unwrap() > 1.0, "{figures}");
    }
    let (remembered, anew) =
        (&figures["second_turn"]["remembered_s"], &figures["second_turn"]["anew_s"]);
    assert!(remembered.as_f64().unwrap() * 3.0 < anew.as_f64().unwrap(), "{figures}");
}

#[test]
fn a_model_that_cannot_call_tools_is_made_to() {
    let Some(home) = Home::with_sandboxes() else { return };
    let Some(tiny) = tiny() else { return };
    let mut whole = 0;
    for format in ["hermes", "fenced"] {
        let args = ["run", "Say hello.", "--json", "--max-turns", "2", "--seed", "3"];
        let mut command = home.command(args);
        command.args(["--force-calls", "yes", "--tool-format", format, "--model"]).arg(&tiny);
        let output =
            command.args(["--max-tokens-per-call", "120", "--threads", "1"]).output().unwrap();
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        let dir = summary["directory"].as_str().unwrap();
        let events = fs::read_to_string(Path::new(dir).join("events.jsonl")).unwrap();
        let replies: Vec<Value> = events
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|event| event["kind"] == "replied")
            .collect();
        assert!(!replies.is_empty(), "{}", err(&output));
        for reply in &replies {
            let cut_off = reply["stop"] == "length";
            let calls = reply["message"]["calls"].as_array().map_or(0, Vec::len);
            assert!(cut_off || calls == 1, "{format}: {reply:#}");
            whole += calls;
        }
    }
    assert!(whole > 0, "every reply was cut off");
}
