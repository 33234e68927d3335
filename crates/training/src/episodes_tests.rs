//! Rows and metrics of fabricated groups.

use super::*;
use crate::{grpo_plus_plus::GrpoPlusPlus, rloo::Rloo};

fn segment(prompt: usize, sampled: usize) -> Segment {
    let length = prompt + sampled;
    Segment {
        tokens: (0..length as u32).collect(),
        sampled: (0..length).map(|at| at >= prompt).collect(),
        logprobs: vec![-0.5; length],
        versions: vec![0; length],
    }
}

fn played(reward: Option<f64>, segments: Vec<Segment>) -> Rollout {
    Rollout {
        problem: "p".into(),
        member: 0,
        response_tokens: segments.iter().map(Segment::response_tokens).sum(),
        segments,
        end: End::Submitted,
        reward,
        raw_reward: reward,
        loss: Loss::Counted,
        why: None,
        answer: String::new(),
        turns: 2,
        calls: 3,
        valid_calls: 2,
        silent_turns: 1,
        prompt_tokens: 2,
        environment_tokens: 0,
        tries: 1,
        wall_ms: 1,
        events: Vec::new(),
        file: None,
    }
}

/// An episode with this score.
pub(crate) fn scored(score: f64) -> Rollout {
    played(Some(score), Vec::new())
}

fn group(rewards: &[Option<f64>]) -> Group {
    let members = rewards.iter().map(|reward| played(*reward, vec![segment(2, 3)])).collect();
    Group { problem: "p".into(), members }
}

#[test]
fn groups_without_spread_count_and_cost_nothing() {
    let groups = [group(&[Some(1.0), Some(0.0)]), group(&[Some(1.0), Some(1.0)])];
    let rows = super::rows(&groups, 2, &Rloo::default(), Keep::WithAdvantage);
    assert_eq!(rows.iter().map(|row| row.advantage).collect::<Vec<_>>(), [1.0, -1.0]);
    assert!(rows.iter().all(|row| row.weight == 0.25), "N is four episodes");
    assert!(notes(&groups).0.is_empty());
    let rows = super::rows(&groups, 2, &Rloo::default(), Keep::All);
    assert_eq!(rows.len(), 4);
}

#[test]
fn segments_share_the_advantage_of_their_episode_and_episodes_are_counted_once() {
    let mut groups = [group(&[Some(1.0), Some(0.0)])];
    groups[0].members[0].segments.push(segment(4, 1));
    let rows = super::rows(&groups, 2, &Rloo::default(), Keep::WithAdvantage);
    assert_eq!(rows.iter().map(|row| row.advantage).collect::<Vec<_>>(), [1.0, 1.0, -1.0]);
    assert!(rows.iter().all(|row| row.weight == 0.5));
}

#[test]
fn failed_episodes_are_named_and_the_only_valid_one_is_skipped() {
    let mut groups =
        [group(&[None, Some(1.0), Some(0.0)]), group(&[None, None, Some(1.0)]), group(&[None; 3])];
    groups[0].members[0].why = Some("the sandbox died".into());
    let rows = super::rows(&groups, 3, &Rloo::default(), Keep::WithAdvantage);
    assert_eq!(rows.len(), 2);
    let notes = notes(&groups);
    assert!(notes.0[0].contains("1 of 3 episodes failed (the sandbox died)"), "{notes:?}");
    assert!(notes.0[1].contains("only 1 of 3"), "{notes:?}");
    assert!(notes.0[2].contains("all 3 episodes failed"), "{notes:?}");
}

#[test]
fn masked_episodes_count_in_the_baseline_alone() {
    let mut groups = [group(&[Some(1.0), Some(0.0), Some(0.0)])];
    groups[0].members[2].loss = Loss::Masked;
    let rows = super::rows(&groups, 3, &GrpoPlusPlus::new(10.0), Keep::WithAdvantage);
    assert_eq!(rows.iter().map(|row| row.advantage).collect::<Vec<_>>(), [1.0, -0.5]);
}

#[test]
fn metrics_are_means_over_valid_episodes() {
    let groups = [group(&[Some(1.0), Some(0.5), None]), group(&[Some(0.0); 3])];
    let metrics = metrics(&groups);
    let get = |name: &str| metrics.get(name).unwrap();
    assert!((get("reward_mean") - 0.3).abs() < 1e-12);
    assert!((get("success") - 0.2).abs() < 1e-12);
    assert_eq!((get("episodes"), get("episodes_left"), get("groups_with_spread")), (6.0, 1.0, 1.0));
    assert!((get("valid_call_rate") - 0.5).abs() < 1e-12);
    assert_eq!(get("end/submitted"), 1.0);
    assert_eq!(super::metrics(&[]).get("reward_mean"), Some(0.0));
}

#[test]
fn tokens_of_an_older_policy_are_counted() {
    let mut groups = [group(&[Some(1.0), Some(0.0)]), group(&[Some(0.0); 2])];
    let all: usize =
        groups.iter().flat_map(|group| &group.members).map(|p| p.response_tokens).sum();
    for segment in groups[1].members.iter_mut().flat_map(|played| &mut played.segments) {
        // Only what was sampled counts.
        segment.versions = segment.sampled.iter().map(|_| 3).collect();
    }
    let older: usize = groups[1].members.iter().map(|played| played.response_tokens).sum();
    assert_eq!(off_policy_share(&groups, 0), older as f64 / all as f64);
    assert_eq!(off_policy_share(&groups, 3), 1.0 - older as f64 / all as f64);
    assert_eq!(off_policy_share(&[], 3), 0.0);
}
