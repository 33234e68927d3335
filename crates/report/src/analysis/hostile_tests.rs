//! Hostile texts: nothing panics, and time is linear in the length of the text.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{AnswerStyle, Call, LeakTarget, Turn, leaks, uses};

/// A weak answer and a telling one.
const TRUTHS: [&str; 2] = ["246", "Treaty of Utrecht"];

/// Runs every analysis with one text in every position.
fn everything(text: &str, truths: &[&str]) {
    let shapes: Vec<Map<String, Value>> = [
        json!({"command": text}),
        json!({"command": "create", "path": "a.py", "file_text": text}),
        json!({"command": "create", "path": "a.js", "file_text": text}),
        json!({"command": "create", "path": text, "file_text": text}),
        json!({"command": format!("curl https://example.org > {text}")}),
    ]
    .into_iter()
    .filter_map(|value| value.as_object().cloned())
    .collect();
    let turns: Vec<Turn<'_>> = shapes
        .iter()
        .map(|arguments| Turn {
            number: 1,
            said: text,
            calls: vec![Call { tool: "execute_bash", arguments }],
            observed: vec![text],
        })
        .collect();
    for turn in &turns {
        uses(turn);
    }
    let names = [text.chars().take(40).collect(), "AIME 2025".to_owned()];
    for truth in truths.iter().copied().chain([text]) {
        let target = LeakTarget { known_as: &names, problem_statement: text, ground_truth: truth };
        for leak in leaks(&turns, &target) {
            assert!(leak.snippet.chars().count() <= 240);
        }
    }
    AnswerStyle::of(text);
}

/// Pieces that could make a parser quadratic.
const PIECES: [&str; 54] = [
    "$((",
    "((a) ",
    "while ",
    "'a",
    "os.system(",
    "github.com/",
    "answer 246 ",
    "<<E\n",
    "pip \\\n",
    "x=(",
    "`",
    "a|",
    "AIME 2025 ",
    "%20",
    "treaty of ",
    "let me check. ",
    "(",
    "$(",
    "'",
    "\"",
    "\\",
    "<<a <<b\n",
    "sudo ",
    "cat ",
    "pip ",
    "#",
    "/*",
    "//",
    "'''",
    "subprocess.",
    "os.system('a')",
    "https://github.com/a.json",
    "%",
    "AIME ",
    "246 ",
    "answer: treaty ",
    "\u{202e}",
    "é",
    "$",
    "- ",
    "1. ",
    "**",
    "step 1 ",
    "bash -c ",
    "bash -c '",
    "a>b ",
    "{1..2} ",
    "\u{0}",
    "|",
    "&",
    ";",
    ")",
    ") )",
    "function ",
];

#[test]
fn repeated_pieces_are_survived() {
    for piece in PIECES {
        everything(&piece.repeat(100), &TRUTHS);
    }
}

#[test]
fn time_grows_with_the_length_of_the_text() {
    let time = |piece: &str, length: usize| {
        let text = piece.repeat(length / piece.len());
        let began = Instant::now();
        everything(&text, &TRUTHS[..1]);
        began.elapsed()
    };
    for piece in &PIECES[..16] {
        let (short, long) = (time(piece, 1 << 12), time(piece, 1 << 15));
        // Eight times the text; sixty-four times the time would be the square.
        let most = short * 40 + Duration::from_secs(2);
        assert!(long < most, "{piece:?}: {short:?}, then {long:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_survived(text in any::<String>()) {
        everything(&text, &TRUTHS);
    }

    #[test]
    fn any_mixture_of_syntax_is_survived(pieces in proptest::collection::vec(piece(), 0..40)) {
        everything(&pieces.concat(), &TRUTHS);
    }
}

fn piece() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "(",
        ")",
        "$(",
        "$((",
        "))",
        "`",
        "'",
        "\"",
        "\"\"\"",
        "'''",
        "\\",
        "\n",
        " ",
        "|",
        "||",
        "&&",
        "&>",
        ">&2",
        ">",
        "<<E",
        "<<-'E F'",
        "E",
        "<",
        "<(",
        "<<<",
        "#",
        "//",
        "/*",
        "*/",
        "cat",
        "curl",
        "python3 -c ",
        "python -m pip ",
        "bash -c ",
        "é",
        "\u{202e}",
        "\u{0}",
        "%2",
        "%zz",
        "answer",
        "C",
        "=",
        "a=(",
        "{",
        "}",
        "while",
        "for ((",
        "os.system(",
        "sys.executable",
        "[",
        "]",
        "answer.txt",
        "https://github.com/a.csv",
    ])
}
