//! Synthetic tasks are reproducible, distinct, and do not reveal their answers.

use std::{cell::Cell, fs, ops::ControlFlow};

use proptest::prelude::*;

use super::*;
use crate::{ignore_progress, solve};

fn settings(count: usize, seed: u64) -> SynthesizeSettings {
    SynthesizeSettings {
        count,
        seed,
        levels: Level::ALL.to_vec(),
        kinds: Kind::ALL.to_vec(),
        validation: 0.1,
    }
}

fn all(seed: u64) -> impl Iterator<Item = Row> {
    let each = Kind::ALL.into_iter().flat_map(|kind| Level::ALL.map(|level| (kind, level)));
    each.flat_map(move |(kind, level)| {
        (0..4).map(move |number| synthetic(kind, level, seed, number))
    })
}

#[test]
fn a_seed_decides_about_everything() {
    assert!(all(1).eq(all(1)));
    assert!(all(1).zip(all(2)).all(|(one, other)| one.input_files != other.input_files));
}

#[test]
fn the_right_answer_is_right_and_stands_in_no_question_or_name() {
    for row in all(3) {
        let graded = grade::context::Row {
            domain: &row.domain,
            qa_type: Some(&row.qa_type),
            ground_truth: &row.ground_truth,
            agent_answer: &row.ground_truth,
        };
        assert_eq!(grade::context::reward(&graded), Ok(1.0), "{}", row.id);
        let words = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect()
        };
        let given = |text: &str| words(text).contains(&row.ground_truth);
        // A small number may stand in a question for another reason.
        let number = row.ground_truth.parse::<i64>().is_ok();
        assert!(number || !given(&row.problem_statement), "{}: {}", row.id, row.problem_statement);
        assert!(!row.ground_truth.is_empty() && !row.input_files.is_empty(), "{}", row.id);
    }
}

fn level(number: u8) -> Level {
    Level::new(number).unwrap()
}

#[test]
fn the_most_frequent_does_not_stand_first() {
    for level in Level::ALL {
        let first = |number: &u64| {
            let row = synthetic(Kind::Frequent, level, 7, *number);
            let line = row.input_files.values().next().unwrap().lines().nth(1).unwrap();
            line.starts_with(&format!("{},", row.ground_truth))
        };
        let often = (0..100).filter(first).count();
        assert!((1..80).contains(&often), "{often}");
    }
}

#[test]
fn the_fullest_directory_holds_files_like_any() {
    let mut first = 0;
    for number in 0..100 {
        let row = synthetic(Kind::Tree, level(4), 7, number);
        assert_eq!(row.input_files.len(), 30);
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for path in row.input_files.keys() {
            let (dir, name) = path.rsplit_once('/').unwrap();
            let dir = dir.rsplit('/').next().unwrap();
            *sizes.entry(dir).or_default() += 1;
            let (topic, rest) = name.split_once('-').unwrap();
            assert!(words::TOPICS.contains(&topic), "{path}");
            first += usize::from(rest.starts_with("1.") && dir == row.ground_truth);
        }
        let own = sizes.remove(row.ground_truth.as_str());
        assert!(own > sizes.into_values().max());
    }
    // Nor is one of them always there.
    assert!((1..80).contains(&first), "{first}");
}

#[test]
fn the_odd_file_has_numbers_like_any() {
    for number in 0..100 {
        let row = synthetic(Kind::Compare, level(5), 7, number);
        let text = |dir: &str, name: &str| row.input_files.get(&format!("{dir}/{name}")).cloned();
        let differs = |name: &str| text("before", name) != text("after", name);
        let names = row.input_files.keys().filter_map(|path| path.strip_prefix("after/"));
        assert_eq!(names.filter(|name| differs(name)).collect::<Vec<_>>(), [&row.ground_truth]);
        for line in row.input_files.values().flat_map(|text| text.lines()) {
            let number: i64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
            assert!((1..=99).contains(&number), "{line}");
        }
    }
}

#[test]
fn higher_levels_are_larger() {
    for kind in Kind::ALL {
        let size = |level: Level| -> usize {
            let texts = (0..6).map(|number| synthetic(kind, level, 5, number).input_files);
            texts.flat_map(BTreeMap::into_values).map(|text| text.len()).sum()
        };
        let sizes = Level::ALL.map(size);
        assert!(sizes[0] < sizes[2] && sizes[2] < sizes[4], "{kind}: {sizes:?}");
        assert!(sizes[0] < 6 * 2000, "{kind}: {sizes:?}");
    }
}

