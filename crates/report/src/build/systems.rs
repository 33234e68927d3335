//! Which runs belong together: a model under the same conditions is one row, however many runs it took.

use std::collections::{HashMap, HashSet};

use results::{Mode, Run};

use super::{NAME, asked};
use crate::{Source, text::excerpt};

/// Runs that are one row.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// What it is called.
    pub(super) label: String,
    /// The runs, as places in the list of sources; at least one.
    pub(super) runs: Vec<usize>,
}

/// Runs of the same model under the same conditions become one, unless they did the same task in the same
/// mode: then they are two measurements, and shown side by side.
pub(super) fn group(sources: &[Source]) -> Vec<Group> {
    let mut groups: Vec<(Group, HashSet<(&str, Mode)>)> = Vec::new();
    for (at, source) in sources.iter().enumerate() {
        let done = done(source);
        let fits = |(group, taken): &&mut (Group, HashSet<(&str, Mode)>)| {
            group.runs.iter().all(|run| alike(&sources[*run], source)) && taken.is_disjoint(&done)
        };
        match groups.iter_mut().find(fits) {
            Some((group, taken)) => {
                group.runs.push(at);
                taken.extend(done);
            }
            None => groups.push((Group { label: String::new(), runs: vec![at] }, done)),
        }
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|(group, _)| group).collect();
    label(&mut groups, sources);
    groups
}

/// The tasks of all runs, in the order they were asked, then those only attempts know of.
pub(super) fn tasks(sources: &[Source]) -> Vec<String> {
    let asked = sources.iter().flat_map(|source| &source.run.tasks).map(|task| &task.name);
    let found = sources.iter().flat_map(|source| &source.facts).map(|fact| &fact.attempt.key.task);
    let mut seen = HashSet::new();
    asked.chain(found).filter(|name| seen.insert(name.as_str())).cloned().collect()
}

/// How many attempts were asked of a group.
pub(super) fn asked_of(group: &Group, sources: &[Source], task: &str, mode: Mode) -> usize {
    let runs = group.runs.iter().map(|run| &sources[*run].run);
    let infos = runs.filter(|run| run.modes.contains(&mode)).flat_map(|run| &run.tasks);
    let counts = infos.filter(|info| info.name == task).map(asked);
    counts.fold(0, usize::saturating_add)
}

/// What makes rows less alike than they look: other settings within one, other problems between them.
pub(super) fn doubts(groups: &[Group], sources: &[Source]) -> Vec<String> {
    let mut doubts = Vec::new();
    // What may change a result lies below `same`, where the run says so.
    let settings = |run: &usize| {
        let settings = &sources[*run].run.settings;
        settings.get("same").unwrap_or(settings)
    };
    for group in groups {
        if group.runs.iter().any(|run| settings(run) != settings(&group.runs[0])) {
            doubts.push(format!(
                "{}: its runs are one row, though their settings differ.",
                group.label
            ));
        }
    }
    for task in tasks(sources) {
        let infos = sources.iter().flat_map(|source| &source.run.tasks);
        let asked = infos.filter(|info| info.name == task && !info.rows_sha256.is_empty());
        let rows: HashSet<(&str, usize)> =
            asked.map(|info| (info.rows_sha256.as_str(), info.problems)).collect();
        let task_name = excerpt(&task, NAME);
        if rows.len() > 1 {
            doubts.push(format!(
                "{task_name}: its runs did not ask the same problems; compare their scores with care."
            ));
        }
        let judged = |source: &&Source| {
            source.run.tasks.iter().any(|info| info.name == task && info.grader == "judge")
        };
        let judged = sources.iter().filter(judged);
        let judges: HashSet<&str> = judged.filter_map(|source| judge(&source.run)).collect();
        if judges.len() > 1 {
            doubts.push(format!(
                "{task_name}: its answers were judged by different models; compare their scores with care."
            ));
        }
        let alike = alike_problems(sources, &task);
        if alike > 0 {
            doubts.push(format!(
                "{task_name}: {alike} problems ask the same as another one, with the same right answer. If they are repeats of \
                 it, errors, intervals and p-values look smaller than they are."
            ));
        }
    }
    doubts.truncate(20);
    doubts
}

/// How many problems of a task have the text and the right answer of another one.
fn alike_problems(sources: &[Source], task: &str) -> usize {
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

fn done(source: &Source) -> HashSet<(&str, Mode)> {
    let asked = source.run.tasks.iter().map(|task| task.name.as_str());
    let asked = asked.flat_map(|task| source.run.modes.iter().map(move |mode| (task, *mode)));
    let found =
        source.facts.iter().map(|fact| (fact.attempt.key.task.as_str(), fact.attempt.key.mode));
    asked.chain(found).collect()
}

/// Who judged the answers of a run.
pub(super) fn judge(run: &Run) -> Option<&str> {
    let judge = run.settings.get("judge")?;
    judge.get("name").unwrap_or(judge).as_str()
}

/// Whether two runs may be one row. Of a run without a record nobody knows which model it is about; and problems of
/// other rows may share their names.
fn alike(one: &Source, other: &Source) -> bool {
    one.begun
        && other.begun
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
    one.model == other.model && one.context == other.context && sorted(one) == sorted(other)
}

/// The model, what it had to do without, where its documents were if not in files, and the run's name where that is
/// not enough.
fn label(groups: &mut [Group], sources: &[Source]) {
    let plain: Vec<String> = groups
        .iter()
        .map(|group| {
            let run = &sources[group.runs[0]].run;
            let model = excerpt(&run.model, NAME);
            let words: Vec<String> = run.without.iter().take(8).map(|w| excerpt(w, 20)).collect();
            let without = if words.is_empty() {
                String::new()
            } else {
                format!(" without {}", words.join(", "))
            };
            let documents = if run.context == "prompt" { ", documents in the prompt" } else { "" };
            format!("{model}{without}{documents}")
        })
        .collect();
    for (at, group) in groups.iter_mut().enumerate() {
        let twins = plain.iter().filter(|label| **label == plain[at]).count();
        let name = &sources[group.runs[0]].name;
        group.label = if twins > 1 { format!("{} ({name})", plain[at]) } else { plain[at].clone() };
    }
    for at in 1..groups.len() {
        let before = groups[..at].iter().filter(|group| group.label == groups[at].label).count();
        if before > 0 {
            groups[at].label = format!("{} #{}", groups[at].label, before + 1);
        }
    }
}
