//! Which problems a step trains on.
//!
//! Uniform: epoch after epoch in shuffled order. By pass rate: problems are sorted into buckets by kind and level, and each
//! bucket has a running pass rate. A group whose episodes are all right, or all wrong, teaches nothing, so buckets with a
//! rate between 0.1 and 0.9 get 90% of the draws; the others keep 10%, in case the policy changes. Within either part
//! buckets are drawn by their number of problems, and no bucket is favoured more than 20 times: few problems that happen to
//! be of medium difficulty must not be all that is trained on.
//!
//! What is drawn follows from the seed, the step and the recorded state, so that a resumed run draws the same.

use std::collections::{BTreeMap, HashMap, HashSet};

use problems::Problem;
use rollout::{Group, Rollout};
use serde::{Deserialize, Serialize};

use crate::{checkpoint::Position, config, metrics::Metrics, shuffle::ShuffledIndices};

/// The pass rate of a bucket that was never drawn.
const UNKNOWN: f64 = 0.5;

/// The weight of a new group in the running pass rate. Six groups without success take it from 0.5 to below 0.1.
const MOMENTUM: f64 = 0.25;

/// The pass rates of buckets that are worth drawing.
const INFORMATIVE: std::ops::RangeInclusive<f64> = 0.1..=0.9;

/// The share of all draws that informative buckets get.
const SHARE: f64 = 0.9;

/// How much more often a problem of an informative bucket may be drawn than one of the others.
const MAX_FAVOUR: f64 = 20.0;

/// The number of buckets. Rows with a subject of their own each would make a bucket each.
const MAX_BUCKETS: usize = 256;

/// Characters of the name of a bucket.
const MAX_NAME: usize = 80;

/// The bucket of problems beyond the most buckets.
const OTHERS: &str = "others";

/// The recorded state of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// The running pass rate.
    pub rate: f64,
    /// Groups it comes from.
    pub groups: u64,
    /// Problems drawn so far.
    pub drawn: u64,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { rate: UNKNOWN, groups: 0, drawn: 0 }
    }
}

/// Draws the problems of a run.
#[derive(Debug)]
pub(crate) struct ProblemDraw {
    seed: u64,
    order: ShuffledIndices,
    /// The score from which an answer counts as right.
    threshold: f64,
    /// The indices of the problems of each bucket; none where draws are uniform.
    buckets: BTreeMap<String, Vec<usize>>,
    /// The bucket of each problem, by its id.
    bucket_of: HashMap<String, String>,
}

