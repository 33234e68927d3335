//! Groups runs into systems: a model under the same conditions is one row, however many runs it took.

use std::collections::{HashMap, HashSet};

use results::{Mode, Run, TaskInfo};

use super::{NAME, labels::labels};
use crate::{Source, settings::same_but_selection, text::excerpt};

/// Runs that form one row.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Label, unique.
    pub(super) label: String,
    /// Indices of the runs in the list of sources; at least one.
    pub(super) runs: Vec<usize>,
}

/// Tasks and modes.
type Covered<'a> = HashSet<(&'a str, Mode)>;

/// Merges runs of the same model under the same conditions, unless they share a task and mode: those are two
/// measurements, shown side by side.
pub(super) fn group(sources: &[Source]) -> Vec<Group> {
    let mut groups: Vec<(Vec<usize>, Covered)> = Vec::new();
    for (at, source) in sources.iter().enumerate() {
        let covered = covered(source);
        let fits = |(runs, taken): &&mut (Vec<usize>, Covered)| {
            runs.iter().all(|run| may_merge(&sources[*run], source)) && taken.is_disjoint(&covered)
        };
        match groups.iter_mut().find(fits) {
            Some((runs, taken)) => {
                runs.push(at);
                taken.extend(covered);
            }
            None => groups.push((vec![at], covered)),
        }
    }
    let runs: Vec<Vec<usize>> = groups.into_iter().map(|(group, _)| group).collect();
    let labels = labels(&runs, sources);
    runs.into_iter().zip(labels).map(|(runs, label)| Group { label, runs }).collect()
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

/// Caveats about comparability: different problems and different judges.
pub(super) fn caveats(sources: &[Source]) -> Vec<String> {
    let mut caveats = Vec::new();
    for task in tasks(sources) {
        let infos = sources.iter().flat_map(|source| &source.run.tasks);
        let hashed = infos.filter(|info| info.name == task && !info.rows_sha256.is_empty());
        let rows: HashSet<(&str, usize)> =
            hashed.map(|info| (info.rows_sha256.as_str(), info.problems)).collect();
        let task_name = excerpt(&task, NAME);
        if rows.len() > 1 {
            caveats.push(format!(
                "{task_name}: the runs used different problems; scores are not directly comparable. Paired differences \
                 are over the problems they share."
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
fn covered(source: &Source) -> Covered<'_> {
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
        && same_digests(&one.run, &other.run, |task| &task.rows_sha256)
        && same_digests(&one.run, &other.run, |task| &task.prompts_sha256)
        && same_but_selection(&one.run.settings.fixed, &other.run.settings.fixed)
}

/// Whether the tasks that both runs have agree in a digest, where both know it.
fn same_digests(one: &Run, other: &Run, digest: fn(&TaskInfo) -> &String) -> bool {
    let known = |run: &Run| {
        let known = run.tasks.iter().filter(|task| !digest(task).is_empty());
        known.map(|task| (task.name.clone(), digest(task).clone())).collect::<HashMap<_, _>>()
    };
    let (one, other) = (known(one), known(other));
    one.iter().all(|(task, digest)| other.get(task).is_none_or(|others| others == digest))
}

fn same_conditions(one: &Run, other: &Run) -> bool {
    let sorted = |run: &Run| {
        let mut without = run.without.clone();
        without.sort();
        without
    };
    one.model == other.model && one.documents == other.documents && sorted(one) == sorted(other)
}
