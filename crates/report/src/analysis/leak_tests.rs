//! Leaks that must be found, and false positives that must not.

use serde_json::{Map, Value, json};

use super::{Call, Leak, LeakReason, LeakTarget, Turn, leaks};

const STATEMENT: &str = "A zookeeper has 41 llamas and buys twice as many alpacas on a rainy Tuesday in March. \
                         Every alpaca needs three buckets of oats. How many buckets are needed altogether?";

/// An episode of shell commands and what each showed.
fn episode(steps: &[(&str, &str)], truth: &str, names: &[&str]) -> Vec<Leak> {
    let calls: Vec<(&str, Value)> =
        steps.iter().map(|(command, _)| ("execute_bash", json!({"command": command}))).collect();
    let observed: Vec<&str> = steps.iter().map(|(_, observed)| *observed).collect();
    played(&calls, &observed, truth, names)
}

fn played(calls: &[(&str, Value)], observed: &[&str], truth: &str, names: &[&str]) -> Vec<Leak> {
    let empty = Map::new();
    let turns: Vec<Turn<'_>> = (1..)
        .zip(calls.iter().zip(observed))
        .map(|(number, ((tool, arguments), observed))| Turn {
            number,
            calls: vec![Call { tool, arguments: arguments.as_object().unwrap_or(&empty) }],
            observed: vec![observed],
            ..Turn::default()
        })
        .collect();
    let known_as: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let target =
        LeakTarget { known_as: &known_as, problem_statement: STATEMENT, ground_truth: truth };
    leaks(&turns, &target)
}

fn reasons(found: &[Leak]) -> Vec<(u32, &str)> {
    let name = |why: &LeakReason| match why {
        LeakReason::Benchmark { .. } => "benchmark",
        LeakReason::Answer { .. } => "answer",
        LeakReason::Dataset => "dataset",
    };
    found.iter().map(|leak| (leak.turn, name(&leak.why))).collect()
}

#[track_caller]
fn named(command: &str, observed: &str, expected: &[(u32, &str)]) {
    let found =
        episode(&[(command, observed)], "246", &["AIME 2025", "AIME", "math", "Llama-Bench"]);
    assert_eq!(reasons(&found), expected, "{command}: {observed}");
}

#[test]
fn names_of_the_benchmark_in_what_is_fetched() {
    let yes: &[(u32, &str)] = &[(1, "benchmark")];
    named("curl 'https://example.org/?q=aime+2025+problem'", "", yes);
    named("curl https://example.org/AIME%202025", "", yes);
    named("curl https://example.org/list", "<h1>AIME-2025 solutions</h1>", yes);
    named("curl https://example.org/list", "see aime_2025_I", yes);
    named("wget https://example.org/aime2025.json", "", yes);
    named("pip install llama-bench", "", yes);
    named(
        "python3 -c \"import requests; requests.get('https://example.org/llama_bench')\"",
        "",
        yes,
    );
    named("curl https://example.org", "the AIME is a contest", yes);
}

#[test]
fn names_that_mean_nothing() {
    named("curl https://example.org/math", "math is fun; maths, MATH", &[]);
    named("curl https://example.org", "aimed at 2025; raimes 2025; aim 2025; aime", &[]);
    named("curl https://example.org", "AIME20255 or XAIME2025", &[]);
    named("cat notes.txt", "AIME 2025", &[]);
    named("echo curl AIME 2025", "AIME 2025", &[]);
    named("curl -s localhost:8000/AIME", "AIME 2025", &[]);
    named("curl --version", "AIME 2025", &[]);
    named("curl https://example.org", "the llama sat on the bench", &[]);
    let statement_names_it =
        episode(&[("curl https://example.org", "llamas: a list")], "x", &["llamas"]);
    assert_eq!(statement_names_it, []);
}

#[test]
fn an_address_has_an_end() {
    let fetched = |length: usize| {
        let command = format!("curl https://github.com/{}.json", "x".repeat(length));
        episode(&[(&command, "")], "seventeen zebras", &[]).len()
    };
    assert_eq!((fetched(60), fetched(600)), (1, 0));
}

#[track_caller]
fn answered(truth: &str, observed: &str, expected: &[(u32, &str)]) {
    let found = episode(&[("curl -s https://example.org/page", observed)], truth, &[]);
    assert_eq!(reasons(&found), expected, "{truth}: {observed}");
}

