//! From groups of episodes to training rows, and to the metrics of a step.
//!
//! Knows the result of a rollout and the advantages of an algorithm. Computes no loss.

use report::analysis::{Capabilities, capabilities, turns};
use rollout::{End, Group, Loss, Rollout, Segment};

use crate::{
    batch::Row,
    metrics::Metrics,
    objective::{Objective, Totals, has_spread},
};

/// Messages about groups for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes(pub Vec<String>);

/// Which episodes become rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those with an advantage other than 0.
    WithAdvantage,
    /// All that are trained on, for losses with terms beyond the advantage, such as KL.
    All,
}

/// The training rows of groups in which every problem has `members` episodes.
///
/// An episode gives one row per segment. Groups without spread have no advantages, and still count in the number of
/// episodes.
pub fn rows(groups: &[Group], members: usize, objective: &dyn Objective, keep: Keep) -> Vec<Row> {
    let totals = totals(groups, members);
    let of_group = |group: &Group| group_rows(&group.members, totals, objective, keep);
    groups.iter().flat_map(of_group).collect()
}

/// The size of the batch of groups in which every problem has `members` episodes.
pub(crate) fn totals(groups: &[Group], members: usize) -> Totals {
    let episodes = groups.iter().flat_map(|group| &group.members);
    let tokens = episodes.filter(|played| is_trained(played)).map(trained_tokens).sum();
    Totals { episodes: groups.len() * members, tokens }
}

/// The training rows of all episodes of one problem, as part of a batch of this size.
pub(crate) fn group_rows(
    members: &[Rollout],
    totals: Totals,
    objective: &dyn Objective,
    keep: Keep,
) -> Vec<Row> {
    let aggregation = objective.surrogate().aggregation;
    let mut rows = Vec::new();
    let advantages = objective.advantages(&rewards(members));
    for (played, advantage) in members.iter().zip(advantages) {
        if !is_trained(played) || (advantage == 0.0 && keep == Keep::WithAdvantage) {
            continue;
        }
        let weight = aggregation.weight(trained_tokens(played), totals);
        rows.extend(played.segments.iter().map(|segment| Row {
            tokens: segment.tokens.clone(),
            trained: segment.sampled.clone(),
            sampler: segment.logprobs.clone(),
            advantage,
            weight,
            ..Row::default()
        }));
    }
    rows
}

/// Messages about the episodes that failed.
pub(crate) fn notes(groups: &[Group]) -> Notes {
    let mut notes = Notes::default();
    groups.iter().for_each(|group| notes.add_failures(group));
    notes
}

/// The rewards of a group's members, in order; `None` for those that failed on our side.
pub fn rewards(members: &[Rollout]) -> Vec<Option<f64>> {
    members.iter().map(|played| played.reward).collect()
}

fn is_trained(played: &Rollout) -> bool {
    played.loss == Loss::Counted && played.reward.is_some()
}

fn trained_tokens(played: &Rollout) -> usize {
    played
        .segments
        .iter()
        .map(|segment| segment.sampled.iter().skip(1).filter(|on| **on).count())
        .sum()
}

impl Notes {
    /// Describes the members of a group that failed.
    fn add_failures(&mut self, group: &Group) {
        let rewards = rewards(&group.members);
        let problem: String = group.problem.chars().take(80).collect();
        let count = rewards.len();
        let broken =
            |played: &&Rollout| played.end == End::Infrastructure && played.reward.is_some();
        if let Some(first) = group.members.iter().find(broken) {
            let (broken, why) = (group.members.iter().filter(broken).count(), why(first));
            self.0.push(format!(
                "problem {problem}: {broken} of {count} episodes broke their sandbox or their grader ({why}); their \
                 reward is 0"
            ));
        }
        let Some(first) = group.members.iter().find(|played| played.reward.is_none()) else {
            return;
        };
        let failed = rewards.iter().filter(|reward| reward.is_none()).count();
        let why = why(first);
        self.0.push(match count - failed {
            0 => format!(
                "problem {problem}: all {count} episodes failed on our side ({why}); the group is skipped"
            ),
            1 if count > 1 => format!(
                "problem {problem}: only 1 of {count} episodes did not fail ({why}); there is nothing to compare it \
                 with, and the group is skipped"
            ),
            left => format!(
                "problem {problem}: {failed} of {count} episodes failed ({why}); the other {left} are compared"
            ),
        });
    }
}

