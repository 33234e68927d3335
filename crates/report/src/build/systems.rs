//! Groups runs into systems: a model under the same conditions is one row, however many runs it took.

use std::collections::{HashMap, HashSet};

use results::{Mode, Run};

use super::NAME;
use crate::{Source, text::excerpt};

/// Runs that form one row.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Label, unique.
    pub(super) label: String,
    /// Indices of the runs in the list of sources; at least one.
    pub(super) runs: Vec<usize>,
}

/// Merges runs of the same model under the same conditions, unless they share a task and mode: those are two
/// measurements, shown side by side.
pub(super) fn group(sources: &[Source]) -> Vec<Group> {
    let mut groups: Vec<(Group, HashSet<(&str, Mode)>)> = Vec::new();
    for (at, source) in sources.iter().enumerate() {
        let covered = covered(source);
        let fits = |(group, taken): &&mut (Group, HashSet<(&str, Mode)>)| {
            group.runs.iter().all(|run| may_merge(&sources[*run], source))
                && taken.is_disjoint(&covered)
        };
        match groups.iter_mut().find(fits) {
            Some((group, taken)) => {
                group.runs.push(at);
                taken.extend(covered);
            }
            None => groups.push((Group { label: String::new(), runs: vec![at] }, covered)),
        }
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|(group, _)| group).collect();
    label(&mut groups, sources);
    groups
}

/// Tasks of all runs in the planned order, then those only attempts name.
pub(super) fn tasks(sources: &[Source]) -> Vec<String> {
    let planned = sources.iter().flat_map(|source| &source.run.tasks).map(|task| &task.name);
    let found = sources.iter().flat_map(|source| &source.facts).map(|fact| &fact.attempt.key.task);
    let mut seen = HashSet::new();
    planned.chain(found).filter(|name| seen.insert(name.as_str())).cloned().collect()
}

/// Attempts planned for a task and mode of a group.
pub(super) fn planned(group: &Group, sources: &[Source], task: &str, mode: Mode) -> usize {
    let runs = group.runs.iter().map(|run| &sources[*run].run);
    let infos = runs.filter(|run| run.modes.contains(&mode)).flat_map(|run| &run.tasks);
    let counts = infos.filter(|info| info.name == task).map(super::planned);
    counts.fold(0, usize::saturating_add)
}

/// Caveats about comparability: different settings within a row, different problems between rows.
pub(super) fn caveats(groups: &[Group], sources: &[Source]) -> Vec<String> {
    let mut caveats = Vec::new();
    let settings = |run: &usize| &sources[*run].run.settings.fixed;
    for group in groups {
        if group.runs.iter().any(|run| settings(run) != settings(&group.runs[0])) {
            caveats.push(format!("{}: runs with different settings share this row.", group.label));
        }
    }
    for task in tasks(sources) {
        let infos = sources.iter().flat_map(|source| &source.run.tasks);
        let hashed = infos.filter(|info| info.name == task && !info.rows_sha256.is_empty());
        let rows: HashSet<(&str, usize)> =
            hashed.map(|info| (info.rows_sha256.as_str(), info.problems)).collect();
        let task_name = excerpt(&task, NAME);
        if rows.len() > 1 {
            caveats.push(format!(
                "{task_name}: the runs used different problems; scores are not directly comparable."
            ));
        }
        let judged = |source: &&Source| {
            source.run.tasks.iter().any(|info| info.name == task && info.grader == "judge")
        };
        let judged = sources.iter().filter(judged);
        let judges: HashSet<&str> = judged.filter_map(|source| judge(&source.run)).collect();
        if judges.len() > 1 {
            caveats.push(format!(
                "{task_name}: the runs used different judge models; scores are not directly comparable."
            ));
        }
        let duplicates = duplicate_problems(sources, &task);
        if duplicates > 0 {
            caveats.push(format!(
                "{task_name}: {duplicates} problems duplicate another one, including its expected answer. Treating them as \
                 independent understates standard errors, intervals and p-values."
            ));
        }
    }
    caveats.truncate(20);
    caveats
}

/// Number of problems of a task with the text and expected answer of another one.
fn duplicate_problems(sources: &[Source], task: &str) -> usize {
    let facts = sources.iter().flat_map(|source| &source.facts);
    let facts = facts.filter(|fact| fact.attempt.key.task == task);
    let mut names: HashMap<u64, HashSet<&str>> = HashMap::new();
    for fact in facts {
        if let Some(content) = fact.content {
            names.entry(content).or_default().insert(&fact.attempt.key.id);
        }
    }
    names.values().map(|names| names.len() - 1).sum()
}

/// Tasks and modes of a run.
fn covered(source: &Source) -> HashSet<(&str, Mode)> {
    let planned = source.run.tasks.iter().map(|task| task.name.as_str());
    let planned = planned.flat_map(|task| source.run.modes.iter().map(move |mode| (task, *mode)));
    let found =
        source.facts.iter().map(|fact| (fact.attempt.key.task.as_str(), fact.attempt.key.mode));
    planned.chain(found).collect()
}

/// The judge model of a run.
pub(super) fn judge(run: &Run) -> Option<&str> {
    Some(&run.settings.judge.as_ref()?.name)
}

/// Whether two runs may share a row. Without a run file the model is unknown, and equal names may be other problems.
fn may_merge(one: &Source, other: &Source) -> bool {
    one.has_run_file
        && other.has_run_file
        && same_conditions(&one.run, &other.run)
        && same_rows(&one.run, &other.run)
}

fn same_rows(one: &Run, other: &Run) -> bool {
    let known = |run: &'_ Run| {
        let known = run.tasks.iter().filter(|task| !task.rows_sha256.is_empty());
        known.map(|task| (task.name.clone(), task.rows_sha256.clone())).collect::<HashMap<_, _>>()
    };
    let (one, other) = (known(one), known(other));
    one.iter().all(|(task, rows)| other.get(task).is_none_or(|others| others == rows))
}

fn same_conditions(one: &Run, other: &Run) -> bool {
    let sorted = |run: &Run| {
        let mut without = run.without.clone();
        without.sort();
        without
    };
    one.model == other.model && one.documents == other.documents && sorted(one) == sorted(other)
}

/// Labels groups by model, ablation and location of documents, and by run name where that is not unique.
fn label(groups: &mut [Group], sources: &[Source]) {
    let plain: Vec<String> = groups
        .iter()
        .map(|group| {
            let run = &sources[group.runs[0]].run;
            let model = excerpt(&run.model, NAME);
            let names: Vec<String> = run.without.iter().take(8).map(|w| excerpt(w, 20)).collect();
            let without = if names.is_empty() {
                String::new()
            } else {
                format!(" without {}", names.join(", "))
            };
            let documents =
                if run.documents == "prompt" { ", documents in the prompt" } else { "" };
            format!("{model}{without}{documents}")
        })
        .collect();
    for (at, group) in groups.iter_mut().enumerate() {
        let same = plain.iter().filter(|label| **label == plain[at]).count();
        let name = &sources[group.runs[0]].name;
        group.label = if same > 1 { format!("{} ({name})", plain[at]) } else { plain[at].clone() };
    }
    for at in 1..groups.len() {
        let before = groups[..at].iter().filter(|group| group.label == groups[at].label).count();
        if before > 0 {
            groups[at].label = format!("{} #{}", groups[at].label, before + 1);
        }
    }
}
