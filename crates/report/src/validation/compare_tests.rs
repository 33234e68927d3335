//! Pairing and statistics against values computed by hand.

use std::fs;

use serde_json::{Map, json};

use super::*;
use crate::validation::{SetInfo, VERSION, step_directory};

/// A run directory with measured sets.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn run(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn point(&self, name: &str, step: Step) -> Point {
        Point { run: self.run(name), step }
    }

    fn write(&self, run: &str, step: u64, set: &str, records: &[EpisodeRecord], turns: u32) {
        let dir = step_directory(&self.run(run), step);
        fs::create_dir_all(&dir).unwrap();
        let lines: String =
            records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
        fs::write(dir.join(format!("{set}.jsonl")), lines).unwrap();
        let settings = [("turns".to_owned(), json!(turns)), ("mode".to_owned(), json!("sandbox"))];
        let info = SetInfo {
            version: VERSION,
            name: Some(set.to_owned()),
            step,
            settings: settings.into_iter().collect(),
            metrics: Map::new(),
        };
        fs::write(dir.join(format!("{set}.json")), serde_json::to_vec(&info).unwrap()).unwrap();
    }
}

/// An episode: its problem, its score, its turns.
fn episode(id: &str, score: Option<f64>, turns: u32) -> EpisodeRecord {
    EpisodeRecord {
        id: id.to_owned(),
        kind: Some(id[..1].to_owned()),
        digest: "d".to_owned(),
        score,
        reward: score,
        success: score == Some(1.0),
        turns,
        response_tokens: 10 * u64::from(turns),
        ..EpisodeRecord::default()
    }
}

/// Problems `a0`, `a1`, … with these scores.
fn scored(scores: &[u8], turns: u32) -> Vec<EpisodeRecord> {
    let each = scores.iter().enumerate();
    each.map(|(at, score)| episode(&format!("a{at}"), Some(f64::from(*score)), turns)).collect()
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
}

#[test]
fn two_steps_of_a_run_are_paired_by_problem() {
    let place = Place::new();
    // Seven problems are gained, one is lost, two stay: p of 7 against 1 is 2 (1 + 8) / 2^8.
    place.write("run", 0, "set", &scored(&[0, 0, 0, 0, 0, 0, 0, 1, 1, 0], 4), 6);
    place.write("run", 5, "set", &scored(&[1; 10], 9), 6);
    place.write("run", 9, "set", &scored(&[1, 1, 1, 1, 1, 1, 1, 0, 1, 0], 3), 6);
    let [first, last] = [Step::First, Step::Last].map(|step| place.point("run", step));
    let found = compare(&first, &last, &CompareOptions::default()).unwrap();
    let [set] = &found.sets[..] else { panic!("{found:?}") };
    assert_eq!((set.steps, set.score.problems), ([0, 9], 10));
    assert_eq!((set.score.better, set.score.worse, set.score.test), (7, 1, Test::Mcnemar));
    close(set.score.means[0], 0.2);
    close(set.score.means[1], 0.8);
    close(set.score.difference, 0.6);
    close(set.score.p, 18.0 / 256.0);
    close(set.score.p_corrected, 18.0 / 256.0);
    let [low, high] = set.score.interval.unwrap();
    assert!(low < 0.6 && 0.6 < high && low >= -0.1 && high <= 1.0, "{low} {high}");
    assert_eq!(
        (set.turns.means, set.turns.difference, set.turns.interval),
        ([4.0, 3.0], -1.0, None)
    );
    assert_eq!(set.response_tokens.means, [40.0, 30.0]);
    assert_eq!((found.average, set.settings.len(), set.unpaired), (None, 0, [0, 0]));
}

#[test]
fn only_equal_problems_with_scores_on_both_sides_count() {
    let place = Place::new();
    let base = [
        episode("a", Some(0.0), 1),
        episode("b", Some(1.0), 1),
        episode("c", None, 1),
        episode("e", Some(1.0), 1),
    ];
    let other_text = EpisodeRecord { digest: "other".to_owned(), ..episode("e", Some(0.0), 1) };
    let other = [
        episode("b", Some(1.0), 1),
        episode("a", Some(0.5), 1),
        episode("c", Some(1.0), 1),
        episode("d", Some(0.0), 1),
        other_text,
    ];
    place.write("one", 0, "set", &base, 6);
    place.write("two", 0, "set", &other, 8);
    let points = ["one", "two"].map(|run| place.point(run, Step::Last));
    let found = compare(&points[0], &points[1], &CompareOptions::default()).unwrap();
    let set = &found.sets[0];
    assert_eq!((set.score.problems, set.unpaired, set.failed), (2, [1, 2], [1, 0]));
    assert_eq!((set.score.means, set.score.test), ([0.5, 0.75], Test::SignFlipsExact));
    let change = SettingChange { key: "turns".into(), values: [json!(6), json!(8)] };
    assert_eq!(set.settings, [change]);
    let options = CompareOptions { metric: Metric::Success, ..CompareOptions::default() };
    let found = compare(&points[0], &points[1], &options).unwrap();
    assert_eq!((found.sets[0].score.means, found.sets[0].score.test), ([0.5, 0.5], Test::Mcnemar));
}

