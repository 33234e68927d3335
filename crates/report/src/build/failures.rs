//! Selects the attempts and turns a reader should look at.

use std::collections::{BTreeMap, HashMap};

use results::{AttemptKey, Mode};

use super::{NAME, pairs::attempt_ref, systems::Group};
use crate::{
    Fact, Source,
    analysis::{self, LeakReason},
    data::{Failure, FailureKind, Leak, Listed},
    stats::PASS,
    text::excerpt,
};

/// Failures listed per system, task and mode.
const EACH: usize = 25;
/// Failures listed in total.
const ALL: usize = 400;
/// Suspicious turns listed.
const LEAKS: usize = 100;

/// Lists attempts that did not pass, equally many of each system, task and mode, sorted by kind and name.
pub(super) fn failures(groups: &[Group], sources: &[Source]) -> Listed<Failure> {
    let mut all: BTreeMap<(usize, &str, Mode), Vec<Found>> = BTreeMap::new();
    for (system, group) in groups.iter().enumerate() {
        let means = means(group, sources);
        for (run, fact) in facts(group, sources).filter(|(_, fact)| !fact.passed()) {
            let AttemptKey { task, mode, id, .. } = &fact.attempt.key;
            let other = means.get(&(task.as_str(), other(*mode), id.as_str())).copied();
            all.entry((system, task, *mode)).or_default().push(Found { run, fact, other });
        }
    }
    let total = all.values().map(Vec::len).sum();
    let each = (ALL / all.len().max(1)).clamp(1, EACH);
    let mut items = Vec::new();
    for ((system, ..), mut found) in all {
        found.sort_by(|a, b| (a.kind(), &a.fact.attempt.key).cmp(&(b.kind(), &b.fact.attempt.key)));
        items.extend(found.iter().take(each).map(|found| found.listed(system, sources)));
    }
    items.truncate(ALL);
    Listed { total, items }
}

/// Lists suspicious turns.
pub(super) fn leaks(groups: &[Group], sources: &[Source]) -> Listed<Leak> {
    let (mut total, mut items) = (0, Vec::new());
    for (system, group) in groups.iter().enumerate() {
        for (run, fact) in facts(group, sources) {
            total += fact.leaks_total;
            for leak in &fact.leaks {
                if items.len() < LEAKS {
                    items.push(Leak {
                        attempt: attempt_ref(system, (run, fact), sources),
                        turn: leak.turn,
                        why: why(leak),
                        seen: excerpt(&leak.snippet, 200),
                    });
                }
            }
        }
    }
    Listed { total, items }
}

struct Found<'a> {
    run: usize,
    fact: &'a Fact,
    other: Option<f64>,
}

impl Found<'_> {
    fn kind(&self) -> FailureKind {
        let fact = self.fact;
        match fact.attempt.score {
            _ if !fact.attempt.is_answered() => FailureKind::Infrastructure,
            None => FailureKind::Ungraded,
            Some(_)
                if fact.attempt.key.mode == Mode::Sandbox
                    && self.other.is_some_and(|s| s >= PASS) =>
            {
                FailureKind::LostWithSandbox
            }
            Some(_) => FailureKind::Wrong,
        }
    }

    fn listed(&self, system: usize, sources: &[Source]) -> Failure {
        let fact = self.fact;
        Failure {
            attempt: attempt_ref(system, (self.run, fact), sources),
            kind: self.kind(),
            outcome: fact.attempt.outcome.name().to_owned(),
            score: fact.attempt.score,
            other_mode: self.other,
            cause: fact.cause.clone(),
            answer: fact.attempt.answer.clone(),
            expected: fact.attempt.ground_truth.clone(),
        }
    }
}

fn facts<'a>(
    group: &'a Group,
    sources: &'a [Source],
) -> impl Iterator<Item = (usize, &'a Fact)> + 'a {
    group.runs.iter().flat_map(|run| sources[*run].facts.iter().map(|fact| (*run, fact)))
}

/// Mean score of each problem in each mode.
fn means<'a>(group: &'a Group, sources: &'a [Source]) -> HashMap<(&'a str, Mode, &'a str), f64> {
    let mut sums: HashMap<(&str, Mode, &str), (f64, f64)> = HashMap::new();
    for (_, fact) in facts(group, sources) {
        if let Some(score) = fact.score() {
            let AttemptKey { task, mode, id, .. } = &fact.attempt.key;
            let sum = sums.entry((task, *mode, id)).or_default();
            *sum = (sum.0 + score, sum.1 + 1.0);
        }
    }
    sums.into_iter().map(|(key, (sum, count))| (key, sum / count)).collect()
}

/// Why a turn is suspicious, as text.
fn why(leak: &analysis::Leak) -> String {
    let why = match &leak.why {
        LeakReason::Benchmark { name } => format!("names the benchmark: {}", excerpt(name, NAME)),
        LeakReason::Answer { known_before: false } => "contains the answer".to_owned(),
        LeakReason::Answer { known_before: true } => {
            "contains the answer, which the model had before".to_owned()
        }
        LeakReason::Dataset => "requests a dataset".to_owned(),
    };
    if leak.failed { format!("{why}; the request failed") } else { why }
}

fn other(mode: Mode) -> Mode {
    match mode {
        Mode::Llm => Mode::Sandbox,
        Mode::Sandbox => Mode::Llm,
    }
}
