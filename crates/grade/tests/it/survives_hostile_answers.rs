//! No text makes a grader panic, overflow the stack or exceed its time.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use lis_grade::lines::{Kind, grade_line};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::instructions::instructions;

/// Longest answer; shorter in debug builds.
const LONGEST: usize = if cfg!(debug_assertions) { 4_000 } else { 1_000_000 };
/// Lengths of answers of one piece. The shorter ones are still parsed, so they nest deepest.
const LENGTHS: &[usize] = if cfg!(debug_assertions) { &[4_000] } else { &[4_000, 18_000, LONGEST] };
/// Time limit of one grade.
const LIMIT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
/// Retries, for busy machines.
const TRIES: usize = 3;

/// Pieces that are repeated to long answers.
const PIECES: [&str; 66] = [
    "a",
    "y",
    "A ",
    "a b ",
    "0",
    "9",
    "9.",
    ".",
    ",",
    "1,",
    "1, ",
    "-",
    "--",
    "+1",
    "1+",
    "^",
    "9^",
    "2^{",
    "x_",
    "x_{",
    "(",
    "(1+",
    "((x",
    ")",
    "[",
    "[(",
    "{",
    "}",
    "{}",
    "\\",
    "\\\\",
    "\\{",
    "\\boxed{",
    "\\boxed{1}",
    "\\frac{1}{",
    "\\frac",
    "\\sqrt{",
    "\\sqrt[",
    "\\left(",
    "\\text{",
    "\\sin ",
    "\\begin{pmatrix}1&",
    "$",
    "$1$",
    "$$",
    "=",
    "1=",
    "x<",
    "x \\in ",
    "\\cup ",
    "\\pm 1",
    "%",
    "!",
    "1!",
    "/x",
    "f(",
    "\n",
    "* ",
    "answer: ",
    "\"answer\" : ",
    "answer is ",
    "</think>",
    "\u{301}",
    "👩\u{200d}🚀",
    "Mr. A. ",
    "\"'",
];

/// Slowest grade and failures so far.
#[derive(Default)]
struct Report {
    slowest: (Duration, String),
    failures: Vec<String>,
}

impl Report {
    /// Grades a line in another thread, which must neither panic nor take long.
    fn grade(&mut self, kind: Kind, name: &str, line: &Value) {
        let name = match line.get("instruction_id") {
            Some(id) => format!("{} {id}: {name}", kind.name()),
            None => format!("{}: {name}", kind.name()),
        };
        let line = line.to_string();
        let mut best = Duration::MAX;
        for _ in 0..TRIES {
            match grade_apart(kind, line.clone()) {
                Ok(took) => best = best.min(took),
                Err(wrong) => return self.failures.push(format!("{name} {wrong}")),
            }
            if best < LIMIT {
                break;
            }
        }
        if best >= LIMIT {
            self.failures.push(format!("{name} takes {best:?}"));
        }
        self.slowest = std::mem::take(&mut self.slowest).max((best, name));
    }

    fn finish(self) {
        println!("slowest: {:?} for {}", self.slowest.0, self.slowest.1);
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
    }
}

/// Time of a line, or its failure.
fn grade_apart(kind: Kind, line: String) -> Result<Duration, String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let start = Instant::now();
        let graded = grade_line(kind, &line);
        let _ = send.send((graded, start.elapsed()));
    });
    match receive.recv_timeout(20 * LIMIT) {
        Ok((Ok(_), took)) => Ok(took),
        Ok((Err(error), _)) => Err(format!("is refused: {error}")),
        Err(mpsc::RecvTimeoutError::Timeout) => Err("takes for ever".into()),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("panics".into()),
    }
}

/// Lines with an answer and another text in every field of a kind.
fn lines(kind: Kind, answer: &str, other: &str) -> Vec<Value> {
    match kind {
        Kind::Math => vec![json!({"gold": other, "pred": answer})],
        Kind::Choice => vec![json!({"agent_answer": answer, "ground_truth": other})],
        Kind::Ifbench => instructions()
            .into_iter()
            .map(|(id, kwargs)| json!({"instruction_id": id, "kwargs": kwargs, "response": answer}))
            .collect(),
        Kind::Rouge => vec![json!({"reference": other, "prediction": answer})],
        Kind::Context => [("instruct_pretrain", "multiple choice"), ("long_context", "")]
            .map(|(domain, qa_type)| {
                json!({"domain": domain, "qa_type": qa_type, "ground_truth": other, "agent_answer": answer})
            })
            .to_vec(),
        Kind::JudgeVerdict => vec![json!({"response": answer})],
    }
}

