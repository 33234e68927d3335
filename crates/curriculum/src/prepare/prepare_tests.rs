//! Contexts become rows: nothing on both sides, nothing twice, nothing given away, nothing lost without a word.

use std::{collections::HashSet, fs};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{Row, unwatched};

struct Made {
    dir: tempfile::TempDir,
    manifest: Manifest,
}

impl Made {
    fn rows(&self, name: &str) -> Vec<Row> {
        let text = fs::read_to_string(self.dir.path().join("out").join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn all(&self) -> Vec<Row> {
        [self.rows("train.jsonl"), self.rows("validation.jsonl")].concat()
    }
}

fn made_of(files: &[(&str, String)], settings: &PrepareSettings) -> Result<Made, PrepareError> {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = files.iter().map(|(name, _)| dir.path().join(name)).collect();
    for ((_, text), path) in files.iter().zip(&paths) {
        fs::write(path, text).unwrap();
    }
    let manifest = prepare(&paths, settings, &dir.path().join("out"), &unwatched)?;
    Ok(Made { dir, manifest })
}

fn made(values: &[Value], settings: &PrepareSettings) -> Made {
    let lines: String = values.iter().map(|value| format!("{value}\n")).collect();
    made_of(&[("in.jsonl", lines)], settings).unwrap()
}

/// Contexts about one thing each, with three questions.
fn towns(many: usize) -> Vec<Value> {
    let town = |at: usize| {
        json!({"context": format!("Town{at:02} has a river called River{at:02}. Its mayor is Mayor{at:02}. The tower has {} steps.", at + 500),
        "qas": [
            {"question": format!("Which river flows through Town{at:02}?"), "answers": [format!("River{at:02}")]},
            {"question": format!("Who is the mayor of Town{at:02}?"), "answers": [{"text": format!("Mayor{at:02}"), "answer_start": 3}]},
            {"question": format!("How many steps has the tower of Town{at:02}?"), "answers": {"text": [(at + 500).to_string()]}},
        ]})
    };
    (0..many).map(town).collect()
}

#[test]
fn contexts_go_to_files_among_others() {
    let made = made(&towns(40), &PrepareSettings::default());
    let rows = made.all();
    assert_eq!(rows.len(), 120);
    for row in &rows {
        assert_eq!(row.input_files.len(), 4, "{row:?}");
        let holding =
            row.input_files.values().filter(|text| text.contains(&row.ground_truth)).count();
        assert_eq!(holding, 1);
        assert!(!row.problem_statement.contains(&row.ground_truth), "{row:?}");
        assert!(row.input_files.keys().all(|name| !name.contains(&row.ground_truth)));
        assert_eq!((row.domain.as_str(), row.qa_type.as_str()), ("instruct_pretrain", "Free-form"));
        assert_eq!(row.demonstration.len(), 2, "{row:?}");
    }
    // The right file is not always at the same place.
    let place =
        |row: &Row| row.input_files.values().position(|text| text.contains(&row.ground_truth));
    assert_eq!(rows.iter().map(place).collect::<HashSet<_>>().len(), 4);
    let names: HashSet<&String> = rows.iter().flat_map(|row| row.input_files.keys()).collect();
    assert!(names.len() > 20, "{names:?}");
    // The second question begins with the first as an example.
    let mayor =
        rows.iter().find(|row| row.problem_statement.ends_with("mayor of Town07?")).unwrap();
    assert!(
        mayor
            .problem_statement
            .contains("Question: Which river flows through Town07?\nAnswer: River07")
    );
}

#[test]
fn no_document_is_on_both_sides() {
    let mut contexts = towns(30);
    // The same article, a shared document, and the same text in other clothes belong together.
    for at in [3, 4, 5] {
        contexts[at]["title"] = "Rivers".into();
    }
    let shared = contexts[8]["context"].clone();
    contexts.push(json!({"documents": [shared, "Another text."], "question": "What is the other text?", "answer": "another"}));
    let upper = contexts[9]["context"].as_str().unwrap().to_uppercase().replace(' ', "\n ");
    contexts.push(
        json!({"context": upper, "question": "How many towns are told of?", "answer": "one"}),
    );
    let made = made(&contexts, &PrepareSettings { validation: 0.3, ..PrepareSettings::default() });
    let texts = |name: &str| -> HashSet<String> {
        let rows = made.rows(name);
        rows.into_iter()
            .flat_map(|row| row.input_files.into_values())
            .map(|text| crate::text::normal(&text))
            .collect()
    };
    let (train, validation) = (texts("train.jsonl"), texts("validation.jsonl"));
    assert!(train.is_disjoint(&validation));
    assert!(!validation.is_empty() && validation.len() < train.len());
    let side = |word: &str| {
        let found =
            |name: &str| made.rows(name).iter().any(|row| row.problem_statement.contains(word));
        (found("train.jsonl"), found("validation.jsonl"))
    };
    assert_ne!(side("Town03?"), (true, true));
    assert_eq!((side("Town03?"), side("Town03?")), (side("Town04?"), side("Town05?")));
    assert_eq!((side("Town08?"), side("Town09?")), (side("other text"), side("How many towns")));
    let counted = made.manifest.counts.validation as f64 / 92.0;
    assert!((0.2..0.45).contains(&counted), "{counted}");
}

#[test]
fn several_documents_stay_together_without_others() {
    let contexts: Vec<Value> = (0..5)
        .map(|at| {
            json!({"context": [[format!("Left{at}"), ["One. ", "Two."]], [format!("Right{at}"), ["Three."]]],
                "question": format!("What comes after one in {at}?"), "answer": "two"})
        })
        .collect();
    for row in made(&contexts, &PrepareSettings::default()).all() {
        let mut texts: Vec<&str> = row.input_files.values().map(String::as_str).collect();
        texts.sort_unstable();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].starts_with("Left") && texts[0].ends_with("\n\nOne. Two.\n"), "{texts:?}");
    }
}

