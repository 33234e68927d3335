//! Draws: deterministic, mostly from informative buckets, and resumed exactly.

use std::sync::Arc;

use super::*;

fn problem(id: usize, kind: &str, level: u64) -> Arc<Problem> {
    let row = serde_json::json!({
        "id": format!("{kind}-{level}-{id}"), "problem_statement": "?", "ground_truth": "1",
        "subject": kind, "level": level,
    });
    Arc::new(Problem::from_row(row).unwrap())
}

/// 20 easy problems, 40 medium ones and 60 hard ones.
fn problems() -> Vec<Arc<Problem>> {
    let of = |count: usize, kind: &'static str, level| {
        (0..count).map(move |id| problem(id, kind, level))
    };
    of(20, "count", 1).chain(of(40, "count", 2)).chain(of(60, "join", 5)).collect()
}

fn by_rate(problems: &[Arc<Problem>]) -> ProblemDraw {
    ProblemDraw::new(7, config::Draw::PassRate, 1.0, problems.iter().map(|problem| &**problem))
}

fn position(step: u64, rates: &[(&str, f64)]) -> Position {
    let bucket = |rate: f64| Bucket { rate, groups: 9, drawn: 0 };
    let buckets = rates.iter().map(|(name, rate)| ((*name).to_owned(), bucket(*rate))).collect();
    Position { step, buckets, ..Position::default() }
}

fn group(problem: &Problem, scores: &[f64]) -> Group {
    let members = scores.iter().map(|score| crate::episodes::tests::scored(*score)).collect();
    Group { problem: problem.id.clone(), members }
}

#[test]
fn buckets_of_medium_difficulty_get_most_draws_and_none_is_forgotten() {
    let problems = problems();
    let draw = by_rate(&problems);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut position = position(0, &[("count/1", 0.95), ("count/2", 0.5), ("join/5", 0.01)]);
    for step in 1..=250 {
        position.step = step;
        for at in draw.draw(4, problems.len(), &mut HashSet::new(), &mut position) {
            *counts.entry(bucket_name(&problems[at])).or_default() += 1;
        }
    }
    let share = |name: &str| counts[name] as f64 / 1000.0;
    assert!((0.86..0.94).contains(&share("count/2")), "{counts:?}");
    assert!(share("count/1") > 0.01 && share("join/5") > 0.04, "{counts:?}");
}

#[test]
fn few_problems_of_medium_difficulty_are_not_all_that_is_drawn() {
    let shares = |buckets: &[(f64, f64)]| {
        let weights = weights(buckets.iter().copied());
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| (100.0 * weight / sum).round()).collect::<Vec<_>>()
    };
    assert_eq!(shares(&[(1000.0, 0.0), (10.0, 0.5)]), [83.0, 17.0]);
    assert_eq!(shares(&[(100.0, 0.0), (100.0, 0.5)]), [10.0, 90.0]);
    assert_eq!(shares(&[(10.0, 0.5), (90.0, 0.4)]), [10.0, 90.0], "by their sizes");
    assert_eq!(shares(&[(10.0, 0.0), (90.0, 1.0)]), [10.0, 90.0], "none is informative");
    assert_eq!(shares(&[(1.0, 0.0), (99.0, 0.5)]), [1.0, 99.0], "never less than their size");
}

#[test]
fn a_step_draws_different_problems_and_the_same_ones_after_a_resume() {
    let problems = problems();
    let draw = by_rate(&problems);
    let before = position(3, &[("count/2", 0.5)]);
    let once = |mut position: Position| {
        let mut taken = HashSet::new();
        let mut drawn = draw.draw(50, problems.len(), &mut taken, &mut position);
        drawn.extend(draw.draw(200, problems.len(), &mut taken, &mut position));
        (drawn, position)
    };
    let (drawn, after) = once(before.clone());
    assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 120, "all of them, each once");
    let saved: Position = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
    assert_eq!(once(saved), (drawn.clone(), after));
    assert_ne!(once(position(4, &[("count/2", 0.5)])).0, drawn);
}

#[test]
fn pass_rates_follow_what_was_played() {
    let problems = problems();
    let draw = by_rate(&problems);
    let mut position = Position::default();
    // Partial credit is not a success, and a group that failed says nothing.
    let groups = [group(&problems[0], &[1.0, 0.0]), group(&problems[20], &[0.4, 0.9])];
    draw.record(&groups, &mut position);
    draw.record(&[Group { problem: problems[70].id.clone(), members: Vec::new() }], &mut position);
    let metrics = draw.metrics(&position);
    assert_eq!(metrics.get("rate/count/1"), Some(0.5));
    assert_eq!(metrics.get("rate/count/2"), Some(0.375));
    assert_eq!(metrics.get("rate/join/5"), None);
    for _ in 0..6 {
        draw.record(&[group(&problems[70], &[0.0, 0.0])], &mut position);
    }
    assert!(!INFORMATIVE.contains(&position.buckets["join/5"].rate));
    // A right answer that earned nothing, because its episode reached a limit, is no pass.
    let mut limited = group(&problems[70], &[1.0, 1.0]);
    limited.members.iter_mut().for_each(|member| member.reward = Some(0.0));
    let before = position.buckets["join/5"].rate;
    draw.record(&[limited], &mut position);
    assert!(position.buckets["join/5"].rate < before);
}

#[test]
fn uniform_draws_are_those_of_the_shuffled_order_and_record_nothing() {
    let problems = problems();
    let iter = problems.iter().map(|problem| &**problem);
    let draw = ProblemDraw::new(7, config::Draw::Uniform, 1.0, iter);
    let mut position = Position::default();
    let drawn = draw.draw(8, problems.len(), &mut HashSet::new(), &mut position);
    assert_eq!(drawn, ShuffledIndices::new(7, 120).get(0, 8));
    draw.record(&[group(&problems[0], &[1.0])], &mut position);
    assert_eq!((position.drawn, position.buckets.len()), (8, 0));
}

#[test]
fn subjects_without_end_share_a_bucket() {
    let many: Vec<_> = (0..1000).map(|id| problem(id, &format!("own-{id}"), 1)).collect();
    let draw = by_rate(&many);
    assert_eq!(draw.buckets.len(), MAX_BUCKETS);
    assert_eq!(draw.buckets[OTHERS].len(), 1000 - (MAX_BUCKETS - 1));
    assert_eq!(draw.draw(1000, 1000, &mut HashSet::new(), &mut Position::default()).len(), 1000);
}
