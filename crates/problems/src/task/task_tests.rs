//! Prompts with and without a sandbox, and the grading of built-in tasks.

use serde_json::json;

use super::*;
use crate::Grading;
use crate::{Grade, JudgeRequest};

fn problem(truth: &str) -> Problem {
    let row = json!({"id": "p", "domain": "long_context", "problem_statement": "Why {x}?", "ground_truth": truth});
    Problem::from_row(row).unwrap()
}

fn with_files(truth: &str) -> Problem {
    let files = [("b.txt", "second"), ("a.txt", "first {y}")];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    Problem { files, ..problem(truth) }
}

fn score(task: &str, truth: &str, answer: &str) -> f64 {
    match Task::builtin(task).unwrap().grading(&problem(truth), answer) {
        Grading::Done(grade) => grade.score,
        other => panic!("{other:?}"),
    }
}

#[test]
fn built_in_tasks_are_complete() {
    for name in Task::BUILTIN {
        let task = Task::builtin(name).unwrap();
        assert_eq!(task.name, name);
        assert_eq!(task.turns, 100);
        assert_eq!(task.tokens, if name == "long_context" { 131_072 } else { 65_536 });
        assert_eq!(task.prompts.working_dir, Path::new("/testbed"), "{name}");
        assert_eq!(task.prompts.input_dir, Path::new("/testbed/documents"), "{name}");
        assert!(!task.known_as.is_empty() && task.hub.is_some(), "{name}");
        assert_eq!(task.answer_location() == AnswerLocation::Diff, name == "swe");
        assert_eq!(task.setup(&problem("x")).is_some(), name == "swe");
        assert!(task.plain_prompt(&problem("x")).contains("Why {x}?"), "{name}");
    }
    assert_eq!(Task::builtin("nonesuch"), None);
}

#[test]
fn a_plain_message_holds_the_form_of_the_answer_and_the_documents() {
    let plain = |name: &str, problem: &Problem| Task::builtin(name).unwrap().plain_prompt(problem);
    assert!(plain("math", &problem("1")).ends_with(r"\boxed{}."));
    assert_eq!(plain("biomed", &problem("A")), "Why {x}?");
    assert_eq!(plain("instruct_follow", &problem("{}")), "Why {x}?");
    assert_eq!(plain("long_context", &problem("1")), "Why {x}?");
    assert_eq!(
        plain("long_context", &with_files("1")),
        "--- document 1 of 2: a.txt ---\nfirst {y}\n--- end of document 1 ---\n\n\
         --- document 2 of 2: b.txt ---\nsecond\n--- end of document 2 ---\n\n\
         The question, to be answered from these documents:\n\nWhy {x}?"
    );
    let task = Task::builtin("long_context").unwrap();
    let statement = task.with_documents_in_prompt(&with_files("1"));
    assert!(
        statement.contains("second\n") && statement.ends_with("and /testbed/documents is empty.")
    );
    assert_eq!(task.with_documents_in_prompt(&problem("1")), "Why {x}?");
}

#[test]
fn templates_are_filled_once() {
    let fill = |template: &str, problem: &Problem| {
        assert_eq!(check_template(template), Ok(()));
        let form = PlainPrompt::Template(template.to_owned());
        Task { plain_prompt: form, ..Task::builtin("math").unwrap() }.plain_prompt(problem)
    };
    assert_eq!(fill("Q: {problem_statement} {{}}", &problem("1")), "Q: Why {x}? {}");
    let text = fill("{documents}\n{problem_statement}", &with_files("1"));
    assert!(text.starts_with("--- document 1") && text.ends_with("\nWhy {x}?"));
    assert!(fill("{problem_statement}", &with_files("1")).starts_with("--- document 1"));
    let text = fill("Not {{documents}}: {problem_statement}", &with_files("1"));
    assert!(text.starts_with("--- document 1") && text.ends_with("Not {documents}: Why {x}?"));
    let text = fill("{{{documents}}} {problem_statement}", &with_files("1"));
    assert!(text.starts_with("{--- document 1"));
    for (template, why) in [
        ("{x}", "{x}"),
        ("{", "unmatched brace"),
        ("a}", "unmatched brace"),
        ("{{}", "unmatched brace"),
    ] {
        assert!(check_template(template).unwrap_err().contains(why), "{template}");
    }
}