#[test]
fn a_long_formula_is_matched_verbatim() {
    let formula = format!("{}={}", "a".repeat(150), "b".repeat(100));
    answered(&formula, &format!("it is {formula} indeed"), &[(1, "answer")]);
    answered(&formula, "it is a=b", &[]);
}

#[test]
fn telling_answers_are_found_anywhere() {
    let yes: &[(u32, &str)] = &[(1, "answer")];
    answered("CC(=O)Oc1ccccc1C(=O)O", "smiles: CC(=O)Oc1ccccc1C(=O)O\n", yes);
    answered("\\boxed{\\frac{3\\sqrt{7}}{11}}", "so \\frac{3\\sqrt{7}}{11} follows", yes);
    answered("Treaty of Utrecht", "the treaty  of\nUTRECHT ended it", yes);
    answered("1234567", "total 1,234,567 buckets", yes);
    answered("Treaty of Utrecht", "the treaty of Utrechtian kind", &[]);
    answered("1234567", "91234567", &[]);
}

#[test]
fn weak_answers_need_the_problem_and_the_word() {
    let page = format!("{STATEMENT} Answer: 246. Next problem");
    let yes: &[(u32, &str)] = &[(1, "answer")];
    answered("246", &page, yes);
    answered("\\boxed{246}", &page, yes);
    answered("C", &format!("{STATEMENT}\nThe correct answer is (C)."), yes);
    answered("246", "there are 246 pages; the answer is 246", &[]);
    answered("246", &format!("{STATEMENT} page 246 of 900"), &[]);
    answered("41", &format!("the answer to: {STATEMENT}"), &[]);
    answered("C", "Answer: C", &[]);
    answered("true", "the answer is true", &[]);
    answered("oats", &format!("{STATEMENT} more oats"), &[]);
    answered("", "anything", &[]);
    answered("{\"instruction_id_list\": [\"a:b\"]}", "{\"instruction_id_list\": [\"a:b\"]}", &[]);
}

#[test]
fn an_example_of_the_answer_in_the_problem_is_none() {
    let statement = "Which llama of the four is the fluffiest one on the farm today? Show the choice as \
                     \"answer\": \"C\". A. Ada B. Bob C. Cleo D. Dan";
    let target = LeakTarget { known_as: &[], problem_statement: statement, ground_truth: "C" };
    let arguments = json!({"command": "curl https://example.org/llamas"});
    let turn = |observed| Turn {
        number: 1,
        calls: vec![Call { tool: "execute_bash", arguments: arguments.as_object().unwrap() }],
        observed: vec![observed],
        ..Turn::default()
    };
    assert_eq!(leaks(&[turn(statement)], &target), []);
    let solved = format!("{statement} The right answer: C");
    assert_eq!(leaks(&[turn(&solved)], &target).len(), 1);
}

#[test]
fn long_answers_are_found_by_their_words() {
    let words: Vec<String> = (0..80).map(|n| format!("word{}", n * 7919 % 1000)).collect();
    let truth = words.join(" ");
    answered(&truth, &format!("before {} after", words[..60].join("  ")), &[(1, "answer")]);
    answered(&truth, &words[..20].join(" "), &[]);
    let shuffled: Vec<_> = words.iter().rev().map(String::as_str).collect();
    answered(&truth, &shuffled.join(" "), &[]);
}

#[test]
fn only_what_was_fetched_can_leak() {
    let truth = "Treaty of Utrecht";
    let local = [("cat documents/a.txt", truth), ("python3 solve.py", truth), ("echo x", truth)];
    assert_eq!(episode(&local, truth, &[]), []);
    let packages = [("pip install x", truth)];
    assert_eq!(episode(&packages, truth, &[]), []);
}