impl ProblemDraw {
    /// Draws among these problems.
    pub(crate) fn new<'p>(
        seed: u64,
        draw: config::Draw,
        threshold: f64,
        problems: impl ExactSizeIterator<Item = &'p Problem> + Clone,
    ) -> Self {
        let order = ShuffledIndices::new(seed, problems.len());
        let (mut buckets, mut bucket_of) = (BTreeMap::new(), HashMap::new());
        if draw == config::Draw::PassRate {
            (buckets, bucket_of) = sort_into_buckets(problems);
        }
        Self { seed, order, threshold, buckets, bucket_of }
    }

    /// Draws up to `count` problems that are not in `taken`, which are those of this step, and advances the position.
    pub(crate) fn draw(
        &self,
        count: usize,
        problems: usize,
        taken: &mut HashSet<usize>,
        position: &mut Position,
    ) -> Vec<usize> {
        let count = count.min(problems - taken.len());
        let mut drawn = Vec::with_capacity(count);
        while drawn.len() < count {
            let next = match self.buckets.is_empty() {
                true => self.order.get(position.drawn, 1).first().copied(),
                false => self.draw_by_rate(taken, position),
            };
            let Some(next) = next else { break };
            position.drawn += 1;
            if taken.insert(next) {
                drawn.push(next);
            }
        }
        drawn
    }

    fn draw_by_rate(&self, taken: &HashSet<usize>, position: &mut Position) -> Option<usize> {
        let state = |name: &String| position.buckets.get(name).copied().unwrap_or_default();
        let left: Vec<_> = self
            .buckets
            .iter()
            .filter(|(_, members)| members.iter().any(|at| !taken.contains(at)))
            .map(|(name, members)| (name, members.len() as f64, state(name).rate))
            .collect();
        let weights = weights(left.iter().map(|(_, size, rate)| (*size, *rate)));
        let sum: f64 = weights.iter().sum();
        let random = seeded::derive(self.seed, &[position.step, position.drawn]);
        // 53 bits are what a float holds exactly.
        let mut point = (random >> 11) as f64 / (1u64 << 53) as f64 * sum;
        let chosen = weights.iter().position(|weight| {
            point -= weight;
            point < 0.0
        });
        let (name, ..) = left.get(chosen.unwrap_or(left.len().saturating_sub(1)))?;
        let members = self.buckets.get(*name)?;
        let number = self.buckets.keys().position(|known| known == *name)? as u64;
        let order = ShuffledIndices::new(seeded::derive(self.seed, &[number]), members.len());
        let bucket = position.buckets.entry((*name).clone()).or_default();
        // One of them is not taken, so two epochs have it.
        let next = order.get(bucket.drawn, 2 * members.len());
        let free = next.iter().position(|at| !taken.contains(&members[*at]))?;
        bucket.drawn += free as u64 + 1;
        members.get(next[free]).copied()
    }

    /// Updates the pass rates with the groups of a step.
    pub(crate) fn record(&self, groups: &[Group], position: &mut Position) {
        for group in groups {
            let Some(name) = self.bucket_of.get(&group.problem) else { continue };
            let count = group.present().count();
            if count == 0 {
                continue;
            }
            // A right answer that earns nothing, since its episode reached a limit, is no pass.
            let passed = |rollout: &&Rollout| {
                rollout.raw_reward.is_some_and(|score| score >= self.threshold)
                    && rollout.reward.is_some_and(|reward| reward > 0.0)
            };
            let passes = group.present().filter(passed).count();
            let bucket = position.buckets.entry(name.clone()).or_default();
            bucket.rate += MOMENTUM * (passes as f64 / count as f64 - bucket.rate);
            bucket.groups += 1;
        }
    }

    /// The pass rates of all buckets with a group, as metrics.
    pub(crate) fn metrics(&self, position: &Position) -> Metrics {
        let mut metrics = Metrics::default();
        for (name, bucket) in position.buckets.iter().filter(|(_, bucket)| bucket.groups > 0) {
            metrics.add(format!("rate/{name}"), bucket.rate);
        }
        metrics
    }
}

/// The weights of buckets, given their sizes and pass rates.
fn weights(buckets: impl Iterator<Item = (f64, f64)> + Clone) -> Vec<f64> {
    let (mut informative, mut others) = (0.0, 0.0);
    for (size, rate) in buckets.clone() {
        *(if INFORMATIVE.contains(&rate) { &mut informative } else { &mut others }) += size;
    }
    let favour = SHARE / (1.0 - SHARE) * others / f64::max(informative, 1.0);
    let favour = favour.clamp(1.0, MAX_FAVOUR);
    let weight = |(size, rate)| if INFORMATIVE.contains(&rate) { size * favour } else { size };
    buckets.map(weight).collect()
}

/// The indices of each bucket, and the bucket of each problem.
fn sort_into_buckets<'p>(
    problems: impl Iterator<Item = &'p Problem>,
) -> (BTreeMap<String, Vec<usize>>, HashMap<String, String>) {
    let mut buckets: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut bucket_of = HashMap::new();
    for (at, problem) in problems.enumerate() {
        let mut name = bucket_name(problem);
        if buckets.len() >= MAX_BUCKETS - 1 && !buckets.contains_key(&name) {
            name = OTHERS.to_owned();
        }
        bucket_of.insert(problem.id.clone(), name.clone());
        buckets.entry(name).or_default().push(at);
    }
    (buckets, bucket_of)
}

/// The kind of a problem and its level: what its row has of them.
pub(crate) fn bucket_name(problem: &Problem) -> String {
    let own = problem.extra.get("kind").and_then(serde_json::Value::as_str);
    let kinds = [own, problem.subject.as_deref(), Some(problem.domain.as_str())];
    let kind = kinds.into_iter().flatten().find(|kind| !kind.is_empty()).unwrap_or("unknown");
    let kind: String = kind.chars().take(MAX_NAME).collect();
    match problem.extra.get("level") {
        Some(serde_json::Value::Number(level)) => format!("{kind}/{level}"),
        Some(serde_json::Value::String(level)) if !level.is_empty() => {
            format!("{kind}/{}", level.chars().take(MAX_NAME).collect::<String>())
        }
        _ => kind,
    }
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