fn why(played: &Rollout) -> &str {
    played.why.as_deref().unwrap_or("unknown cause")
}

/// The metrics of episodes: rewards, lengths, ends. Means are over the episodes that did not fail on our side.
pub fn metrics(groups: &[Group]) -> Metrics {
    let mut metrics = Metrics::default();
    let all: Vec<&Rollout> = groups.iter().flat_map(|group| &group.members).collect();
    let valid: Vec<&&Rollout> = all.iter().filter(|played| played.reward.is_some()).collect();
    let count = valid.len().max(1) as f64;
    let mean =
        |of: &dyn Fn(&Rollout) -> f64| valid.iter().map(|played| of(played)).sum::<f64>() / count;
    let reward = mean(&|played| played.reward.unwrap_or(0.0));
    let square = mean(&|played| (played.reward.unwrap_or(0.0) - reward).powi(2));
    metrics.add("reward_mean", reward);
    metrics.add("reward_std", square.sqrt());
    metrics
        .add("raw_reward_mean", mean(&|played| played.raw_reward.unwrap_or(0.0).clamp(0.0, 1.0)));
    metrics
        .add("success", mean(&|played| indicator(played.raw_reward.is_some_and(|raw| raw >= 1.0))));
    metrics.add("turns_mean", mean(&|played| f64::from(played.turns)));
    metrics.add("response_tokens_mean", mean(&|played| played.response_tokens as f64));
    metrics.add("env_tokens_mean", mean(&|played| played.environment_tokens as f64));
    metrics.add("prompt_tokens_mean", mean(&|played| played.prompt_tokens as f64));
    let (mut valid_calls, mut calls) = (0u64, 0u64);
    for played in &valid {
        valid_calls += u64::from(played.valid_calls);
        calls += u64::from(played.calls) + u64::from(played.silent_turns);
    }
    metrics.add("valid_call_rate", valid_calls as f64 / calls.max(1) as f64);
    for (name, end) in [
        ("submitted", End::Submitted),
        ("max_turns", End::MaxTurns),
        ("truncated", End::Truncated),
        ("timeout", End::Timeout),
        ("no_calls", End::NoCalls),
    ] {
        metrics.add(format!("end/{name}"), mean(&|played| indicator(played.end == end)));
    }
    let mut uses = Capabilities::default();
    for played in &valid {
        uses += capabilities(&turns(&played.events));
    }
    metrics.add("use/external", uses.paper.external_rate());
    metrics.add("use/files", uses.paper.file_rate());
    metrics.add("use/computation", uses.paper.computation_rate());
    metrics.add("episodes", all.len() as f64);
    metrics.add("episodes_left", (all.len() - valid.len()) as f64);
    let spread = groups.iter().filter(|group| has_spread(&rewards(&group.members))).count();
    metrics.add("groups", groups.len() as f64);
    metrics.add("groups_with_spread", spread as f64);
    metrics
}

/// The share of sampled tokens that another version of the policy than this one sampled.
pub(crate) fn off_policy_share(groups: &[Group], version: u32) -> f64 {
    let segments = || {
        let members = groups.iter().flat_map(|group| &group.members);
        members.flat_map(|played| &played.segments)
    };
    let all: usize = segments().map(Segment::response_tokens).sum();
    let others: usize = segments().map(|segment| segment.tokens_of_others(version)).sum();
    others as f64 / all.max(1) as f64
}

fn indicator(is: bool) -> f64 {
    f64::from(u8::from(is))
}

#[cfg(test)]
#[path = "episodes_tests.rs"]
pub(crate) mod tests;
