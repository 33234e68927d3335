//! Pairs attempts by problem: the same task and the same id on both sides.

use std::collections::BTreeMap;

use results::Mode;

use super::systems::Group;
use crate::{
    Fact, Source,
    data::{AttemptRef, Change, LeftOut, Listed, Passes},
    links,
    stats::Scores,
    text::excerpt,
};

/// An attempt and the index of its run.
pub(super) type Tried<'a> = (usize, &'a Fact);

/// Attempts by problem.
pub(super) type Problems<'a> = BTreeMap<&'a str, Vec<Tried<'a>>>;

/// The attempts of a system by task and mode.
#[derive(Debug, Default)]
pub(super) struct Index<'a>(BTreeMap<&'a str, BTreeMap<Mode, Problems<'a>>>);

/// A problem with valid attempts on both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    base: &'a [Tried<'a>],
    other: &'a [Tried<'a>],
}

/// All pairs of two sides, and what is left out.
#[derive(Debug, Default)]
pub(super) struct Pairs<'a> {
    pairs: Vec<Pair<'a>>,
    pub(super) left_out: LeftOut,
}

impl<'a> Index<'a> {
    pub(super) fn of(group: &Group, sources: &'a [Source]) -> Self {
        let mut index: BTreeMap<&str, BTreeMap<Mode, Problems>> = BTreeMap::new();
        for run in &group.runs {
            for fact in &sources[*run].facts {
                let key = &fact.attempt.key;
                let problems = index.entry(&key.task).or_default().entry(key.mode).or_default();
                problems.entry(&key.id).or_default().push((*run, fact));
            }
        }
        Self(index)
    }

    /// The attempts at a task in one mode.
    pub(super) fn problems(&self, task: &str, mode: Mode) -> Option<&Problems<'a>> {
        self.0.get(task)?.get(&mode)
    }

    /// The modes a task was attempted in.
    pub(super) fn modes(&self, task: &str) -> Vec<Mode> {
        let modes = [Mode::Llm, Mode::Sandbox].into_iter();
        modes.filter(|mode| self.problems(task, *mode).is_some()).collect()
    }

    /// Tasks and modes with their numbers of problems.
    pub(super) fn coverage(&self) -> impl Iterator<Item = (&'a str, Mode, usize)> {
        let modes =
            self.0.iter().flat_map(|(task, modes)| modes.iter().map(move |mode| (*task, mode)));
        modes.map(|(task, (mode, problems))| (task, *mode, problems.len()))
    }
}

impl<'a> Pairs<'a> {
    /// Pairs the attempts of two sides at one task.
    pub(super) fn of(base: &'a Problems<'a>, other: &'a Problems<'a>) -> Self {
        let mut found = Self::default();
        let left_out = &mut found.left_out;
        for (id, base) in base {
            let Some(other) = other.get(id) else {
                left_out.only_baseline += 1;
                continue;
            };
            if differ(base, other) {
                left_out.different += 1;
                continue;
            }
            let invalid = |side: &[Tried]| side.iter().filter(|(_, f)| f.score().is_none()).count();
            left_out.invalid_attempts += invalid(base) + invalid(other);
            match invalid(base) < base.len() && invalid(other) < other.len() {
                true => found.pairs.push(Pair { base, other }),
                false => left_out.invalid += 1,
            }
        }
        left_out.only_other = other.keys().filter(|id| !base.contains_key(*id)).count();
        found
    }

    /// The scores of each pair.
    pub(super) fn scores(&self) -> Vec<Scores> {
        let scores = |side: &[Tried]| side.iter().filter_map(|(_, fact)| fact.score()).collect();
        self.pairs.iter().map(|pair| (scores(pair.base), scores(pair.other))).collect()
    }

    /// Problems solved on the other side only, then those solved by the baseline only, at most `most` of each. `systems`
    /// are the indices of both.
    pub(super) fn changes(
        &self,
        systems: [usize; 2],
        sources: &[Source],
        most: usize,
    ) -> [Listed<Change>; 2] {
        let mut lists = [Listed::default(), Listed::default()];
        for pair in &self.pairs {
            let (base, other) = (passes(pair.base), passes(pair.other));
            let list = match (base.solved(), other.solved()) {
                (false, true) => &mut lists[0],
                (true, false) => &mut lists[1],
                _ => continue,
            };
            list.total += 1;
            if list.items.len() < most {
                list.items.push(pair.change(systems, sources));
            }
        }
        lists
    }
}

impl Pair<'_> {
    fn change(&self, systems: [usize; 2], sources: &[Source]) -> Change {
        let (base_passes, other_passes) = (passes(self.base), passes(self.other));
        let base = example(self.base, base_passes.solved());
        let other = example(self.other, other_passes.solved());
        let wrong = if base_passes.solved() { other.1 } else { base.1 };
        Change {
            baseline: attempt_ref(systems[0], base, sources),
            other: attempt_ref(systems[1], other, sources),
            baseline_passes: base_passes,
            other_passes,
            wrong_answer: wrong.attempt.answer.clone(),
            expected: wrong.attempt.ground_truth.clone(),
        }
    }
}

/// A reference to an attempt, with the link to its episode.
pub(super) fn attempt_ref(system: usize, (run, fact): Tried<'_>, sources: &[Source]) -> AttemptRef {
    let key = &fact.attempt.key;
    AttemptRef {
        system,
        task: excerpt(&key.task, super::NAME),
        mode: key.mode,
        id: excerpt(&key.id, super::NAME),
        repeat: key.repeat,
        page: links::page(&sources[run], fact),
        trajectory: links::trajectory(&sources[run], fact),
        source: Some((run, key.clone())),
    }
}

fn passes(side: &[Tried]) -> Passes {
    Passes {
        passed: side.iter().filter(|(_, fact)| fact.passed()).count(),
        valid: side.iter().filter(|(_, fact)| fact.score().is_some()).count(),
    }
}

/// An attempt that passed, or a valid one that did not: the first with a trajectory, else the first. Pairs have one.
fn example<'a>(side: &'a [Tried<'a>], passed: bool) -> Tried<'a> {
    let fits =
        |(_, fact): &&Tried| fact.score().is_some() && fact.passed() == passed && fact.recorded;
    let any = |(_, fact): &&Tried| fact.score().is_some() && fact.passed() == passed;
    *side.iter().find(fits).or_else(|| side.iter().find(any)).unwrap_or(&side[0])
}

/// Whether problems of the same id are different ones, as far as the attempts know.
fn differ(base: &[Tried], other: &[Tried]) -> bool {
    let content = |side: &[Tried]| side.iter().find_map(|(_, fact)| fact.content);
    matches!((content(base), content(other)), (Some(base), Some(other)) if base != other)
}
