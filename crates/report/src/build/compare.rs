//! Compares systems with the baseline: by task and mode, and on average over tasks.

use results::Mode;

use super::{
    NAME,
    pairs::{Index, Pairs},
    systems::Group,
};
use crate::{
    Source,
    data::{Comparison, LeftOut, Listed, Side},
    stats::{Scores, holm, mean, paired, paired_average},
    text::excerpt,
};

/// Problems listed as gained, and as lost, per comparison and in total.
const EACH: usize = 25;
const ALL: usize = 400;

/// One task compared.
struct Compared {
    row: Comparison,
    scores: Vec<Scores>,
}

/// Compares every other system with the baseline.
pub(super) fn comparisons(
    baseline: usize,
    groups: &[Group],
    indices: &[Index<'_>],
    tasks: &[String],
    sources: &[Source],
) -> Vec<Comparison> {
    let others: Vec<usize> = (0..groups.len()).filter(|at| *at != baseline).collect();
    let each = per_comparison(others.len() * tasks.len());
    let mut all = Vec::new();
    for other in others {
        let mut by_modes: Vec<([Mode; 2], Vec<Compared>)> = Vec::new();
        for task in tasks {
            for modes in common_modes(&indices[baseline], &indices[other], task) {
                let sides = [(baseline, modes[0]), (other, modes[1])];
                let sides = sides.map(|(system, mode)| Side { system, mode });
                let Some(found) = compare(sides, indices, task, sources, each) else { continue };
                match by_modes.iter_mut().find(|(known, _)| *known == modes) {
                    Some((_, list)) => list.push(found),
                    None => by_modes.push((modes, vec![found])),
                }
            }
        }
        by_modes.sort_by_key(|(modes, _)| *modes);
        for (_, list) in by_modes {
            let average = average(&list);
            all.extend(list.into_iter().map(|compared| compared.row));
            all.extend(average);
        }
    }
    correct(&mut all);
    all
}

/// Problems listed as gained, and as lost, where there are this many comparisons.
pub(super) fn per_comparison(comparisons: usize) -> usize {
    (ALL / comparisons.max(1)).clamp(1, EACH)
}

/// Why a system cannot be compared with the baseline at all: a sentence for each such system.
pub(super) fn nothing_shared(
    baseline: Option<usize>,
    groups: &[Group],
    indices: &[Index<'_>],
    comparisons: &[Comparison],
) -> Vec<String> {
    let Some(baseline) = baseline else { return Vec::new() };
    let compared = |system: usize| {
        let own = |row: &&Comparison| row.other.system == system;
        comparisons.iter().filter(own).any(|row| row.difference.is_some())
    };
    let lacking = (0..groups.len()).filter(|at| *at != baseline && !compared(*at));
    let sentence = |other: usize| {
        let labels = [baseline, other].map(|at| groups[at].label.as_str());
        let has = [baseline, other].map(|at| coverage(&indices[at]));
        format!(
            "{} and {} cannot be compared: they share no problem with a valid attempt on both sides. {} attempted {}; {} \
             attempted {}.",
            labels[0], labels[1], labels[0], has[0], labels[1], has[1]
        )
    };
    lacking.map(sentence).collect()
}

fn coverage(index: &Index<'_>) -> String {
    let parts = index.coverage().take(6).map(|(task, mode, problems)| {
        let plural = if problems == 1 { "problem" } else { "problems" };
        format!("{problems} {plural} of {} ({mode})", excerpt(task, 40))
    });
    let more = index.coverage().count().saturating_sub(6);
    let parts = parts.chain((more > 0).then(|| format!("{more} more tasks and modes")));
    let text = parts.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "nothing".to_owned() } else { text }
}

/// The modes in which both attempted a task; where they share none but each has one, these two.
fn common_modes(base: &Index<'_>, other: &Index<'_>, task: &str) -> Vec<[Mode; 2]> {
    let (base, other) = (base.modes(task), other.modes(task));
    let common: Vec<[Mode; 2]> =
        base.iter().filter(|mode| other.contains(mode)).map(|mode| [*mode; 2]).collect();
    match (&common[..], &base[..], &other[..]) {
        ([], [base], [other]) => vec![[*base, *other]],
        _ => common,
    }
}

fn compare(
    sides: [Side; 2],
    indices: &[Index<'_>],
    task: &str,
    sources: &[Source],
    each: usize,
) -> Option<Compared> {
    let [baseline, other] = sides;
    let problems = sides.map(|side| indices[side.system].problems(task, side.mode));
    let [Some(base_problems), Some(other_problems)] = problems else { return None };
    let pairs = Pairs::of(base_problems, other_problems);
    let scores = pairs.scores();
    let [gained, lost] = pairs.changes([baseline.system, other.system], sources, each);
    let difference = paired(&scores);
    let row = Comparison {
        baseline,
        other,
        task: Some(excerpt(task, NAME)),
        tasks: usize::from(difference.is_some()),
        baseline_score: mean(scores.iter().filter_map(|pair| mean(pair.0.iter().copied()))),
        other_score: mean(scores.iter().filter_map(|pair| mean(pair.1.iter().copied()))),
        difference,
        p_holm: None,
        left_out: pairs.left_out,
        gained,
        lost,
    };
    Some(Compared { row, scores })
}

/// The average over tasks; `None` with fewer than two tasks that have pairs.
fn average(tasks: &[Compared]) -> Option<Comparison> {
    let first = &tasks.first()?.row;
    let scores: Vec<&[Scores]> = tasks.iter().map(|compared| &compared.scores[..]).collect();
    let compared = scores.iter().filter(|scores| !scores.is_empty()).count();
    if compared < 2 {
        return None;
    }
    let over = |pick: fn(&Comparison) -> Option<f64>| {
        mean(tasks.iter().filter_map(|compared| pick(&compared.row)))
    };
    let mut left_out = LeftOut::default();
    tasks.iter().for_each(|compared| left_out += compared.row.left_out);
    // The tasks list the problems.
    let total = |pick: fn(&Comparison) -> usize| Listed {
        total: tasks.iter().map(|compared| pick(&compared.row)).sum(),
        items: Vec::new(),
    };
    Some(Comparison {
        baseline: first.baseline,
        other: first.other,
        task: None,
        tasks: compared,
        baseline_score: over(|row| row.baseline_score),
        other_score: over(|row| row.other_score),
        difference: paired_average(&scores),
        p_holm: None,
        left_out,
        gained: total(|row| row.gained.total),
        lost: total(|row| row.lost.total),
    })
}

/// Corrects the p-values for the number of comparisons.
fn correct(all: &mut [Comparison]) {
    let values: Vec<f64> = all.iter().filter_map(|row| Some(row.difference?.p)).collect();
    let compared = all.iter_mut().filter(|row| row.difference.is_some());
    for (row, p) in compared.zip(holm(&values)) {
        row.p_holm = Some(p);
    }
}
