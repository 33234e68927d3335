//! A person reads an episode on a page: whatever a model wrote, the page is safe, complete as far as it says, and bounded.

use lis_report::transcript::{Episode, EpisodeFile, Notice, page, page_name};
use proptest::prelude::*;
use results::{AttemptKey, AttemptRecord, Judgement, Mode};
use serde_json::{Map, Value, json};
use trajectory::{Action, Step, Trajectory};

/// A page of a hostile record is not larger.
const LARGEST: usize = 8 << 20;

pub(crate) const NASTY: [&str; 9] = [
    "</script><img src=x onerror=alert(1)>",
    "\"><svg onload=alert(1)>",
    "<!-- --!> <![CDATA[ ]]> </style></pre></details></title>",
    "javascript:alert(1)",
    "a\u{202e}b\u{2066}c\u{200b}\u{feff}",
    "\0\x1b[31m\x1b]8;;https://example.com\x07x\r\r\n",
    "&lt;script&gt; &#60; \u{ffff}\u{fffe}",
    "' onmouseover='x",
    "\u{e0041}\u{85}\u{2028}z\u{300}\u{300}\u{300}",
];

fn step(turn: u64, function: &str, parameters: Value, observation: &str) -> Step {
    let metadata = json!({
        "turn": turn, "exec_time": 1.5, "tool_time": 0.25, "exit_code": 0,
        "usage": {"input": 1200, "output": 34}, "cost": 0.002,
    });
    Step {
        thought: format!("I call {function}."),
        reasoning_content: "Let me think.".to_owned(),
        action: Action { function: function.to_owned(), parameters },
        observation: observation.to_owned(),
        metadata: metadata.as_object().unwrap().clone(),
    }
}

fn record(steps: Vec<Step>) -> Trajectory {
    let metadata = json!({
        "model": "small", "program": "0.1.0", "started": 1_768_521_600_000_u64, "ended": 1_768_521_610_000_u64,
        "outcome": "submitted", "messages": [{"role": "system", "text": "You have a sandbox."}],
        "spent": {"turns": 2, "usage": {"input": 2400, "output": 68}, "context": 1300, "cost": 0.004,
                  "model_ms": 3000, "tool_ms": 500},
        "settings": {"limits": {"turns": 10}},
    });
    Trajectory {
        problem_statement: "Count the words.".to_owned(),
        steps,
        metadata: metadata.as_object().unwrap().clone(),
    }
}

fn attempt(grade: Value) -> AttemptRecord {
    serde_json::from_value(json!({
        "v": 1, "task": "math", "mode": "sandbox", "id": "p1", "repeat": 2, "problem_statement": "Six times seven?",
        "answer": "41", "ground_truth": "42", "score": 0.0, "grade": grade, "outcome": "submitted",
        "spent": {"turns": 2, "usage": {}, "context": 1, "model_ms": 1, "tool_ms": 1}, "wall_ms": 61_000,
    }))
    .unwrap()
}

/// Checks that every tag is one of ours, with our attributes only, and that nothing is loaded.
pub(crate) fn check_page(page: &str) {
    let policy = "default-src 'none'; style-src 'sha256-";
    assert!(page.contains(policy), "no policy");
    let body = page.split_once("</style>").unwrap().1;
    let body = body.rsplit_once("<script>").unwrap().0;
    for tag in body.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("an open tag: {tag:.80}"));
        let mut words = tag.splitn(2, ' ');
        let name = words.next().unwrap().trim_start_matches('/');
        let known = [
            "a", "article", "b", "bdi", "body", "code", "dd", "details", "div", "dl", "dt",
            "footer", "h1", "h2", "h3", "head", "header", "i", "li", "main", "nav", "p", "pre",
            "section", "small", "span", "summary", "ul",
        ];
        assert!(known.contains(&name), "<{tag}>");
        let attributes = words.next().unwrap_or_default();
        for attribute in attributes.split("\" ").filter(|attribute| !attribute.is_empty()) {
            let (name, value) = attribute.split_once("=\"").unwrap_or((attribute, ""));
            assert!(
                ["aria-label", "aria-labelledby", "class", "href", "id"].contains(&name),
                "<{tag}>"
            );
            assert!(name != "href" || value.starts_with('#'), "<{tag}>");
        }
    }
    let hidden = body.chars().find(|c| trajectory::is_hidden(*c) && !matches!(c, '\n' | '\t'));
    assert_eq!(hidden, None);
}

