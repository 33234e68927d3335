//! Rows from contexts: no overlap of training and validation, no duplicates, no leaked answers, all losses reported.

use std::{cell::Cell, collections::HashSet, fs, ops::ControlFlow};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    shape::{Context, CorrectAnswer, Question},
    *,
};
use crate::{InputInfo, Progress, Row, ignore_progress};

struct Draft {
    dir: tempfile::TempDir,
    manifest: Manifest,
}

impl Draft {
    fn rows(&self, name: &str) -> Vec<Row> {
        let text = fs::read_to_string(self.dir.path().join("out").join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn all(&self) -> Vec<Row> {
        [self.rows("train.jsonl"), self.rows("validation.jsonl")].concat()
    }
}

fn made_of(files: &[(&str, String)], settings: &PrepareSettings) -> Result<Draft, PrepareError> {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = files.iter().map(|(name, _)| dir.path().join(name)).collect();
    for ((_, text), path) in files.iter().zip(&paths) {
        fs::write(path, text).unwrap();
    }
    let manifest = prepare(&paths, settings, &dir.path().join("out"), &ignore_progress)?;
    Ok(Draft { dir, manifest })
}

fn draft(values: &[Value], settings: &PrepareSettings) -> Draft {
    made_of(&[("in.jsonl", lines(values))], settings).unwrap()
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

/// All for training.
fn no_validation() -> PrepareSettings {
    PrepareSettings { validation: 0.0, ..PrepareSettings::default() }
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
fn rows_are_the_same_in_every_version() {
    let files = draft(&towns(40), &PrepareSettings::default()).manifest.files;
    // Recorded with the first version. Published tasks and trained models depend on every byte.
    for (file, digest) in [
        ("train.jsonl", "7760c60bc8ae138f7215d13f5303ea1356e47a809a3f63a52aa338dee46df205"),
        ("validation.jsonl", "592438fbf8506eb701568a892ec4c6c8b6ac8a3c84cc44d297fbba27df45ba05"),
        ("task.toml", "f0cdb9508dbc99036e53820a2aa7365b82e8ba1ddb304841e948c3395a103006"),
    ] {
        assert_eq!(files[file].sha256, digest, "{file}");
    }
}

#[test]
fn contexts_go_to_files_among_others() {
    let draft = draft(&towns(40), &PrepareSettings::default());
    let rows = draft.all();
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
    let draft =
        draft(&contexts, &PrepareSettings { validation: 0.3, ..PrepareSettings::default() });
    let texts = |name: &str| -> HashSet<String> {
        let rows = draft.rows(name);
        rows.into_iter()
            .flat_map(|row| row.input_files.into_values())
            .map(|text| crate::text::normal(&text))
            .collect()
    };
    let (train, validation) = (texts("train.jsonl"), texts("validation.jsonl"));
    assert!(train.is_disjoint(&validation));
    assert!(!validation.is_empty() && validation.len() < train.len());
    let partition = |word: &str| {
        let found =
            |name: &str| draft.rows(name).iter().any(|row| row.problem_statement.contains(word));
        (found("train.jsonl"), found("validation.jsonl"))
    };
    assert_ne!(partition("Town03?"), (true, true));
    assert_eq!(
        (partition("Town03?"), partition("Town03?")),
        (partition("Town04?"), partition("Town05?"))
    );
    assert_eq!(
        (partition("Town08?"), partition("Town09?")),
        (partition("other text"), partition("How many towns"))
    );
    let counted = draft.manifest.counts.validation as f64 / 92.0;
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
    for row in draft(&contexts, &PrepareSettings::default()).all() {
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
        json!({"context": "i", "question": q, "options": {"1": "red", "2": "blue"}, "answer": 2}),
        json!({"context": "j", "question": q, "options": ["+1", "-1"], "answer": "-1"}),
        json!({"context": "k", "question": q, "options": ["x > 5", "x < 5"], "answer": " x < 5"}),
        json!({"context": "bad", "question": q, "options": ["x > 5", "x < 5"], "answer": "X<5"}),
        json!({"context": "bad", "question": q, "choices": ["red", "blue"], "answer": "green"}),
        json!({"context": "bad", "question": q, "choices": ["red"], "answer": 0}),
        json!({"context": "bad", "question": q, "choices": ["red", "blue"], "answer": 2}),
    ];
    let draft =
        draft(&contexts, &PrepareSettings { validation: 0.0, ..PrepareSettings::default() });
    let rows = draft.rows("train.jsonl");
    assert_eq!(rows.len(), 11);
    assert_eq!(draft.manifest.left_out["without an answer"], 4);
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
        json!({"question": "what is  6 times 7?", "answer": "43"}),
        json!({"question": "Who wrote this?", "answer": "nobody knows"}),
    ];
    let draft =
        draft(&contexts, &PrepareSettings { validation: 0.5, ..PrepareSettings::default() });
    let mut rows = draft.all();
    rows.sort_by(|a, b| a.ground_truth.cmp(&b.ground_truth));
    let told: Vec<_> =
        rows.iter().map(|row| (row.domain.as_str(), row.ground_truth.as_str())).collect();
    assert_eq!(told, [("math", "42"), ("instruct_pretrain", "nobody knows")]);
    assert!(rows.iter().all(|row| row.input_files.is_empty() && row.demonstration.is_empty()));
    assert_eq!(draft.manifest.left_out["that repeat others"], 1);
}

#[test]
fn signs_tell_questions_and_answers_apart() {
    let contexts = [
        json!({"question": "What is 6 + 7?", "answer": "13"}),
        json!({"question": "What is 6 - 7?", "answer": "-1"}),
        json!({"question": "Which is larger?", "choices": ["-1", "1"], "answer": "1"}),
        json!({"question": "Which is larger?", "choices": ["-1", "+1"], "answer": "+1"}),
        json!({"question": "Where is it?", "answers": ["5", "-5", "-5"]}),
    ];
    let draft = draft(&contexts, &no_validation());
    let mut truths: Vec<String> = draft.all().into_iter().map(|row| row.ground_truth).collect();
    truths.sort_unstable();
    assert_eq!(truths, ["-1", "-5", "13", "B", "B"]);
}

#[test]
fn only_finite_numbers_are_mathematics() {
    let contexts: Vec<Value> = ["-4", ".5", "1,234", "nan", "inf", "-Infinity", "1e999"]
        .into_iter()
        .map(|answer| json!({"question": format!("What is like {answer}?"), "answer": answer}))
        .collect();
    let rows = draft(&contexts, &no_validation()).all();
    assert_eq!(rows.len(), contexts.len());
    for row in rows {
        let number = row.ground_truth.ends_with(['4', '5']);
        assert_eq!(row.domain == "math", number, "{row:?}");
        let graded = grade::context::Row {
            domain: &row.domain,
            qa_type: Some(&row.qa_type),
            ground_truth: &row.ground_truth,
            agent_answer: &row.ground_truth,
        };
        assert_eq!(grade::context::reward(&graded), Ok(1.0), "{row:?}");
    }
}

#[test]
fn titles_join_over_inputs_and_blank_ones_do_not() {
    let settings =
        |seed| PrepareSettings { seed, validation: 0.5, examples: 0, ..PrepareSettings::default() };
    let titled = |title: &str| {
        let mut towns = towns(8);
        towns.iter_mut().for_each(|town| town["title"] = title.into());
        towns
    };
    for seed in 0..10 {
        let mut towns = titled(" ");
        towns[0]["title"] = "Rivers".into();
        towns[1]["title"] = "Rivers".into();
        let files = [("a.jsonl", lines(&towns[..1])), ("b.jsonl", lines(&towns[1..]))];
        let draft = made_of(&files, &settings(seed)).unwrap();
        let held_out = draft.rows("validation.jsonl");
        assert!(!held_out.is_empty());
        let asks = |town| held_out.iter().any(|row| row.problem_statement.contains(town));
        assert_eq!(asks("Town00?"), asks("Town01?"));
    }
    let draft = draft(&titled("One"), &settings(0));
    assert_eq!(draft.manifest.counts.validation, 0);
    // Nor is there anything to put beside them.
    assert_eq!(draft.manifest.counts.fewer_distractors, 24);
}

#[test]
fn names_of_files_do_not_hold_small_numbers() {
    let town = |at: usize| json!({"context": format!("Town{at} has {at} bridges."), "question": format!("How many bridges has Town{at}?"), "answer": at});
    let mut contexts: Vec<Value> = (1..13).map(town).collect();
    let many: Vec<String> = (0..40).map(|at| format!("Text {at}.")).collect();
    contexts.push(json!({"documents": many, "question": "How many?", "answer": 12}));
    let long = |name: &str| format!("{name}\n\n") + &"It goes on and on.\n\n".repeat(6000);
    contexts.push(json!({"documents": [long("A"), "B"], "question": "How long?", "answer": 12}));
    for seed in 0..4 {
        for row in draft(&contexts, &PrepareSettings { seed, ..no_validation() }).all() {
            for name in row.input_files.keys() {
                let mut numbers = name.split(|c: char| !c.is_ascii_digit());
                assert!(numbers.all(|number| number != row.ground_truth), "{name}: {row:?}");
            }
        }
    }
}

#[test]
fn examples_are_near_and_tell_nothing() {
    // Too long for an example, but for the first.
    let long = "many words ".repeat(60);
    let answer = |at: usize| if at == 0 { "few" } else { &long };
    let mut qas: Vec<Value> = (0..202)
        .map(|at| json!({"question": format!("Number {at}?"), "answer": answer(at)}))
        .collect();
    qas.push(json!({"question": "Who reigned?", "answer": "Mary Stuart"}));
    qas.push(json!({"question": "Who was the queen?", "answer": "Queen Mary Stuart"}));
    let rows = draft(&[json!({"context": "Text.", "qas": qas})], &no_validation()).all();
    let statement = |asked: &str| {
        let mut all = rows.iter().map(|row| &row.problem_statement);
        all.find(|statement| statement.ends_with(asked)).unwrap()
    };
    assert!(statement("Number 200?").contains("Answer: few"));
    assert_eq!(statement("Number 201?"), "Number 201?");
    // Most of the answer.
    assert_eq!(statement("Who was the queen?"), "Who was the queen?");
}

#[test]
fn hostile_rows_are_bounded() {
    // Of many answers, the first count; of many words, the first are looked for.
    let words: String = (0..64).map(|at| format!("word{at:02} ")).collect();
    let many: Vec<String> = (0..5000).map(|at| format!("answer{at}")).collect();
    let contexts = [
        json!({"context": "The river is answer0.", "question": "Which river?", "answers": many}),
        json!({"context": "The tower is tall.", "question": format!("{words} tower?"), "answer": "tall"}),
    ];
    let rows = draft(&contexts, &no_validation()).all();
    let mut told: Vec<_> =
        rows.iter().map(|row| (row.answers.len(), row.demonstration.len())).collect();
    told.sort_unstable();
    assert_eq!(told, [(0, 0), (100, 2)]);
}

#[test]
fn a_row_has_a_bounded_size() {
    let texts: Vec<String> =
        (0..9).map(|at| format!("{at}{}", "-".repeat((1 << 20) - 1))).collect();
    let context = |documents: &[String]| {
        let right = CorrectAnswer::Text(vec!["x".into()]);
        let questions = vec![Question { text: "What?".into(), right, domain: None }];
        Context { input: 0, line: 1, title: None, documents: documents.to_vec(), questions }
    };
    let settings = PrepareSettings { distractors: 8, ..no_validation() };
    let mut manifest = Manifest::new("prepare", 0, Value::Null);
    let file = "in.json".into();
    manifest.inputs.push(InputInfo {
        file,
        bytes: 0,
        sha256: String::new(),
        contexts: 3,
        questions: 3,
    });
    // Nine are too many, eight are not, and of eight others one stays away.
    let contexts = vec![context(&texts), context(&texts[..8]), context(&texts[8..])];
    let pool = Pool::of(contexts, &mut manifest);
    assert_eq!(manifest.losses(), "1 that are too long");
    let places = pool.select(&settings, &mut manifest).train;
    let mut builder = Builder::new(&pool, &settings, &places);
    for place in places {
        let row = builder.row(place);
        let size: usize = row.input_files.values().map(String::len).sum();
        // Every part ends with a line of its own.
        assert_eq!(size, (8 << 20) + row.input_files.len());
    }
    assert_eq!(builder.fewer, 1);
}

#[test]
fn the_squad_file_is_read_and_the_unanswerable_left_out() {
    let file = json!({"version": "2.0", "data": [{"title": "T", "paragraphs": [{"context": "Water is wet.", "qas": [
        {"id": "1", "question": "What is wet?", "answers": [{"text": "Ice", "answer_start": 0}, {"text": "water", "answer_start": 0}, {"text": "Water", "answer_start": 0}], "is_impossible": false},
        {"id": "2", "question": "What is dry?", "answers": [], "is_impossible": true},
        {"id": "3", "question": "What is warm?", "answers": []},
    ]}]}]});
    let draft = made_of(&[("squad.json", file.to_string())], &PrepareSettings::default()).unwrap();
    let [row] = &draft.rows("train.jsonl")[..] else { panic!("not one row") };
    // The answer given most often.
    assert_eq!((row.ground_truth.as_str(), row.answers.len()), ("water", 3));
    assert!(row.id.starts_with("squad-"), "{}", row.id);
    assert_eq!(draft.manifest.left_out["without an answer"], 2);
    assert_eq!(draft.manifest.counts.validation, 0);
}

#[test]
fn long_documents_come_in_parts_and_the_prompt_takes_them_whole() {
    let paragraph = |at: usize| format!("Paragraph {at}. {}\n\n", "It goes on and on. ".repeat(60));
    let long: String = (0..30).map(paragraph).collect();
    let contexts = [
        json!({"id": "x", "document": long, "questions": [{"question": "Which paragraph is the last one?", "answers": ["29", "the 29th"]}]}),
    ];
    let settings = PrepareSettings { validation: 0.0, ..PrepareSettings::default() };
    let row = draft(&contexts, &settings).rows("train.jsonl").remove(0);
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
    let row = draft(&contexts, &settings).rows("train.jsonl").remove(0);
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
    for row in draft(&contexts, &settings).rows("train.jsonl") {
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
    let endless = " ".repeat((8 << 20) + 1);
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
        &endless,
    ]
    .join("\n");
    let draft = made_of(&[("in.jsonl", lines)], &PrepareSettings::default()).unwrap();
    assert_eq!(draft.all().len(), 1);
    let left: Vec<_> =
        draft.manifest.left_out.iter().map(|(reason, many)| (*reason, *many)).collect();
    assert_eq!(
        left,
        [
            ("of an unknown shape", 1),
            ("that are too long", 3),
            ("that cannot be read", 3),
            ("that no grader accepts", 1),
            ("that repeat others", 1),
            ("without an answer", 2),
        ]
    );
    let named = &draft.manifest.left_out_first;
    assert_eq!((named.len(), named[0].line, named[0].file.as_str()), (11, 1, "in.jsonl"));
    assert!(named.iter().any(|left| left.line == 8 && left.why.contains("poetry")), "{named:?}");
}

#[test]
fn nothing_left_is_an_error_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.jsonl");
    fs::write(&input, "{}\n").unwrap();
    let out = dir.path().join("out");
    let refused = |inputs: &[PathBuf], settings: &PrepareSettings| {
        let error = prepare(inputs, settings, &out, &ignore_progress).unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        error.to_string()
    };
    let usual = PrepareSettings::default();
    let error = refused(std::slice::from_ref(&input), &usual);
    assert!(error.contains("no row is left") && error.contains("1 of an unknown shape"), "{error}");
    assert!(refused(&[dir.path().join("none.jsonl")], &usual).contains("cannot read"));
    assert!(refused(&[dir.path().join("a.csv")], &usual).contains(".jsonl or .json"));
    for (settings, why) in [
        (PrepareSettings { validation: 1.0, ..usual.clone() }, "fraction"),
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
    let settings = PrepareSettings {
        limit: Some(40),
        seed: 5,
        licences: vec!["CC BY-SA 4.0".into()],
        ..PrepareSettings::default()
    };
    let texts = |text: &str, settings: &PrepareSettings| {
        let draft = made_of(&[("in.jsonl", text.to_owned())], settings).unwrap();
        assert_eq!(draft.manifest.counts.train + draft.manifest.counts.validation, 40);
        ["train.jsonl", "validation.jsonl", "task.toml", "manifest.json"]
            .map(|name| fs::read_to_string(draft.dir.path().join("out").join(name)).unwrap())
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

#[test]
fn inputs_that_overlap_may_come_in_any_order() {
    let towns = towns(12);
    let asked = |at: usize, question: &str, answer: &str| json!({"context": towns[at]["context"].as_str().unwrap().to_uppercase(), "question": question, "answer": answer});
    let other: Vec<Value> = towns[..6]
        .iter()
        .cloned()
        .chain([
            asked(7, "Which river flows through Town07?", "another"),
            asked(8, "What is tall?", "the tower"),
        ])
        .collect();
    let rows = |files: &[(&str, String)]| {
        let draft = made_of(files, &PrepareSettings::default()).unwrap();
        (draft.rows("train.jsonl"), draft.rows("validation.jsonl"))
    };
    let files = [("a.jsonl", lines(&towns)), ("b.jsonl", lines(&other))];
    let [a, b] = files.clone();
    assert_eq!(rows(&files), rows(&[b, a]));
}

#[test]
fn only_regular_files_are_read_and_reading_can_be_cancelled() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let dir = tempfile::tempdir().unwrap();
    let [pipe, device, long] =
        ["pipe.jsonl", "device.json", "long.jsonl"].map(|name| dir.path().join(name));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &device).unwrap();
    fs::write(&long, "\n".repeat(1 << 20)).unwrap();
    let out = dir.path().join("out");
    for path in [pipe, device] {
        let error =
            prepare(&[path], &PrepareSettings::default(), &out, &ignore_progress).unwrap_err();
        let PrepareError::Input(InputError::Io { source, .. }) = error else { panic!("{error}") };
        assert!(source.to_string().contains("not a regular file"), "{source}");
    }
    let read = Cell::new(0);
    let enough = |step| match step {
        Progress::Read(more) => {
            read.set(read.get() + more);
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    let error = prepare(&[long], &PrepareSettings::default(), &out, &enough).unwrap_err();
    assert!(matches!(error, PrepareError::Folder(FolderError::Cancelled)), "{error}");
    assert!((1..1 << 20).contains(&read.get()) && !out.exists());
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