#[test]
fn a_marker_introduces_the_answer_of_a_plain_response() {
    let mut task = Task::builtin("instruct_pretrain").unwrap();
    let response = "Answer: perhaps 3?\nNo.\n**Answer: 4 km**\nDone.";
    assert_eq!(task.plain_answer(response), response);
    task.answer_marker = Some("Answer:".to_owned());
    assert_eq!(task.plain_answer(response), "4 km");
    assert_eq!(task.plain_answer("It is 4."), "It is 4.");
    assert_eq!(task.plain_answer("Answer:"), "Answer:");
    assert_eq!(task.plain_answer("Answer: \n4"), "");
}

#[test]
fn each_grader_gets_the_answer_as_it_is() {
    assert_eq!(score("math", "70", "So it is \\boxed{70}."), 1.0);
    assert_eq!(score("math", "70", "70"), 1.0);
    assert_eq!(score("math", "70", "71"), 0.0);
    assert_eq!(score("chem", "C", "The answer is (C)."), 1.0);
    assert_eq!(score("biomed", "J", "Answer: A"), 0.0);
    assert_eq!(score("instruct_pretrain", "Fresh food.", "fresh food indeed"), 0.8);
    let truth =
        json!({"instruction_id_list": ["format:no_whitespace"], "kwargs": [{}]}).to_string();
    let Grading::Done(grade) =
        Task::builtin("instruct_follow").unwrap().grading(&problem(&truth), "*a* x\nb c\nd e")
    else {
        panic!("not graded at once")
    };
    assert_eq!(grade.score, 0.0);
    assert_eq!(grade.details, json!({"strict": false, "loose": false, "loose8": false}));
}

#[test]
fn a_judge_is_asked_and_counted() {
    let task = Task::builtin("physics").unwrap();
    let Grading::Judge(job) = task.grading(&problem("5 N"), "thinking</think> 5 newtons") else {
        panic!("no judge")
    };
    let JudgeRequest { prompt, votes, temperature, max_tokens } = &job;
    assert!(prompt.contains("Why {x}?") && prompt.contains("5 N") && prompt.contains("5 newtons"));
    assert!(!prompt.contains("thinking"));
    assert_eq!((*votes, *temperature, *max_tokens), (4, 0.7, 16_384));
    let replies = ["CORRECT", "incorrect", "no idea"].map(|reply| Some(reply.to_owned()));
    let Grade { score, details } = job.grade(&[&replies[..], &[None]].concat());
    assert_eq!(score, 0.25);
    assert_eq!(details["votes"], json!(["CORRECT", "INCORRECT", "UNKNOWN", "ERROR"]));
}

#[test]
fn rows_a_grader_cannot_use_are_bad_ones() {
    let check = |task: &str, problem: &Problem| {
        let checked = Task::builtin(task).unwrap().grader.check(problem);
        checked.map_err(|error| error.to_string())
    };
    for name in ["math", "physics", "chem", "instruct_pretrain", "instruct_follow"] {
        assert!(
            check(name, &problem(" ")).unwrap_err().contains("`ground_truth` is empty"),
            "{name}"
        );
    }
    assert!(check("math", &problem("1")).is_ok());
    assert!(check("instruct_follow", &problem("{}")).unwrap_err().contains("instruction_id_list"));
    assert!(check("instruct_pretrain", &problem("1")).is_ok());
    let poetry = Problem { domain: "poetry".into(), ..problem("1") };
    assert!(check("instruct_pretrain", &poetry).unwrap_err().contains("unknown domain `poetry`"));
    assert!(check("swe", &problem("1")).unwrap_err().contains("`FAIL_TO_PASS` is empty"));
}