#[test]
fn choices_in_many_forms() {
    let q = "Which colour has the sky?";
    let contexts = [
        json!({"context": "a", "question": q, "choices": ["red", "blue"], "answer": 1}),
        json!({"context": "b", "question": q, "choices": ["red", "blue"], "answer": "B"}),
        json!({"context": "c", "question": q, "options": ["red", "blue"], "answer": "Blue."}),
        json!({"context": "d", "question": q, "choices": {"text": ["red", "blue"], "label": ["1", "2"]}, "answerKey": "2"}),
        json!({"context": "e", "question": q, "choices": {"B": "blue", "A": "red"}, "answer": "(b)"}),
        json!({"article": "f", "questions": [q], "options": [["red", "blue"]], "answers": ["B"]}),
        json!({"context": "g", "question": q, "choices": ["blue", "red", "azure"], "answer": ["A", "C"]}),
        json!({"context": "h", "question": q, "choices": [{"label": "x", "text": "red"}, {"label": "y", "text": "blue"}], "answer": "y"}),
        json!({"context": "bad", "question": q, "choices": ["red", "blue"], "answer": "green"}),
        json!({"context": "bad", "question": q, "choices": ["red"], "answer": 0}),
        json!({"context": "bad", "question": q, "choices": ["red", "blue"], "answer": 2}),
    ];
    let made = made(&contexts, &PrepareSettings { validation: 0.0, ..PrepareSettings::default() });
    let rows = made.rows("train.jsonl");
    assert_eq!(rows.len(), 8);
    assert_eq!(made.manifest.left_out["without an answer"], 3);
    for row in rows {
        let several = row.problem_statement.contains("C. azure");
        assert_eq!(row.ground_truth, if several { "A, C" } else { "B" }, "{row:?}");
        assert_eq!(row.qa_type, "Multiple Choice");
        assert!(
            row.problem_statement.contains("\n\nA. ") && row.problem_statement.contains("letter")
        );
    }
}

#[test]
fn questions_without_documents_have_no_files() {
    let contexts = [
        json!({"question": "What is 6 times 7?", "answer": "6 * 7 = 42\n#### 42"}),
        json!({"question": "What is  6 times 7 ?", "answer": "43"}),
        json!({"question": "Who wrote this?", "answer": "nobody knows"}),
    ];
    let made = made(&contexts, &PrepareSettings { validation: 0.5, ..PrepareSettings::default() });
    let mut rows = made.all();
    rows.sort_by(|a, b| a.ground_truth.cmp(&b.ground_truth));
    let told: Vec<_> =
        rows.iter().map(|row| (row.domain.as_str(), row.ground_truth.as_str())).collect();
    assert_eq!(told, [("math", "42"), ("instruct_pretrain", "nobody knows")]);
    assert!(rows.iter().all(|row| row.input_files.is_empty() && row.demonstration.is_empty()));
    assert_eq!(made.manifest.left_out["that repeat others"], 1);
}