#[test]
fn files_that_were_fetched_are_followed() {
    let truth = "Treaty of Utrecht";
    for (get, look) in [
        ("curl -so page.html https://example.org/x", "grep -i treaty page.html"),
        ("wget -q https://example.org/data/list.csv", "head /testbed/list.csv"),
        (
            "curl -s https://example.org/x | jq . > out.json",
            "python3 -c \"print(open('out.json').read())\"",
        ),
        ("git clone -q https://example.org/some/repo.git", "cat repo/README.md"),
        (
            "cat > get.py <<'E'\nimport requests\nprint(requests.get('https://example.org').text)\nE",
            "python3 get.py",
        ),
    ] {
        let found = episode(&[(get, ""), ("ls", ""), (look, truth)], truth, &[]);
        assert_eq!(reasons(&found), [(3, "answer")], "{get}");
    }
    let script =
        json!({"command": "create", "path": "/t/get.py", "file_text": "import httpx\nx()"});
    let run = ("execute_bash", json!({"command": "cd /t && python get.py"}));
    let calls = [("str_replace_editor", script.clone()), run.clone()];
    assert_eq!(reasons(&played(&calls, &["ok", truth], truth, &[])), [(2, "answer")]);
    let rewritten = json!({"command": "create", "path": "/t/get.py", "file_text": "print(1)"});
    let calls = [("str_replace_editor", script), ("str_replace_editor", rewritten), run];
    assert_eq!(played(&calls, &["ok", "ok", truth], truth, &[]), []);
}

#[test]
fn the_answers_own_file_is_the_models() {
    let truth = "Treaty of Utrecht";
    let script =
        "import requests\nopen('/testbed/answer.txt','w').write(requests.get('u').text[:0])";
    let steps = [
        ("cat documents/war.txt", truth),
        (&*format!("python3 - <<E\n{script}\nE"), ""),
        ("cat /testbed/answer.txt", truth),
    ];
    assert_eq!(episode(&steps, truth, &[]), []);
    let given = [
        ("cat documents/war.txt", "long"),
        ("python3 -c \"import requests; open('documents/war.txt')\"", ""),
        ("cat documents/war.txt", truth),
    ];
    assert_eq!(episode(&given, truth, &[]), []);
}

#[test]
fn answers_the_model_knew_are_marked() {
    let truth = "Treaty of Utrecht";
    let known = |steps: &[(&str, &str)]| match episode(steps, truth, &[]).as_slice() {
        [Leak { why: LeakReason::Answer { known_before }, .. }] => *known_before,
        other => panic!("{other:?}"),
    };
    assert!(!known(&[("curl https://example.org/a", truth)]));
    assert!(known(&[("echo 'Treaty of Utrecht'", truth), ("curl https://example.org/a", truth)]));
    assert!(known(&[("curl 'https://example.org/?q=treaty of utrecht'", truth)]));
}

#[test]
fn datasets_are_named() {
    for command in [
        "curl -L https://huggingface.co/datasets/a/b/resolve/main/test.parquet",
        "python3 -c \"from datasets import load_dataset; load_dataset('a/b')\"",
        "wget https://raw.githubusercontent.com/a/b/main/data/test.jsonl",
        "hf download a/b --repo-type dataset",
    ] {
        assert_eq!(
            reasons(&episode(&[(command, "ok")], "246", &[])),
            [(1, "dataset")],
            "{command}"
        );
    }
    for command in [
        "curl https://raw.githubusercontent.com/a/b/main/README.md",
        "git clone https://github.com/a/b",
        "pip install datasets",
        "curl https://huggingface.co/models/a",
    ] {
        assert_eq!(episode(&[(command, "ok")], "246", &[]), [], "{command}");
    }
}

#[test]
fn failed_requests_are_marked() {
    let refused = "curl: (6) Could not resolve host: example.org";
    let found = episode(&[("curl https://example.org/aime2025", refused)], "246", &["AIME 2025"]);
    assert_eq!(found.len(), 1);
    assert!(found[0].failed);
    let open = episode(&[("curl https://example.org/aime2025", "<html>")], "246", &["AIME 2025"]);
    assert!(!open[0].failed);
}

#[test]
fn snippets_and_findings_are_bounded() {
    let noise = format!("\u{1b}[31m{}AIME 2025\u{202e}{}", "x ".repeat(5000), "y".repeat(5000));
    let steps: Vec<(&str, &str)> = vec![("curl https://example.org", noise.as_str()); 200];
    let found = episode(&steps, "246", &["AIME 2025"]);
    assert_eq!(found.len(), 50);
    for leak in &found {
        assert!(leak.snippet.contains("AIME 2025") && leak.snippet.chars().count() <= 240);
        assert!(!leak.snippet.contains(|c: char| c.is_control() || c == '\u{202e}'));
    }
}
