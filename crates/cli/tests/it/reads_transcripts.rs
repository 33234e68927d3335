//! A person reads what a model did: as text or as a page, of a run or of a benchmark's attempts.

use std::{fs, os::unix::fs::symlink, path::Path};

use results::{AttemptKey, AttemptRecord, Mode, ResultsDir};
use serde_json::{Value, json};
use testkit::{Call, MockServer, bash, calls, submit};

use crate::{
    episodes::{folder, run},
    support::{Home, code, err, out, refusal, write},
};

/// The lines of an episode with two calls in its second turn.
fn events(outcome: &Value) -> String {
    let call = |id: &str, command: &str| json!({"id": id, "name": "execute_bash", "arguments": {"command": command}});
    let replied = |turn: u32, calls: Value| {
        json!({"v": 1, "at": 5, "kind": "replied", "turn": turn, "message": {"text": "I look.", "calls": calls},
               "stop": "tool_calls", "usage": {"input": 100, "output": 10}, "millis": 4})
    };
    let observed = |turn: u32, id: &str, text: &str| {
        json!({"v": 1, "at": 6, "kind": "observed", "turn": turn, "exit_code": 0, "millis": 250, "message":
               {"role": "tool", "call_id": id, "name": "execute_bash", "content": [{"type": "text", "text": text}]}})
    };
    let mut ended = json!({"v": 1, "at": 9, "kind": "ended", "spent":
        {"turns": 2, "usage": {"input": 200, "output": 20}, "context": 110, "model_ms": 8, "tool_ms": 750}});
    for (key, value) in outcome.as_object().unwrap() {
        ended[key] = value.clone();
    }
    let lines = [
        json!({"v": 1, "at": 1, "kind": "started", "problem_statement": "Find <it>.", "messages": [], "model": "mock",
               "settings": {"caps": {"turns": 2}}}),
        json!({"v": 1, "at": 2, "kind": "retried", "turn": 1, "attempt": 1, "wait_ms": 10, "why": "503"}),
        replied(1, json!([call("a", "ls")])),
        observed(1, "a", "</script><img src=x>\u{1b}[2J"),
        json!({"v": 1, "at": 6, "kind": "of_the_future", "turn": 1}),
        replied(2, json!([call("b", "pwd"), call("c", "seq 100")])),
        observed(2, "b", "/testbed"),
        observed(2, "c", &(1..=100).map(|n| format!("{n}\n")).collect::<String>()),
        ended,
    ];
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn key(id: &str, mode: Mode, repeat: u32) -> AttemptKey {
    AttemptKey { task: "math".into(), mode, id: id.into(), repeat }
}

/// Results of two problems, one of them attempted twice, and one attempt that failed before its first event.
fn results(home: &Home) -> ResultsDir {
    let results = ResultsDir::new(home.file("bench"));
    let failed = json!({"outcome": "infrastructure", "cause": "no sandbox"});
    let out_of_turns = json!({"outcome": "max_turns"});
    for (key, outcome, grade) in [
        (key("p1", Mode::Sandbox, 0), &out_of_turns, json!({"explanation": "expected 2"})),
        (key("p1", Mode::Sandbox, 1), &out_of_turns, Value::Null),
        (key("../p2", Mode::Sandbox, 0), &out_of_turns, Value::Null),
        (key("p3", Mode::Sandbox, 0), &failed, Value::Null),
    ] {
        let mut attempt = json!({
            "v": 1, "task": key.task, "mode": key.mode, "id": key.id, "repeat": key.repeat, "answer": "1",
            "problem_statement": "Find <it>.", "ground_truth": "2", "score": 0.0, "grade": grade,
            "spent": {"turns": 2, "usage": {"input": 200, "output": 20}, "context": 1, "model_ms": 8, "tool_ms": 750},
        });
        for (name, value) in outcome.as_object().unwrap() {
            attempt[name] = value.clone();
        }
        if outcome["outcome"] == "max_turns" {
            write(&results.trajectory_path(&key), events(outcome));
        }
        results.save(&serde_json::from_value::<AttemptRecord>(attempt).unwrap()).unwrap();
    }
    results
}

#[test]
fn steps_turns_and_limits_are_named_alike() {
    let Some(home) = Home::with_sandboxes() else { return };
    let both = calls([Call::bash("echo one"), Call::bash("echo two")]);
    let server = MockServer::scripted([both, bash("echo three"), submit()]).unwrap();
    let output = run(&home, &server.base_url(), ["Do it", "--max-turns", "2"]).output().unwrap();
    assert_eq!(code(&output), 3, "{}", err(&output));
    let path = folder(&home);
    let text = home.ok(["replay", path.to_str().unwrap()]);
    for heading in ["# Step 1 (turn 1)\n", "# Step 2 (turn 1)\n", "# Step 3 (turn 2)\n"] {
        assert!(text.contains(heading), "{text}");
    }
    assert!(text.contains("# Outcome\nout of turns (--max-turns 2)\n3 steps, 2 turns; "), "{text}");

    let done = home.run(["replay", path.to_str().unwrap(), "--html"]);
    assert_eq!((code(&done), out(&done).as_str()), (0, ""), "{}", err(&done));
    let page = fs::read_to_string(path.join("transcript.html")).unwrap();
    for text in ["Steps 1–2 (turn 1)", "Step 3 (turn 2)", "out of turns (--max-turns 2)", "exit 0"]
    {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn an_attempt_is_replayed_from_either_of_its_files() {
    let home = Home::new();
    let results = results(&home);
    let key = key("p1", Mode::Sandbox, 0);
    for file in [results.attempt_path(&key), results.trajectory_path(&key)] {
        let text = home.ok(["replay".as_ref(), file.as_os_str()]);
        for part in [
            "math sandbox p1 #0\n",
            "Find <it>.",
            "[note] Request 1 to the model failed: 503.",
            "# Step 3 (turn 2)\n",
            "$ seq 100",
            "out of turns (--max-turns 2)",
            "score: 0\n",
            "answer: 1\nexpected: 2\n",
            "expected 2",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'));
    }
    // Without its events it says so instead of showing the task alone.
    let alone = home.file("alone.json");
    fs::copy(results.attempt_path(&key), &alone).unwrap();
    let why = refusal(&home.run(["replay".as_ref(), alone.as_os_str()]), 2);
    assert!(why.contains("holds its result only; its events are missing"), "{why}");
    fs::remove_file(results.trajectory_path(&key)).unwrap();
    let file = results.attempt_path(&key);
    let why = refusal(&home.run(["replay".as_ref(), file.as_os_str()]), 2);
    assert!(why.contains("there is no") && why.contains("p1.0.jsonl"), "{why}");
}

#[test]
fn attempts_of_a_benchmark_are_chosen() {
    let home = Home::new();
    results(&home);
    let shown = home.ok(["replay", "bench", "--id", "p1", "--attempt", "1"]);
    assert!(shown.contains("math sandbox p1 #1\n") && !shown.contains("p1 #0"), "{shown}");
    let both = home.ok(["replay", "bench", "--id", "p1"]);
    assert!(both.contains("p1 #0\n") && both.contains("p1 #1\n"), "{both}");
    let why = refusal(&home.run(["replay", "bench"]), 2);
    assert!(why.contains("holds 4 attempts; choose a problem with --id"), "{why}");
    let why = refusal(&home.run(["replay", "bench", "--id", "p9"]), 2);
    assert!(why.contains("matches --id") && why.contains("p1"), "{why}");
    let why = refusal(&home.run(["replay", "bench", "--id", "p1", "--json"]), 2);
    assert!(why.contains("2 attempts match"), "{why}");
    let one = home.json(["replay", "bench", "--id", "p1", "--attempt", "0", "--json"]);
    assert_eq!(one["steps"].as_array().unwrap().len(), 3);
    let why = refusal(
        &home.run(["replay", "bench/trajectories/math/sandbox/p1.0.jsonl", "--id", "p1"]),
        2,
    );
    assert!(why.contains("is one episode"), "{why}");
    // What is known about an attempt without events is shown, and is not a success.
    let failed = home.run(["replay", "bench", "--id", "p3"]);
    assert_eq!(code(&failed), 2);
    assert!(out(&failed).contains("failed: no sandbox"), "{}", out(&failed));
    assert!(err(&failed).contains("there is no readable trajectory"), "{}", err(&failed));
}

#[test]
fn every_attempt_gets_a_page_and_a_line_in_the_index() {
    let home = Home::new();
    results(&home);
    let done = home.run(["replay", "bench", "--html"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    assert!(
        err(&done).contains("wrote 4 pages and index.html to bench/episodes"),
        "{}",
        err(&done)
    );
    let read = |name: &str| fs::read_to_string(home.file("bench/episodes").join(name)).unwrap();
    let index = read("index.html");
    for (name, text) in [
        ("math,sandbox,p1,0.html", "<dt>explanation</dt><dd><code>expected 2</code></dd>"),
        ("math,sandbox,p1,1.html", "1 event of a kind this version does not know"),
        ("math,sandbox,%2E.%2Fp2,0.html", "Steps 2–3 (turn 2)"),
        ("math,sandbox,p3,0.html", "No trajectory was recorded."),
    ] {
        let page = read(name);
        assert!(page.contains(text), "{name}: {text}");
        assert!(page.contains("default-src &#39;none&#39;") || page.contains("default-src 'none'"));
        assert!(!page.contains("<img") && !page.contains('\u{1b}'), "{name}");
        let link = name.replace('%', "%25").replace(',', "%2C");
        assert!(index.contains(&format!("href=\"./{link}\"")), "{link}: {index}");
    }
    assert!(
        read("math,sandbox,p1,0.html").contains("&lt;/script&gt;&lt;img src=x&gt;<i>\\x1b</i>[2J")
    );
    assert!(index.contains("out of turns (--max-turns 2)"), "{index}");
    let pages = || ["index.html", "math,sandbox,p1,0.html"].map(read);
    let before = pages();
    assert_eq!(code(&home.run(["replay", "bench", "--html"])), 0);
    assert!(before == pages(), "the same run gave other pages");

    let done = home.run(["replay", "bench", "--id", "p1", "--attempt", "0", "--html", "one.html"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    assert_eq!(fs::read_to_string(home.file("one.html")).unwrap(), read("math,sandbox,p1,0.html"));
    let why = refusal(&home.run(["replay", "bench", "--html", "some.html"]), 2);
    assert!(why.contains("4 attempts match; give a directory"), "{why}");
    assert!(!home.file("some.html").exists());
}

#[test]
fn a_page_is_written_where_asked_and_over_nothing_else() {
    let home = Home::new();
    write(&home.file("run/events.jsonl"), events(&json!({"outcome": "max_turns"})));
    write(&home.file("run/files/answer.txt"), "<b>42</b>");
    let page = home.ok(["replay", "run", "--html", "-"]);
    assert!(page.starts_with("<!doctype html>") && page.contains("&lt;b&gt;42&lt;/b&gt;"));
    for target in ["run/events.jsonl", "run", "page.txt"] {
        let why = refusal(&home.run(["replay", "run", "--html", target]), 2);
        assert!(why.contains("ends with .html"), "{why}");
    }
    let why = refusal(&home.run(["replay", "run", "--html", "no/where/page.html"]), 4);
    assert!(why.contains("cannot write no/where/page.html"), "{why}");
    assert_eq!(code(&home.run(["replay", "run", "--html", "page.html"])), 0);
    assert_eq!(fs::read_to_string(home.file("page.html")).unwrap().trim_end(), page.trim_end());
    let names: Vec<_> = fs::read_dir(home.file("run")).unwrap().flatten().collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // The only path is the record, wherever it stands.
    assert_eq!(code(&home.run(["replay", "--html", "run"])), 0);
    assert!(home.file("run/transcript.html").is_file());
    let why = refusal(&home.run(["replay", "--html"]), 2);
    assert!(why.contains("TRAJECTORY is missing"), "{why}");
}

#[test]
fn broken_and_unfinished_records_are_read_as_far_as_they_go() {
    let home = Home::new();
    let whole = events(&json!({"outcome": "max_turns"}));
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let mut cut: Vec<u8> = lines[..5].concat().into_bytes();
    cut.extend_from_slice(
        b"{\"v\":1,\"at\":6,\"kind\":\"replied\",\"turn\":2,\"message\":{\"text\":\"\xe2\x82",
    );
    write(&home.file("run/events.jsonl"), cut);
    let text = home.ok(["replay", "run"]);
    assert!(text.contains("# Step 1 (turn 1)") && text.contains("# Outcome\nnot ended"), "{text}");
    let page = home.ok(["replay", "run", "--html", "-"]);
    assert!(page.contains("not ended") && page.contains("Step 1 (turn 1)"));
    // Bytes that are not UTF-8 inside a line are replaced.
    let odd = [lines[0].replace("Find <it>.", "?").as_bytes(), b"\n"].concat();
    let at = odd.iter().position(|byte| *byte == b'?').unwrap();
    let odd = [&odd[..at], b"a\xff\xfeb", &odd[at + 1..]].concat();
    write(&home.file("odd.jsonl"), odd);
    assert!(home.ok(["replay", "odd.jsonl", "--html", "-"]).contains("a\u{fffd}\u{fffd}b"));
    // A line that is damaged in the middle is named.
    write(&home.file("bad.jsonl"), format!("{}{{\n{}", lines[0], lines[1]));
    let why = refusal(&home.run(["replay", "bad.jsonl", "--html"]), 2);
    assert!(why.contains("line 2"), "{why}");
    assert!(!home.file("bad.html").exists());
}

#[test]
fn a_strangers_record_puts_no_file_of_ours_into_a_page() {
    let home = Home::new();
    write(&home.file("secret"), "PRIVATE KEY");
    write(&home.file("run/events.jsonl"), events(&json!({"outcome": "submitted"})));
    fs::create_dir(home.file("run/files")).unwrap();
    for name in ["answer.txt", "note.txt"] {
        symlink(home.file("secret"), home.file("run/files").join(name)).unwrap();
    }
    symlink(home.file("secret"), home.file("run/transcript.html")).unwrap();
    assert_eq!(code(&home.run(["replay", "run", "--html"])), 0);
    let page = fs::read_to_string(home.file("run/transcript.html")).unwrap();
    assert!(page.contains("answer.txt") && !page.contains("PRIVATE KEY"));
    assert_eq!(fs::read_to_string(home.file("secret")).unwrap(), "PRIVATE KEY");

    let results = results(&home);
    let key = key("p1", Mode::Sandbox, 0);
    fs::remove_file(results.trajectory_path(&key)).unwrap();
    symlink(home.file("secret"), results.trajectory_path(&key)).unwrap();
    let done = home.run(["replay", "bench", "--html", "pages"]);
    assert!(err(&done).contains("links are not followed"), "{}", err(&done));
    symlink(home.file("pages"), home.file("bench/episodes")).unwrap();
    let why = refusal(&home.run(["replay", "bench", "--html"]), 2);
    assert!(why.contains("is a symbolic link"), "{why}");
    for page in fs::read_dir(home.file("pages")).unwrap().flatten() {
        assert!(!fs::read_to_string(page.path()).unwrap().contains("PRIVATE KEY"));
    }
}

/// The smallest PNG, in base64.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

#[test]
fn images_are_shown_and_scripts_in_disguise_are_not() {
    let home = Home::new();
    let image = |kind: &str, data: &str| {
        json!({"v": 1, "at": 6, "kind": "observed", "turn": 1, "millis": 1, "message":
            {"role": "tool", "call_id": "a", "name": "view_image", "content":
                [{"type": "image", "media_type": kind, "data": data}]}})
        .to_string()
    };
    let whole = events(&json!({"outcome": "submitted"}));
    let mut lines: Vec<&str> = whole.lines().collect();
    let (shown, svg) =
        (image("image/png", PNG), image("image/png", "PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+"));
    lines.insert(3, &shown);
    lines.insert(4, &svg);
    write(&home.file("run/events.jsonl"), lines.join("\n") + "\n");
    write(
        &home.file("run/files/plot.svg.png"),
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01",
    );
    write(&home.file("run/files/trap.png"), "<svg xmlns='http://www.w3.org/2000/svg'/>");
    let page = home.ok(["replay", "run", "--html", "-"]);
    assert_eq!(page.matches("<img ").count(), 2, "one of a tool, one of a file");
    assert!(page.contains(&format!("data:image/png;base64,{PNG}")));
    assert!(page.contains("img-src data:; base-uri 'none'") && page.contains("default-src 'none'"));
    assert!(page.contains("An image of view_image (21 B) is not shown."), "{page}");
    assert!(page.contains("trap.png") && !page.contains("data:image/svg"));
}

#[test]
fn links_in_a_strangers_directory_are_not_followed() {
    let home = Home::new();
    let whole = events(&json!({"outcome": "submitted"}));
    write(&home.file("ours/events.jsonl"), &whole);
    fs::create_dir(home.file("run")).unwrap();
    symlink(home.file("ours/events.jsonl"), home.file("run/events.jsonl")).unwrap();
    for named in ["run", "run/events.jsonl"] {
        let why = refusal(&home.run(["replay", named]), 2);
        assert!(why.contains("links are not followed"), "{why}");
    }
    // A link of the user's own, outside of any run.
    symlink(home.file("ours/events.jsonl"), home.file("latest.jsonl")).unwrap();
    assert!(home.ok(["replay", "latest.jsonl"]).contains("# Step 1"));

    let theirs = results(&home);
    for kind in ["attempts", "judgements"] {
        let (inside, outside) = (theirs.path().join(kind), home.file(&format!("moved-{kind}")));
        if inside.exists() {
            fs::rename(&inside, &outside).unwrap();
            symlink(&outside, &inside).unwrap();
        }
    }
    for args in [&["replay", "bench", "--id", "p1"][..], &["replay", "bench", "--html", "pages"]] {
        let failed = home.run(args);
        assert_ne!(code(&failed), 0);
        assert!(err(&failed).contains("links are not followed"), "{}", err(&failed));
    }
    let attempt = theirs.attempt_path(&key("p1", Mode::Sandbox, 0));
    let why = refusal(&home.run(["replay".as_ref(), attempt.as_os_str()]), 2);
    assert!(why.contains("`attempts` is a link"), "{why}");
}

#[test]
fn a_huge_record_gives_a_page_of_bounded_size() {
    let home = Home::new();
    let line = json!({"v": 1, "at": 6, "kind": "observed", "turn": 1, "millis": 1, "message":
        {"role": "tool", "call_id": "a", "name": "execute_bash", "content":
            [{"type": "text", "text": "0123456789<\u{1b}>\n".repeat(1 << 18)}]}});
    let whole = events(&json!({"outcome": "submitted"}));
    let mut lines: Vec<&str> = whole.lines().collect();
    let line = line.to_string();
    (0..4).for_each(|_| lines.insert(3, &line));
    write(&home.file("run/events.jsonl"), lines.join("\n") + "\n");
    assert_eq!(code(&home.run(["replay", "run", "--html"])), 0);
    let path = home.file("run/transcript.html");
    let page = fs::read_to_string(&path).unwrap();
    assert!(page.len() < 1 << 20, "{}", page.len());
    assert!(page.contains("characters not shown; all of it is in events.jsonl"));
    assert!(Path::new(&path).is_file());
}
