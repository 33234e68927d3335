//! One task in one mode: score, outcomes, turns, tokens, time, memory, cost.

use std::collections::{BTreeMap, HashSet};

use super::by_problem;
use crate::{
    Fact,
    analysis::Shares,
    data::{Bin, Cost, ModeReport, Times, TokenMeans, Turns},
    stats::{clustered, mean, median, pass_at},
};

/// Bins of a histogram, at most.
const MOST_BINS: u32 = 25;

/// Summarizes the attempts of a task in one mode; `None` without attempts.
pub(super) fn report(facts: &[&Fact], planned: usize) -> Option<ModeReport> {
    if facts.is_empty() {
        return None;
    }
    let problems: HashSet<&str> = facts.iter().map(|fact| fact.attempt.key.id.as_str()).collect();
    let scores: Vec<Vec<f64>> = by_problem(facts, Fact::score).into_values().collect();
    // An infrastructure failure says nothing about turns, tokens and time either.
    let own: Vec<&Fact> = facts.iter().copied().filter(|fact| fact.attempt.is_answered()).collect();
    let shares = Shares::of(own.iter().map(|fact| &fact.attempt));
    let tally = |name: fn(&Fact) -> Option<&'static str>| {
        let mut counts = BTreeMap::new();
        for name in facts.iter().filter_map(|fact| name(fact)) {
            *counts.entry(name.to_owned()).or_insert(0) += 1;
        }
        counts
    };
    let score = clustered(&scores);
    Some(ModeReport {
        missing: planned.saturating_sub(facts.len()),
        infrastructure: facts.len() - own.len(),
        ungraded: own.iter().filter(|fact| fact.attempt.score.is_none()).count(),
        faults: tally(Fact::fault),
        valid: scores.iter().map(Vec::len).sum(),
        passed: facts.iter().filter(|fact| fact.passed()).count(),
        retried: facts.iter().filter(|fact| fact.attempt.tries > 1).count(),
        problems: problems.len(),
        attempts: facts.len(),
        score,
        graded: score,
        pass_at: pass_at(&scores),
        outcomes: tally(|fact| Some(fact.attempt.outcome.name())),
        turns: turns(&own),
        tokens: tokens(&own, &shares),
        time: times(&own, &shares),
        memory: shares.peak_memory,
        cost: cost(facts),
    })
}

fn turns(facts: &[&Fact]) -> Option<Turns> {
    let each = || facts.iter().map(|fact| f64::from(fact.attempt.spent.turns));
    let most = facts.iter().map(|fact| fact.attempt.spent.turns).max()?;
    let width = most.div_ceil(MOST_BINS).max(1);
    let mut histogram: Vec<Bin> = Vec::new();
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for turns in facts.iter().map(|fact| fact.attempt.spent.turns).filter(|turns| *turns > 0) {
        *counts.entry((turns - 1) / width).or_default() += 1;
    }
    for at in 0..=counts.keys().next_back().copied().unwrap_or(0) {
        let count = counts.get(&at).copied().unwrap_or(0);
        histogram.push(Bin { from: at * width + 1, to: (at + 1).saturating_mul(width), count });
    }
    Some(Turns { mean: mean(each())?, median: median(each().collect())?, most, histogram })
}

fn tokens(facts: &[&Fact], shares: &Shares) -> Option<TokenMeans> {
    let average = |pick: fn(&Fact) -> u64| mean(facts.iter().map(|fact| pick(fact) as f64));
    let prompt = average(|fact| fact.attempt.tokens.prompt)?;
    let model = average(|fact| fact.attempt.tokens.model)?;
    let environment = average(|fact| fact.attempt.tokens.environment)?;
    let total = prompt + model + environment;
    Some(TokenMeans { prompt, model, environment, total, environment_share: shares.environment })
}

fn times(facts: &[&Fact], shares: &Shares) -> Option<Times> {
    let seconds = |fact: &&Fact| {
        let spent = &fact.attempt.spent;
        (spent.model_ms as f64 + spent.tool_ms as f64) / 1000.0
    };
    Some(Times {
        mean_s: mean(facts.iter().map(seconds))?,
        median_s: median(facts.iter().map(seconds).collect())?,
        execution_share: shares.execution,
        calls_per_minute: shares.queries_per_minute,
        attempts_per_minute: shares.attempts_per_minute,
    })
}

fn cost(facts: &[&Fact]) -> Option<Cost> {
    let priced = facts.iter().filter_map(|fact| fact.attempt.spent.cost);
    let known: Vec<f64> = priced.filter(|cost| cost.is_finite() && *cost >= 0.0).collect();
    let total: f64 = known.iter().sum();
    (!known.is_empty() && total.is_finite()).then_some(Cost { total, known: known.len() })
}