fn everywhere(text: &str) -> String {
    let mut steps = Vec::new();
    for function in ["execute_bash", "str_replace_editor", "submit", text, ""] {
        for command in ["create", "insert", "str_replace", "view", text] {
            let parameters = json!({
                "command": command, "path": text, "file_text": text, "old_str": text, "new_str": text,
                "view_range": [text, text], "insert_line": text, text: text,
            });
            steps.push(step(steps.len() as u64 / 2, function, parameters, text));
        }
        steps.push(step(99, function, json!(text), text));
        steps.push(step(100, function, json!([text]), ""));
    }
    for step in &mut steps {
        step.thought = text.to_owned();
        step.reasoning_content = text.to_owned();
    }
    let mut record = record(steps);
    record.problem_statement = text.to_owned();
    let message =
        json!([{"role": "user", "content": [{"type": "image", "media_type": text, "data": ""}]}]);
    for (key, value) in [("model", json!(text)), ("program", json!(text)), ("messages", message)] {
        record.metadata.insert(key.to_owned(), value);
    }
    record.metadata.insert("settings".to_owned(), json!({text: text}));
    let mut attempt = attempt(json!({text: text, "votes": [text, {}], "explanation": text}));
    for part in
        [&mut attempt.answer, &mut attempt.ground_truth, &mut attempt.key.id, &mut attempt.key.task]
    {
        *part = text.to_owned();
    }
    let judgement = Judgement {
        v: 1,
        judge: text.to_owned(),
        prompt: text.to_owned(),
        replies: vec![text.to_owned()],
    };
    let file =
        EpisodeFile { path: text.to_owned(), size: 9, preview: Some(text.to_owned()), image: None };
    page(&Episode {
        attempt: Some(&attempt),
        judgement: Some(&judgement),
        notices: &[Notice { turn: 1, text: text.to_owned() }],
        outcome: text,
        files: &[file],
        facts: &[("Input", text.to_owned())],
        source: text,
        ..Episode::of(&record)
    })
}

#[test]
fn an_episode_reads_from_task_to_result() {
    let edit =
        json!({"command": "str_replace", "path": "/a.py", "old_str": "x = 1", "new_str": "x = 2"});
    let mut record = record(vec![
        step(1, "execute_bash", json!({"command": "wc -w x"}), "[exit code 0]\n3 x"),
        step(1, "str_replace_editor", edit, "changed"),
        step(2, "submit", json!({}), "submitted"),
    ]);
    // The text of a turn belongs to its first call.
    record.steps[1].thought.clear();
    record.steps[1].reasoning_content.clear();
    let file =
        EpisodeFile { path: "answer.txt".into(), size: 2, preview: Some("3".into()), image: None };
    let html = page(&Episode {
        outcome: "submitted",
        answer: Some("3"),
        files: &[file],
        source: "events.jsonl",
        ..Episode::of(&record)
    });
    check_page(&html);
    let main = html.split_once("<body>").unwrap().1.rsplit_once("<script>").unwrap().0;
    insta::assert_snapshot!(main);
}