fn repeated(piece: &str, length: usize) -> String {
    piece.repeat(length / piece.len())
}

/// Long answers of one repeated piece, alone and with a valid answer.
fn survives_repetition(kind: Kind) {
    let mut report = Report::default();
    // Context rewards are math and ROUGE-L, which are tested with every piece.
    let step = if kind == Kind::Context { 4 } else { 1 };
    let pieces = PIECES.iter().step_by(step);
    let texts = pieces.flat_map(|piece| LENGTHS.iter().map(move |length| (piece, *length)));
    for (piece, length) in texts {
        let long = repeated(piece, length);
        let answers = [
            ("alone", long.clone()),
            ("after 1", format!("1{long}")),
            ("boxed", format!("\\boxed{{{long}}}")),
        ];
        for (place, answer) in answers {
            for (other_name, other) in [("1", "1"), ("itself", answer.as_str())] {
                for line in lines(kind, &answer, other) {
                    let name = format!("{piece:?} to {length}, {place}, against {other_name}");
                    report.grade(kind, &name, &line);
                }
            }
        }
    }
    report.finish();
}

#[test]
fn long_answers_of_one_piece_choice() {
    survives_repetition(Kind::Choice);
}

#[test]
fn long_answers_of_one_piece_rouge() {
    survives_repetition(Kind::Rouge);
}

#[test]
fn long_answers_of_one_piece_judge() {
    survives_repetition(Kind::JudgeVerdict);
}

#[test]
fn long_answers_of_one_piece_math() {
    survives_repetition(Kind::Math);
}

#[test]
fn long_answers_of_one_piece_context() {
    survives_repetition(Kind::Context);
}

/// Every constraint on every fourth long answer, each answer by some constraint; unoptimised, on every eighth.
#[test]
fn long_answers_of_one_piece_ifbench() {
    let step = if cfg!(debug_assertions) { 8 } else { 4 };
    let mut report = Report::default();
    for (at, piece) in PIECES.iter().enumerate() {
        let answer = repeated(piece, LONGEST);
        for line in lines(Kind::Ifbench, &answer, "").iter().skip(at % step).step_by(step) {
            report.grade(Kind::Ifbench, &format!("{piece:?} repeated"), line);
        }
    }
    report.finish();
}

/// A text of pieces in a non-repeating order.
fn scrambled(pieces: &[&str], seed: u64, length: usize) -> String {
    let mut text = String::with_capacity(length + 16);
    let mut state = seed;
    while text.len() < length {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
    }
    text
}

#[test]
fn long_texts_without_order() {
    let letters = ["a ", "b ", "c ", "d ", "e "];
    let words = ["running ", "relational ", "of ", "the ", "skies ", "2024 ", "geology "];
    let mut report = Report::default();
    for (name, pieces) in [("letters", letters.as_slice()), ("words", &words), ("pieces", &PIECES)]
    {
        let (one, other) = (scrambled(pieces, 1, LONGEST), scrambled(pieces, 2, LONGEST));
        for kind in Kind::ALL {
            for line in lines(kind, &one, &other) {
                report.grade(kind, &format!("{name} without order"), &line);
            }
        }
    }
    report.finish();
}

fn some_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(&PIECES[..]).prop_map(str::to_owned),
        2 => any::<char>().prop_map(String::from),
        1 => "[ -~]{0,8}",
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 256 } else { 4_000 }))]

    #[test]
    fn any_text_gets_the_same_grade_twice(answer in some_text(), other in some_text()) {
        for kind in Kind::ALL {
            for line in lines(kind, &answer, &other) {
                let line = line.to_string();
                let timed = || {
                    let start = Instant::now();
                    (grade_line(kind, &line).unwrap(), start.elapsed())
                };
                let ((once, took), (again, took_again)) = (timed(), timed());
                // A busy machine may pause one of them.
                prop_assert!(took.min(took_again) < LIMIT, "{} takes {took:?}", kind.name());
                prop_assert_eq!(once, again);
            }
        }
    }

    #[test]
    fn any_line_is_graded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let line = String::from_utf8_lossy(&bytes);
        for kind in Kind::ALL {
            let _ = grade_line(kind, &line);
            let _ = grade_line(kind, &json!({"id": *line, "response": *line}).to_string());
        }
    }
}