#[test]
fn every_task_comes_with_two_to_four_commands() {
    for row in all(4) {
        let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(&row) else {
            panic!("no row")
        };
        let commands = solve(&fields).unwrap();
        assert!((2..=4).contains(&commands.len()), "{}: {commands:?}", row.id);
        assert!(commands.iter().all(|command| command.len() < 600), "{}: {commands:?}", row.id);
    }
}

#[test]
fn tasks_are_the_same_in_every_version() {
    let dir = tempfile::tempdir().unwrap();
    let manifest =
        synthesize(&settings(900, 7), &dir.path().join("out"), &ignore_progress).unwrap();
    // Recorded with the first version. Published tasks and trained models depend on every byte.
    for (file, digest) in [
        ("train.jsonl", "25b32525a1a1094c6459e35df89aba7d3200848fa50bfe9fb17d93b16e18d8e5"),
        ("validation.jsonl", "634f1b8f3e307fac8fcbd7b62d769137c07f4ebb1196c46dff841e3926969a3e"),
        ("task.toml", "2f1845457ba83704f1088c9cb831000d5248d2670cfce2878bd31508232730b9"),
    ] {
        assert_eq!(manifest.files[file].sha256, digest, "{file}");
    }
}

#[test]
fn folders_are_the_same_every_time_and_split() {
    let dir = tempfile::tempdir().unwrap();
    let wrote = Cell::new(0);
    let draft = |name: &str, seed| {
        let on_progress = |step| {
            if let Progress::Wrote(many) = step {
                wrote.set(wrote.get() + many);
            }
            ControlFlow::Continue(())
        };
        synthesize(&settings(200, seed), &dir.path().join(name), &on_progress).unwrap()
    };
    let manifest = draft("a", 9);
    assert_eq!((manifest.counts.train, manifest.counts.validation, wrote.get()), (180, 20, 200));
    assert_eq!(manifest.counts.subjects.len(), Kind::ALL.len());
    assert_eq!(manifest.counts.levels.len(), 5);
    draft("b", 9);
    draft("c", 10);
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    for file in ["train.jsonl", "validation.jsonl", "task.toml", "manifest.json"] {
        let [a, b, c] = ["a", "b", "c"].map(|name| read(&format!("{name}/{file}")));
        assert_eq!(a, b, "{file}");
        assert_eq!(a == c, file == "task.toml", "{file}");
    }
    let ids = |name: &str| -> HashSet<String> {
        let rows = read(name);
        rows.lines().map(|row| serde_json::from_str::<Row>(row).unwrap().id).collect()
    };
    assert_eq!(ids("a/train.jsonl").len() + ids("a/validation.jsonl").len(), 200);
    assert!(ids("a/train.jsonl").is_disjoint(&ids("a/validation.jsonl")));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn impossible_wishes_are_named_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |settings: SynthesizeSettings, why: &str| {
        let place = dir.path().join("x");
        let error = synthesize(&settings, &place, &ignore_progress).unwrap_err().to_string();
        assert!(error.contains(why) && !place.exists(), "{error}");
    };
    refused(settings(0, 1), "between 1 and");
    refused(settings(MAX + 1, 1), "between 1 and");
    refused(SynthesizeSettings { kinds: Vec::new(), ..settings(5, 1) }, "one kind");
    refused(SynthesizeSettings { levels: Vec::new(), ..settings(5, 1) }, "one level");
    refused(SynthesizeSettings { validation: f64::NAN, ..settings(5, 1) }, "fraction");
    assert!("tag".parse::<Kind>().unwrap_err().to_string().contains("follow"));
    assert_eq!(Level::new(6), None);

    // A cancelled operation leaves nothing behind.
    let enough = |step| match step {
        Progress::Wrote(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let error = synthesize(&settings(5, 1), &dir.path().join("x"), &enough).unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), fs::read_dir(dir.path()).unwrap().count()),
        ("cancelled", 0)
    );

    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "").unwrap();
    let error = synthesize(&settings(5, 1), &full, &ignore_progress).unwrap_err().to_string();
    assert!(error.contains("already exists"), "{error}");
    assert_eq!(fs::read_dir(&full).unwrap().count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_seed_makes_every_kind(seed: u64, number: u64) {
        for kind in Kind::ALL {
            for level in Level::ALL {
                let row = synthetic(kind, level, seed, number);
                prop_assert!(!row.ground_truth.trim().is_empty());
                prop_assert!(row.ground_truth.trim() == row.ground_truth);
            }
        }
    }
}