#[test]
fn an_attempt_shows_its_score_and_why() {
    let grade = json!({
        "output": "line 1\nline 2", "explanation": "41 is not 42", "votes": ["wrong", "wrong"], "equal": false,
    });
    let attempt = attempt(grade);
    let judgement = Judgement {
        v: 1,
        judge: "j".into(),
        prompt: String::new(),
        replies: vec!["Verdict: wrong".into()],
    };
    let record = record(Vec::new());
    let html = page(&Episode {
        attempt: Some(&attempt),
        judgement: Some(&judgement),
        recorded: false,
        ..Episode::of(&record)
    });
    check_page(&html);
    for text in [
        "math sandbox p1 #2",
        "Six times seven?",
        "<span class=\"badge badge-bad\">0.000</span>",
        "<pre>41</pre>",
        "<pre>42</pre>",
        "<dt>explanation</dt><dd><code>41 is not 42</code></dd>",
        "<dt>votes</dt><dd><code>wrong, wrong</code></dd>",
        "<dt>equal</dt><dd><code>false</code></dd>",
        "Grader: output</h3><div class=\"block block-code\"><pre>line 1\nline 2</pre>",
        "Verdict: wrong",
        "No trajectory was recorded.",
        "1 min 1 s",
    ] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn failed_requests_are_shown_where_they_happened() {
    let record = record(vec![step(1, "execute_bash", json!({"command": "ls"}), "x")]);
    let notices = [0, 1, 2].map(|turn| Notice { turn, text: format!("notice {turn}.") });
    let html = page(&Episode { notices: &notices, ..Episode::of(&record) });
    let places = ["notice 0.", "Step 1 (turn 1)", "notice 1.", ">execute_bash</span>", "notice 2."];
    let found = places.map(|text| html.find(text).unwrap());
    assert!(found.is_sorted(), "{found:?}");
    // An episode without a single response.
    let html = page(&Episode { notices: &notices, ..Episode::of(&Trajectory::default()) });
    assert!(html.contains("notice 1.") && html.contains("notice 2."));
}

#[test]
fn nothing_a_model_writes_becomes_markup() {
    for text in NASTY {
        check_page(&everywhere(text));
    }
    check_page(&everywhere(&NASTY.concat().repeat(300)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_text_at_all_becomes_markup(text in "\\PC{0,40}|[<>&\"'!/a-z=\\x00-\\x20\u{202a}-\u{202e}-]{0,60}") {
        check_page(&everywhere(&text));
    }

    #[test]
    fn odd_metadata_is_no_obstacle(value in prop_oneof![
        Just(json!(null)), Just(json!(-1)), Just(json!(1e300)), Just(json!("x")), Just(json!([{}])),
        Just(json!({"turns": "x"})), Just(json!(u64::MAX)),
    ]) {
        let mut step = step(1, "execute_bash", value.clone(), "x");
        let odd: Map<String, Value> = ["turn", "exec_time", "tool_time", "exit_code", "usage", "cost", "cut_off"]
            .map(|key| (key.to_owned(), value.clone())).into_iter().collect();
        step.metadata = odd;
        let mut record = record(vec![step.clone(), step]);
        for key in ["model", "started", "ended", "outcome", "messages", "spent", "settings", "protection"] {
            record.metadata.insert(key.to_owned(), value.clone());
        }
        check_page(&page(&Episode::of(&record)));
    }
}

#[test]
fn pages_of_huge_episodes_are_bounded_and_say_what_is_cut() {
    let huge = "<\u{1b}\"line\n".repeat(6 << 20);
    let one = record(vec![step(1, "execute_bash", json!({"command": huge}), &huge)]);
    let html = page(&Episode { source: "events.jsonl", ..Episode::of(&one) });
    assert!(html.len() < 1 << 20, "{}", html.len());
    assert!(html.contains("not shown; all of it is in events.jsonl"));
    check_page(&html);

    let many = (1..=60_000).map(|turn| step(turn, "execute_bash", json!({"command": "x"}), "y"));
    let html = page(&Episode { source: "events.jsonl", ..Episode::of(&record(many.collect())) });
    assert!(html.len() < LARGEST, "{}", html.len());
    assert!(html.contains("are not shown: the page would be too large. They are in events.jsonl."));
    assert!(html.contains("Step 1 (turn 1)") && html.contains("Step 60000 (turn 60000)"));

    let calls = (0..50_000).map(|_| step(1, "execute_bash", json!({"command": "x"}), "\u{202e}"));
    let html = page(&Episode::of(&record(calls.collect())));
    assert!(html.len() < LARGEST && html.contains("49,936 more steps of this turn: not shown."));
}

#[test]
fn pages_of_attempts_have_names_of_their_own() {
    let key = |task: &str, id: &str, repeat| AttemptKey {
        task: task.to_owned(),
        mode: Mode::Sandbox,
        id: id.to_owned(),
        repeat,
    };
    assert_eq!(page_name(&key("math", "p1", 0)), "math,sandbox,p1,0.html");
    let long = "../".repeat(1000);
    let hostile = [key("..", "/etc/passwd", 0), key(&long, &long, 0), key(&long, &long, 1)];
    let names = hostile.map(|key| page_name(&key));
    assert!(names[1] != names[2]);
    assert!(names.iter().all(|name| name.len() < 256 && !name.contains('/')), "{names:?}");
}