#[test]
fn the_squad_file_is_read_and_the_unanswerable_left_out() {
    let file = json!({"version": "2.0", "data": [{"title": "T", "paragraphs": [{"context": "Water is wet.", "qas": [
        {"id": "1", "question": "What is wet?", "answers": [{"text": "Ice", "answer_start": 0}, {"text": "water", "answer_start": 0}, {"text": "Water", "answer_start": 0}], "is_impossible": false},
        {"id": "2", "question": "What is dry?", "answers": [], "is_impossible": true},
        {"id": "3", "question": "What is warm?", "answers": []},
    ]}]}]});
    let made = made_of(&[("squad.json", file.to_string())], &PrepareSettings::default()).unwrap();
    let [row] = &made.rows("train.jsonl")[..] else { panic!("not one row") };
    // The answer given most often.
    assert_eq!((row.ground_truth.as_str(), row.answers.len()), ("water", 3));
    assert!(row.id.starts_with("squad-"), "{}", row.id);
    assert_eq!(made.manifest.left_out["without an answer"], 2);
    assert_eq!(made.manifest.counts.validation, 0);
}

#[test]
fn long_documents_come_in_parts_and_the_prompt_takes_them_whole() {
    let paragraph = |at: usize| format!("Paragraph {at}. {}\n\n", "It goes on and on. ".repeat(60));
    let long: String = (0..30).map(paragraph).collect();
    let contexts = [
        json!({"id": "x", "document": long, "questions": [{"question": "Which paragraph is the last one?", "answers": ["29", "the 29th"]}]}),
    ];
    let settings = PrepareSettings { validation: 0.0, ..PrepareSettings::default() };
    let row = made(&contexts, &settings).rows("train.jsonl").remove(0);
    assert!(
        row.input_files.len() > 2 && row.input_files.keys().all(|name| name.contains("-part-"))
    );
    assert!(
        row.input_files.values().all(|text| text.len() < 13_000 && text.starts_with("Paragraph"))
    );
    assert_eq!(
        row.input_files.values().map(String::as_str).collect::<String>().trim(),
        long.trim()
    );
    let settings = PrepareSettings { context: Placement::Prompt, ..settings };
    let row = made(&contexts, &settings).rows("train.jsonl").remove(0);
    assert!(row.input_files.is_empty() && row.problem_statement.contains(long.trim_end()));
    assert!(row.problem_statement.ends_with("Which paragraph is the last one?"));
}

#[test]
fn others_are_about_as_long() {
    let story = |at: usize| {
        let text = format!("Story {at} is long. {}", "It goes on.\n\n".repeat(1500 + 10 * at));
        json!({"context": text, "question": format!("How is story {at}?"), "answer": "long"})
    };
    let contexts: Vec<Value> = towns(60).into_iter().chain((0..12).map(story)).collect();
    let settings = PrepareSettings { validation: 0.0, ..PrepareSettings::default() };
    for row in made(&contexts, &settings).rows("train.jsonl") {
        let long = row.problem_statement.contains("story");
        let mut documents: Vec<&str> =
            row.input_files.keys().filter_map(|name| name.split("-part-").next()).collect();
        documents.dedup();
        assert_eq!(documents.len(), 4, "{:?}", row.input_files.keys());
        assert!(row.input_files.keys().all(|name| name.contains("-part-") == long));
    }
}

