//! Answers in a file or on a pipe are graded line by line; what is wrong with a line is said in its place.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

use serde_json::Value;

use crate::support::{Home, Running, code, crate_path, err, out, refusal, setting, skip, write};

const LINE: &str = r#"{"id": 1, "gold": "3/4", "pred": "\\boxed{0.75}"}"#;

#[test]
fn every_kind_has_its_fields() {
    let home = Home::new();
    for (kind, line, expected) in [
        ("math", LINE, r#"{"id":1,"score":1.0}"#),
        ("choice", r#"{"agent_answer": "(b)", "ground_truth": "B"}"#, r#"{"score":1.0}"#),
        (
            "ifbench",
            r#"{"instruction_id": "count:numbers", "kwargs": {"N": 1}, "response": "*1"}"#,
            r#"{"strict":true,"loose":true,"loose8":true}"#,
        ),
        (
            "rouge",
            r#"{"reference": "a b", "prediction": "b"}"#,
            r#"{"fmeasure":0.6666666666666666}"#,
        ),
        (
            "context",
            r#"{"domain": "chem", "qa_type": null, "ground_truth": "A", "agent_answer": "B"}"#,
            r#"{"score":0.0}"#,
        ),
        (
            "judge-verdict",
            r#"{"id": "x", "response": "It is correct."}"#,
            r#"{"id":"x","verdict":"CORRECT"}"#,
        ),
    ] {
        let file = home.file(kind);
        write(&file, line);
        let output = home.run(["grade", kind, "--input", file.to_str().unwrap(), "--quiet"]);
        let said = (code(&output), out(&output), err(&output));
        assert_eq!(said, (0, format!("{expected}\n"), String::new()), "{kind}");
    }
}

#[test]
fn many_lines_keep_their_order_and_bad_ones_their_place() {
    let home = Home::new();
    let file = home.file("answers.jsonl");
    let mut lines = String::new();
    for n in 0..5000 {
        let answer = n + usize::from(n % 4 == 0);
        match n {
            700 => lines.push_str("{\"gold\": \"1\"\n"),
            3000 => lines.push_str("{\"gold\": \"1\"}\n"),
            _ => writeln!(lines, r#"{{"id": {n}, "gold": "{n}", "pred": "{answer}"}}"#).unwrap(),
        }
    }
    write(&file, lines);
    let output = home.run(["grade", "math", "--input", file.to_str().unwrap()]);
    let grades: Vec<Value> =
        out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(grades.len(), 5000);
    for (n, grade) in grades.iter().enumerate() {
        match n {
            700 | 3000 => {
                assert_eq!(grade["line"], n + 1, "{grade}");
                let error = grade["error"].as_str().unwrap();
                assert!(error.starts_with(if n == 700 { "not JSON: " } else { "no field `pred`" }));
            }
            _ => {
                let score = f64::from(u8::from(n % 4 != 0));
                assert_eq!(*grade, serde_json::json!({"id": n, "score": score}));
            }
        }
    }
    assert_eq!(code(&output), 2);
    let said = err(&output);
    assert!(said.contains("4998 graded, mean score 0.75") && said.contains(", 2 bad"), "{said}");
    assert!(
        said.contains("error: 2 of 5000 lines") && said.contains("line 701: not JSON"),
        "{said}"
    );
}

#[test]
fn a_line_is_answered_before_the_next_one_comes() {
    let home = Home::new();
    let mut command = home.command(["grade", "math", "--input", "-", "--quiet"]);
    let mut running = Running(command.stdin(Stdio::piped()).spawn().unwrap());
    let mut input = running.0.stdin.take().unwrap();
    let mut answers = BufReader::new(running.0.stdout.take().unwrap());
    for _ in 0..3 {
        writeln!(input, "{LINE}").unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "{\"id\":1,\"score\":1.0}\n");
    }
    drop(input);
    assert_eq!(running.end(), 0);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let home = Home::new();
    let mut command = home.command(["grade", "math", "--input", "-"]);
    let mut running = Running(command.stdin(Stdio::piped()).spawn().unwrap());
    drop(running.0.stdout.take());
    let mut input = running.0.stdin.take().unwrap();
    // More than any pipe holds; the program may leave before it has read all.
    let _ = input.write_all(format!("{LINE}\n").repeat(10_000).as_bytes());
    assert_eq!(running.end(), 0);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut running.0.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn bad_input_is_one_line() {
    let home = Home::new();
    let line = refusal(&home.run(["grade", "poetry", "--input", "-"]), 2);
    assert!(line.contains("poetry") && line.contains("judge-verdict"), "{line}");
    let line = refusal(&home.run(["grade", "math", "--input", "missing"]), 2);
    assert!(line.contains("missing") && line.contains("No such file"), "{line}");
    let line = refusal(&home.run(["grade", "math", "--input", "/"]), 2);
    assert!(line.contains("directory"), "{line}");
    assert!(!home.state().exists());
}

#[test]
fn a_line_that_cannot_be_graded_keeps_its_id() {
    let home = Home::new();
    let lines = [
        r#"{"id": "a-1", "instruction_id": "count:numbers", "kwargs": {"N": 1}, "response": "1"}"#,
        r#"{"id": "a-2", "instruction_id": "count:nothing", "kwargs": {}, "response": "1"}"#,
    ];
    write(&home.file("lines"), lines.join("\n"));
    let output = home.run(["grade", "ifbench", "--input", "lines", "--quiet"]);
    let printed = out(&output);
    let mut grades = printed.lines();
    assert!(grades.next().unwrap().contains(r#""strict":true"#), "{printed}");
    let bad = r#"{"line":2,"id":"a-2","error":"unknown constraint `count:nothing`"}"#;
    assert_eq!(grades.next(), Some(bad));
    assert_eq!(code(&output), 2);
    assert!(
        err(&output).contains(r#"the first is line 2 (id "a-2"): unknown"#),
        "{}",
        err(&output)
    );
}

#[test]
fn nothing_to_grade_is_no_error() {
    let home = Home::new();
    let output = home.run(["grade", "rouge", "--input", "/dev/null"]);
    assert_eq!((code(&output), out(&output)), (0, String::new()), "{}", err(&output));
    assert_eq!(err(&output), "llm-in-sandbox: 0 graded\n");
}

#[test]
fn math_is_graded_many_times_faster_than_by_the_original() {
    let Some(package) = setting("LIS_TEST_MATH_VERIFY") else {
        return skip("math-verify", "LIS_TEST_MATH_VERIFY names no directory with math-verify");
    };
    let home = Home::new();
    let args = ["perf", "grade", "--count", "150", "--seed", "3", "--python", "python3", "--json"];
    let output = home.command(args).env("PYTHONPATH", package).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let figures: Value = serde_json::from_str(&out(&output)).unwrap();
    let official = &figures["official"];
    assert_eq!(official["agree"], 150, "{figures}");
    // Released programs are a few times faster than this one, and reach a hundred times and more.
    assert!(official["ratio"].as_f64().unwrap() > 30.0, "{figures}");
}

/// The recorded verdicts on all of these are checked with the grader; some of them here with the original itself.
#[test]
fn intervals_inequalities_and_symbols_are_read_as_by_the_original() {
    let Some(package) = setting("LIS_TEST_MATH_VERIFY") else {
        return skip("math-verify", "LIS_TEST_MATH_VERIFY names no directory with math-verify");
    };
    let home = Home::new();
    let cases = crate_path("../grade/tests/data/math_notation.jsonl");
    let cases = std::fs::read_to_string(cases).unwrap();
    let some: Vec<&str> = cases.lines().step_by(9).collect();
    write(&home.file("cases.jsonl"), some.join("\n"));
    let args = ["perf", "grade", "--input", "cases.jsonl", "--python", "python3", "--json"];
    let output = home.command(args).env("PYTHONPATH", package).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let figures: Value = serde_json::from_str(&out(&output)).unwrap();
    assert!(some.len() > 50 && figures["official"]["agree"] == some.len(), "{figures}");
}

#[test]
fn a_python_without_the_original_is_named() {
    let home = Home::new();
    let line = refusal(&home.run(["perf", "grade", "--count", "0"]), 2);
    assert!(line.contains("no case"), "{line}");
    let args = ["perf", "grade", "--count", "2", "--python", "surely-no-python"];
    let line = refusal(&home.run(args), 4);
    assert!(line.contains("cannot start surely-no-python"), "{line}");
}