#[test]
fn members_are_averaged_within_their_problem() {
    let place = Place::new();
    let repeated = |id: &str, scores: [f64; 2]| scores.map(|score| episode(id, Some(score), 1));
    place.write(
        "one",
        0,
        "set",
        &[repeated("a", [0.0, 1.0]), repeated("b", [0.0, 0.0])].concat(),
        6,
    );
    place.write(
        "two",
        0,
        "set",
        &[repeated("a", [1.0, 1.0]), repeated("b", [0.0, 0.0])].concat(),
        6,
    );
    let points = ["one", "two"].map(|run| place.point(run, Step::Last));
    let found = compare(&points[0], &points[1], &CompareOptions::default()).unwrap();
    let score = found.sets[0].score;
    assert_eq!((score.problems, score.means, score.difference), (2, [0.25, 0.5], 0.25));
}

#[test]
fn p_values_are_corrected_over_sets_and_over_kinds() {
    let place = Place::new();
    // 6 of 6 gained: p = 2/64; 5 of 5 gained: p = 2/32.
    for (set, many) in [("six", 6), ("five", 5)] {
        place.write("run", 0, set, &scored(&vec![0; many], 2), 6);
        place.write("run", 3, set, &scored(&vec![1; many], 2), 6);
    }
    let [first, last] = [Step::First, Step::Last].map(|step| place.point("run", step));
    let options = CompareOptions { by: Some(Breakdown::Kind), ..CompareOptions::default() };
    let found = compare(&first, &last, &options).unwrap();
    let p = |name: &str| {
        let set = found.sets.iter().find(|set| set.set == name).unwrap();
        (set.score.p, set.score.p_corrected)
    };
    for (set, p_value) in [("six", 2.0 / 64.0), ("five", 2.0 / 32.0)] {
        close(p(set).0, p_value);
        // Twice the smaller one, and the larger is raised to it.
        close(p(set).1, 4.0 / 64.0);
    }
    let average = found.average.unwrap();
    assert_eq!((average.problems, average.means, average.difference), (11, [0.0, 1.0], 1.0));
    let groups = &found.sets[0].groups;
    assert_eq!((groups.len(), groups[0].group.as_str(), groups[0].score.problems), (1, "a", 5));
    let only = CompareOptions { sets: vec!["six".into()], ..CompareOptions::default() };
    close(compare(&first, &last, &only).unwrap().sets[0].score.p_corrected, 2.0 / 64.0);
}

#[test]
fn what_is_missing_is_named() {
    let place = Place::new();
    place.write("run", 0, "set", &scored(&[1], 2), 6);
    place.write("other", 0, "else", &scored(&[1], 2), 6);
    fs::create_dir_all(place.run("empty")).unwrap();
    // A set without its description is not complete.
    fs::create_dir_all(step_directory(&place.run("half"), 0)).unwrap();
    fs::write(step_directory(&place.run("half"), 0).join("set.jsonl"), "").unwrap();
    let fails = |base: &Point, other: &Point, sets: &[&str]| {
        let sets = sets.iter().map(|set| (*set).to_owned()).collect();
        let options = CompareOptions { sets, ..CompareOptions::default() };
        compare(base, other, &options).unwrap_err().to_string()
    };
    let run = |step| place.point("run", step);
    let last = run(Step::Last);
    assert!(fails(&run(Step::First), &last, &[]).contains("measured once only"));
    place.write("steps", 0, "set", &scored(&[1], 2), 6);
    place.write("steps", 9, "set", &scored(&[1], 2), 6);
    let [first, zero] = [Step::First, Step::At(0)].map(|step| place.point("steps", step));
    assert!(fails(&first, &zero, &[]).contains("both sides are the validation of"));
    assert!(
        fails(&last, &run(Step::At(7)), &[])
            .contains("no validation after step 7; it has them after 0")
    );
    assert!(fails(&last, &last, &["x"]).contains("no validation set `x`; it has set"));
    assert!(
        fails(&last, &place.point("other", Step::Last), &[])
            .contains("no validation set in common")
    );
    for name in ["empty", "half"] {
        let text = fails(&last, &place.point(name, Step::Last), &[]);
        assert!(text.contains("no validation results"), "{text}");
    }
    assert!(fails(&last, &place.point("nowhere", Step::Last), &[]).contains("cannot read"));
}

#[test]
fn damaged_files_are_errors() {
    let place = Place::new();
    place.write("run", 0, "set", &scored(&[1], 2), 6);
    place.write("run", 2, "set", &scored(&[1], 2), 6);
    let file = step_directory(&place.run("run"), 2).join("set.jsonl");
    let [first, last] = [Step::First, Step::Last].map(|step| place.point("run", step));
    fs::write(&file, "{\"id\":").unwrap();
    let error = compare(&first, &last, &CompareOptions::default()).unwrap_err();
    assert!(error.to_string().contains("set.jsonl is damaged"), "{error}");
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    let error = compare(&first, &last, &CompareOptions::default()).unwrap_err();
    assert!(error.to_string().contains("cannot read"), "{error}");
}

#[test]
fn points_are_parsed() {
    let parse = |text: &str| Point::parse(Path::new(text), Step::Last);
    assert_eq!(parse("runs/a@20"), Point { run: "runs/a".into(), step: Step::At(20) });
    assert_eq!(parse("runs/a"), Point { run: "runs/a".into(), step: Step::Last });
    assert_eq!(parse("runs/a@b"), Point { run: "runs/a@b".into(), step: Step::Last });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run@3");
    fs::create_dir(&path).unwrap();
    assert_eq!(Point::parse(&path, Step::Last), Point { run: path, step: Step::Last });
}
