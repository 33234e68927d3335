//! From groups of episodes to rows to learn from, and to the figures of a step.
//!
//! Knows what was played and how an algorithm values it. Computes no loss.

use report::analysis::{Capabilities, capabilities, turns};
use rollout::{End, Group, Loss, Played};

use crate::{
    batch::Row,
    metrics::Figures,
    objective::{Objective, Totals, has_spread},
};

/// What is worth saying about groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes(pub Vec<String>);

/// The rows of groups in which every problem has `members` episodes.
///
/// Groups without spread give no rows, and count in the number of episodes all the same. `Keep::All` keeps them, for
/// algorithms that learn something from tokens without advantage.
pub fn rows(
    groups: &[Group],
    members: usize,
    objective: &dyn Objective,
    keep: Keep,
) -> (Vec<Row>, Notes) {
    let counted = groups.iter().flat_map(|group| &group.members).filter(|played| counts(played));
    let tokens = counted.map(learnt).sum();
    let batch = Totals { episodes: groups.len() * members, tokens };
    let (mut rows, mut notes) = (Vec::new(), Notes::default());
    for group in groups {
        let rewards = rewards(group);
        notes.about(group, &rewards);
        let advantages = objective.advantages(&rewards);
        for (played, advantage) in group.members.iter().zip(advantages) {
            if !counts(played) || (advantage == 0.0 && keep == Keep::WithAdvantage) {
                continue;
            }
            let weight = objective.aggregation().weight(learnt(played), batch);
            rows.extend(played.segments.iter().map(|segment| Row {
                tokens: segment.tokens.clone(),
                trained: segment.sampled.clone(),
                sampler: segment.logprobs.clone(),
                advantage,
                weight,
                ..Row::default()
            }));
        }
    }
    (rows, notes)
}

/// Which episodes become rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those whose advantage is not 0.
    WithAdvantage,
    /// All that are trained on.
    All,
}

/// The rewards of a group's members, in order.
pub fn rewards(group: &Group) -> Vec<Option<f64>> {
    group.members.iter().map(|played| played.reward).collect()
}

fn counts(played: &Played) -> bool {
    played.loss == Loss::Counted && played.reward.is_some()
}

fn learnt(played: &Played) -> usize {
    played
        .segments
        .iter()
        .map(|segment| segment.sampled.iter().skip(1).filter(|on| **on).count())
        .sum()
}

impl Notes {
    fn about(&mut self, group: &Group, rewards: &[Option<f64>]) {
        let problem: String = group.problem.chars().take(80).collect();
        let count = rewards.len();
        let broken =
            |played: &&Played| played.end == End::Infrastructure && played.reward.is_some();
        if let Some(first) = group.members.iter().find(broken) {
            let (broken, why) = (group.members.iter().filter(broken).count(), why(first));
            self.0.push(format!(
                "problem {problem}: {broken} of {count} episodes broke their sandbox or their grader ({why}); they are worth \
                 nothing"
            ));
        }
        let Some(first) = group.members.iter().find(|played| played.reward.is_none()) else {
            return;
        };
        let left = rewards.iter().filter(|reward| reward.is_none()).count();
        let why = why(first);
        self.0.push(match count - left {
            0 => format!("problem {problem}: all {count} episodes failed on our side ({why}); nothing is learnt"),
            1 if count > 1 => format!(
                "problem {problem}: only 1 of {count} episodes is left ({why}); it has nothing to be compared with, and \
                 nothing is learnt"
            ),
            stayed => format!("problem {problem}: {left} of {count} episodes left ({why}); {stayed} are compared"),
        });
    }
}

fn why(played: &Played) -> &str {
    played.why.as_deref().unwrap_or("unknown")
}

/// What episodes were like: rewards, lengths, ends.
pub fn figures(groups: &[Group]) -> Figures {
    let mut figures = Figures::default();
    let played: Vec<&Played> = groups.iter().flat_map(|group| &group.members).collect();
    let stayed: Vec<&&Played> = played.iter().filter(|played| played.reward.is_some()).collect();
    let count = stayed.len().max(1) as f64;
    let mean =
        |of: &dyn Fn(&Played) -> f64| stayed.iter().map(|played| of(played)).sum::<f64>() / count;
    let reward = mean(&|played| played.reward.unwrap_or(0.0));
    let square = mean(&|played| (played.reward.unwrap_or(0.0) - reward).powi(2));
    figures.add("reward_mean", reward);
    figures.add("reward_std", square.sqrt());
    figures
        .add("raw_reward_mean", mean(&|played| played.raw_reward.unwrap_or(0.0).clamp(0.0, 1.0)));
    figures.add("success", mean(&|played| share(played.raw_reward.is_some_and(|raw| raw >= 1.0))));
    figures.add("turns_mean", mean(&|played| f64::from(played.turns)));
    figures.add("response_tokens_mean", mean(&|played| played.response_tokens as f64));
    figures.add("env_tokens_mean", mean(&|played| played.environment_tokens as f64));
    figures.add("prompt_tokens_mean", mean(&|played| played.prompt_tokens as f64));
    let (mut valid, mut tried) = (0u64, 0u64);
    for played in &stayed {
        valid += u64::from(played.valid_calls);
        tried += u64::from(played.calls) + u64::from(played.silent_turns);
    }
    figures.add("valid_call_rate", valid as f64 / tried.max(1) as f64);
    for (name, end) in [
        ("submitted", End::Submitted),
        ("max_turns", End::MaxTurns),
        ("truncated", End::Truncated),
        ("timeout", End::Timeout),
        ("no_calls", End::NoCalls),
    ] {
        figures.add(format!("end/{name}"), mean(&|played| share(played.end == end)));
    }
    let mut uses = Capabilities::default();
    for played in &stayed {
        uses += capabilities(&turns(&played.events));
    }
    figures.add("use/external", uses.paper.external_rate());
    figures.add("use/files", uses.paper.file_rate());
    figures.add("use/computation", uses.paper.computation_rate());
    figures.add("episodes", played.len() as f64);
    figures.add("episodes_left", (played.len() - stayed.len()) as f64);
    let spread = groups.iter().filter(|group| has_spread(&rewards(group))).count();
    figures.add("groups", groups.len() as f64);
    figures.add("groups_with_spread", spread as f64);
    figures
}

fn share(is: bool) -> f64 {
    f64::from(u8::from(is))
}

#[cfg(test)]
#[path = "episodes_tests.rs"]
mod tests;
