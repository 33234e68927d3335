//! The classifier against real episodes, labelled by hand before it was run on them.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;
use trajectory::Trajectory;

use super::{LeakTarget, Use, leaks, recorded, uses};

#[derive(Deserialize)]
struct Labels {
    episodes: BTreeMap<String, Vec<Label>>,
}

#[derive(Deserialize)]
struct Label {
    turn: u32,
    is: Vec<String>,
}

impl Label {
    fn usage(&self) -> Use {
        let is = |name: &str| self.is.iter().any(|label| label == name);
        Use { external: is("external"), file: is("file"), computation: is("computation") }
    }
}

/// Where the paper's patterns and the labels differ, and why. Ours differ nowhere.
const PAPER_DIFFERS: [(&str, u32, &str, &str); 17] = [
    ("chemical.json", 7, "file", "`grep` filters what another program prints"),
    ("chemical.json", 10, "external", "`apt-cache search` is not on the list"),
    ("chemical.json", 20, "file", "the editor's `view` is not on the list"),
    ("chemical.json", 23, "file", "the editor's `view` is not on the list"),
    ("chemical.json", 27, "file", "`wc` is not on the list"),
    ("poster.json", 1, "file", "the editor's `view` is not on the list"),
    ("poster.json", 2, "file", "the editor's `view` is not on the list"),
    ("poster.json", 5, "external", "a list of arguments hides `pip install`"),
    ("poster.json", 7, "file", "`grep` filters what another program prints"),
    ("poster.json", 9, "file", "the editor's `view` is not on the list"),
    ("poster.json", 19, "computation", "\"while\" is a word of a document"),
    ("poster.json", 20, "file", "`ls` is not on the list"),
    ("poster.json", 21, "file", "`ls` is not on the list"),
    ("poster.json", 26, "file", "`tree` is not on the list"),
    ("poster.json", 32, "file", "`cat` prints a text, no file"),
    ("poster.json", 33, "file", "`ls` is not on the list"),
    ("poster.json", 34, "file", "`head` is not on the list"),
];

#[test]
fn the_classifier_agrees_with_labels_made_by_reading() {
    let Some(folder) = shared() else { return };
    let labels: Labels =
        serde_json::from_str(include_str!("../../tests/data/capability-labels.json")).unwrap();
    let mut turns = 0;
    let mut agreed: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let (mut ours, mut papers) = (Vec::new(), Vec::new());
    for (name, labels) in &labels.episodes {
        let text = fs::read_to_string(Path::new(&folder).join(name)).unwrap();
        let record: Trajectory = serde_json::from_str(&text).unwrap();
        let found = recorded(&record);
        assert_eq!(found.len(), labels.len(), "{name}");
        for (turn, label) in found.iter().zip(labels) {
            assert_eq!(turn.number, label.turn);
            turns += 1;
            let read = uses(turn);
            for (set, by, differ) in
                [("extended", read.extended, &mut ours), ("paper", read.paper, &mut papers)]
            {
                for (capability, found, labelled) in pairs(by, label.usage()) {
                    *agreed.entry((set, capability)).or_default() += u32::from(found == labelled);
                    if found != labelled {
                        differ.push((name.as_str(), label.turn, capability));
                    }
                }
            }
        }
    }
    for ((set, capability), count) in &agreed {
        println!("{set} {capability}: {count} of {turns} turns agree");
    }
    assert_eq!(turns, 71);
    assert_eq!(ours, []);
    papers.sort_unstable();
    let mut listed: Vec<_> =
        PAPER_DIFFERS.iter().map(|(name, turn, what, _)| (*name, *turn, *what)).collect();
    listed.sort_unstable();
    assert_eq!(papers, listed);
}

#[test]
fn honest_episodes_raise_no_alarm() {
    let Some(folder) = shared() else { return };
    for (name, truth, known_as) in [
        ("chemical.json", "A", ["ChemBench4K", "ChemBench"]),
        ("math.json", "588", ["AIME 2025", "AIME"]),
        ("poster.json", "AGI Summit 2026", ["MMLU-Pro", "GPQA"]),
    ] {
        let text = fs::read_to_string(Path::new(&folder).join(name)).unwrap();
        let record: Trajectory = serde_json::from_str(&text).unwrap();
        let known_as = known_as.map(str::to_owned);
        let problem_statement = &record.problem_statement;
        let target = LeakTarget { known_as: &known_as, problem_statement, ground_truth: truth };
        assert_eq!(leaks(&recorded(&record), &target), [], "{name}");
    }
}

fn pairs(found: Use, labelled: Use) -> [(&'static str, bool, bool); 3] {
    [
        ("external", found.external, labelled.external),
        ("file", found.file, labelled.file),
        ("computation", found.computation, labelled.computation),
    ]
}

/// The folder of real episodes beside the workspace, where it exists.
fn shared() -> Option<String> {
    // The directory it was built in may belong to another checkout.
    let crate_dir = variable("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let folder = variable("LIS_SHARED").unwrap_or_else(|| format!("{crate_dir}/../../../shared"));
    let folder = format!("{folder}/data/trajectories");
    if Path::new(&folder).is_dir() {
        return Some(folder);
    }
    let required = variable("LIS_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == "shared"), "LIS_REQUIRE names shared");
    println!("skip: no shared/data/trajectories beside the workspace");
    None
}

#[expect(clippy::disallowed_methods, reason = "tests are told by the environment what must work")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
