//! Names systems: the model, and as few settings as tell its systems apart.

use std::collections::{BTreeMap, HashSet};

use super::NAME;
use crate::{
    Source,
    settings::{Role, Setting, label_part, settings},
    text::excerpt,
};

/// A unique label of each system, given the runs of each. Systems of the same model and conditions differ in settings:
/// the first one that tells all of them apart is named, or several where one is not enough. Systems that differ in no
/// setting are named by the directories of their runs.
pub(super) fn labels(systems: &[Vec<usize>], sources: &[Source]) -> Vec<String> {
    let mut labels: Vec<String> =
        systems.iter().map(|runs| conditions(&sources[runs[0]])).collect();
    let mut alike: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, label) in labels.iter().enumerate() {
        alike.entry(label.clone()).or_default().push(at);
    }
    for members in alike.values().filter(|members| members.len() > 1) {
        let own: Vec<Vec<Setting>> =
            members.iter().map(|at| settings(&sources[systems[*at][0]].run)).collect();
        for (at, suffix) in members.iter().zip(distinguish(&own)) {
            labels[*at].push_str(&suffix);
        }
    }
    let repeated = duplicates(&labels);
    for at in repeated {
        let name = &sources[systems[at][0]].name;
        labels[at] = format!("{} ({name})", labels[at]);
    }
    number(&mut labels);
    labels
}

/// Model, ablation and location of documents.
fn conditions(source: &Source) -> String {
    let run = &source.run;
    let model = excerpt(&run.model, NAME);
    let names: Vec<String> = run.without.iter().take(8).map(|word| excerpt(word, 20)).collect();
    let without =
        if names.is_empty() { String::new() } else { format!(" without {}", names.join(", ")) };
    let documents = if run.documents == "prompt" { ", documents in the prompt" } else { "" };
    format!("{model}{without}{documents}")
}

/// Suffixes that tell systems apart by their settings, as far as settings can.
fn distinguish(systems: &[Vec<Setting>]) -> Vec<String> {
    let mut names: Vec<(usize, &str)> = systems
        .iter()
        .flatten()
        .filter(|setting| setting.role == Role::Label)
        .map(|setting| (setting.rank, setting.name.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    let parts = |(rank, name): (usize, &str)| -> Vec<String> {
        let part = |settings: &Vec<Setting>| {
            let found = settings.iter().find(|own| own.rank == rank && own.name == name);
            found.map(|own| format!(" {}", label_part(own))).unwrap_or_default()
        };
        systems.iter().map(part).collect()
    };
    let distinct = |suffixes: &[String]| suffixes.iter().collect::<HashSet<_>>().len();
    let mut best = vec![String::new(); systems.len()];
    for name in &names {
        let alone = parts(*name);
        if distinct(&alone) == systems.len() {
            return alone;
        }
    }
    for name in names {
        let more: Vec<String> =
            best.iter().zip(parts(name)).map(|(suffix, part)| format!("{suffix}{part}")).collect();
        if distinct(&more) > distinct(&best) {
            best = more;
        }
    }
    best
}

/// Positions of labels that occur more than once.
fn duplicates(labels: &[String]) -> Vec<usize> {
    let same = |label: &String| labels.iter().filter(|other| *other == label).count();
    (0..labels.len()).filter(|at| same(&labels[*at]) > 1).collect()
}

/// Numbers labels that are still the same.
fn number(labels: &mut [String]) {
    let mut taken: HashSet<String> = labels.iter().cloned().collect();
    let mut seen: HashSet<String> = HashSet::new();
    for label in labels {
        if !seen.insert(label.clone()) {
            let free = (2..).map(|number| format!("{label} #{number}"));
            if let Some(free) = free.into_iter().find(|candidate| !taken.contains(candidate)) {
                taken.insert(free.clone());
                seen.insert(free.clone());
                *label = free;
            }
        }
    }
}