#[test]
fn broken_and_huge_lines_are_named_and_left_out() {
    let huge = json!({"context": "x".repeat(2 << 20), "question": "?a", "answer": "b"}).to_string();
    let wordy = json!({"context": "x", "question": "a".repeat(20_000), "answer": "b"}).to_string();
    let deep = format!("{{\"context\": {}1{}}}", "[".repeat(300), "]".repeat(300));
    let good =
        json!({"context": "The answer is b.", "question": "What is the answer?", "answer": "b"})
            .to_string();
    let odd = json!({"context": 5, "question": "a", "answer": "b"}).to_string();
    let strange =
        json!({"context": "x", "question": "a", "answer": "b", "domain": "poetry"}).to_string();
    let empty = json!({"context": "x", "question": "a", "answer": " "}).to_string();
    let none = json!({"context": "x", "question": "a"}).to_string();
    let lines = [
        "{\"context\": ",
        "[]",
        "",
        &huge,
        &wordy,
        &deep,
        &odd,
        &strange,
        &empty,
        &none,
        &good,
        &good,
    ]
    .join("\n");
    let made = made_of(&[("in.jsonl", lines)], &PrepareSettings::default()).unwrap();
    assert_eq!(made.all().len(), 1);
    let left: Vec<_> =
        made.manifest.left_out.iter().map(|(reason, many)| (*reason, *many)).collect();
    assert_eq!(
        left,
        [
            ("of an unknown shape", 1),
            ("that are too long", 2),
            ("that cannot be read", 3),
            ("that no grader accepts", 1),
            ("that repeat others", 1),
            ("without an answer", 2),
        ]
    );
    let named = &made.manifest.left_out_first;
    assert_eq!((named.len(), named[0].line, named[0].file.as_str()), (10, 1, "in.jsonl"));
    assert!(named.iter().any(|left| left.line == 8 && left.why.contains("poetry")), "{named:?}");
}

#[test]
fn nothing_left_is_an_error_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.jsonl");
    fs::write(&input, "{}\n").unwrap();
    let out = dir.path().join("out");
    let refused = |inputs: &[PathBuf], settings: &PrepareSettings| {
        let error = prepare(inputs, settings, &out, &unwatched).unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        error.to_string()
    };
    let usual = PrepareSettings::default();
    let error = refused(std::slice::from_ref(&input), &usual);
    assert!(error.contains("no row is left") && error.contains("1 of an unknown shape"), "{error}");
    assert!(refused(&[dir.path().join("none.jsonl")], &usual).contains("cannot read"));
    assert!(refused(&[dir.path().join("a.csv")], &usual).contains(".jsonl or .json"));
    for (settings, why) in [
        (PrepareSettings { validation: 1.0, ..usual.clone() }, "share"),
        (PrepareSettings { distractors: 51, ..usual.clone() }, "distractors"),
        (PrepareSettings { examples: 21, ..usual.clone() }, "examples"),
        (PrepareSettings { limit: Some(0), ..usual.clone() }, "limit"),
    ] {
        let error = refused(std::slice::from_ref(&input), &settings);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let lines =
        |values: &[Value]| values.iter().map(|value| format!("{value}\n")).collect::<String>();
    let settings = PrepareSettings {
        limit: Some(40),
        seed: 5,
        licences: vec!["CC BY-SA 4.0".into()],
        ..PrepareSettings::default()
    };
    let texts = |text: &str, settings: &PrepareSettings| {
        let made = made_of(&[("in.jsonl", text.to_owned())], settings).unwrap();
        assert_eq!(made.manifest.counts.train + made.manifest.counts.validation, 40);
        ["train.jsonl", "validation.jsonl", "task.toml", "manifest.json"]
            .map(|name| fs::read_to_string(made.dir.path().join("out").join(name)).unwrap())
    };
    let towns = towns(20);
    let once = texts(&lines(&towns), &settings);
    assert_eq!(once, texts(&lines(&towns), &settings));
    assert!(
        once[3].contains("CC BY-SA 4.0") && once[3].contains("\"beyond the limit\": 20"),
        "{}",
        once[3]
    );
    // Another order of the inputs changes nothing about the rows.
    let turned: Vec<Value> = towns.into_iter().rev().collect();
    assert_eq!(once[..2], texts(&lines(&turned), &settings)[..2]);
    let other = PrepareSettings { seed: 6, ..settings };
    assert_ne!(once[0], texts(&lines(&turned), &other)[0]);
}

/// Any JSON, often with the fields that mean something.
fn hostile() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-dA-D\\PC ]{0,12}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "context",
        "documents",
        "document",
        "qas",
        "questions",
        "question",
        "answer",
        "answers",
        "choices",
        "options",
        "text",
        "label",
        "title",
        "sentences",
        "paragraphs",
        "is_impossible",
        "domain",
        "data",
    ]);
    leaf.prop_recursive(5, 60, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|fields| fields
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_object_is_too_strange(value in hostile()) {
        let (contexts, _) = shape::contexts(&value, 0, 1);
        for context in contexts {
            prop_assert!(!context.questions.is_empty());
            for question in context.questions {
                prop_assert!(!pool::truth(&question).is_empty());
            }
        }
    }
}
