//! Learning against what mathematics says it must do, on networks of a few thousand numbers.

use tch::{Kind, Tensor};

use super::*;
use crate::{grpo::Grpo, rloo::Rloo, tiny::tiny};

fn net() -> Net {
    tiny(2, 32)
}

fn learner(at_once: usize) -> Learner {
    Learner::new(net(), AdamW::default(), at_once, Checkpointing::Off).unwrap()
}

/// Rows of several lengths, good and bad ones, a few tokens of each learnt.
fn rows() -> Vec<Row> {
    let row = |length: usize, advantage: f64| Row {
        tokens: (0..length as u32).map(|at| (at * 7 + length as u32) % 32).collect(),
        trained: (0..length).map(|at| at > 2 && at % 4 != 0).collect(),
        sampler: vec![-3.4; length],
        advantage,
        weight: 0.25,
        ..Row::default()
    };
    vec![row(9, 1.0), row(14, -0.5), row(6, -0.5), row(11, 0.25)]
}

fn improve(objective: &dyn Objective) -> Lesson<'_> {
    Lesson::Improve { objective, importance: None }
}

fn weights(learner: &Learner) -> Vec<f32> {
    let all = learner.memory().unwrap().master;
    all.iter().flat_map(|(_, tensor)| Vec::<f32>::try_from(tensor.view([-1])).unwrap()).collect()
}

/// The most by which weights differ.
fn distance(one: &Learner, other: &Learner) -> f32 {
    let pairs = weights(one).into_iter().zip(weights(other));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn adding_up_over_passes_is_one_big_batch() {
    let rloo = Rloo::default();
    let (mut whole, mut parts) = (learner(1000), learner(1));
    let a = whole.step(&rows(), 1e-3, improve(&rloo)).unwrap();
    let b = parts.step(&rows(), 1e-3, improve(&rloo)).unwrap();
    assert_eq!((a.learnt, a.skipped), (b.learnt, None));
    assert!(a.computed > b.computed, "padding is what parts save");
    assert!((a.loss - b.loss).abs() < 1e-6, "{a:?} {b:?}");
    assert!((a.gradient - b.gradient).abs() < 1e-4 * a.gradient, "{a:?} {b:?}");
    assert!(distance(&whole, &parts) < 1e-5);
}

#[test]
fn the_step_of_one_batch_is_the_policy_gradient() {
    // With the ratio at 1 the gradient is that of -(1/N) sum A log pi, whatever the clips are.
    let rows = rows();
    let net = net();
    let batch = lay_out(&net, &rows.iter().collect::<Vec<_>>()).unwrap();
    let by_hand = |scored: &policy::Scored| {
        let advantages: Vec<f32> =
            rows.iter().map(|row| (row.advantage * row.weight) as f32).collect();
        let advantages = Tensor::from_slice(&advantages).view([-1, 1]);
        Ok(-(&scored.logprob * advantages).sum(Kind::Float))
    };
    net.accumulate(&batch, 1.0, Checkpointing::Off, by_hand).unwrap();
    let trainable = net.trainable();
    let squares = trainable.iter().map(|(_, tensor)| {
        let gradient = tensor.grad();
        if gradient.defined() { gradient.square().sum(Kind::Double).double_value(&[]) } else { 0.0 }
    });
    let wanted = squares.sum::<f64>().sqrt();
    let learnt = learner(1000).step(&rows, 1e-3, improve(&Rloo::default())).unwrap();
    assert!((learnt.gradient - wanted).abs() < 1e-4 * wanted, "{} {wanted}", learnt.gradient);
    assert_eq!(learnt.clipped, 0.0);
}

#[test]
fn old_scores_of_the_same_weights_change_nothing() {
    let rloo = Rloo::default();
    let (mut plain, mut recomputed) = (learner(1000), learner(1000));
    plain.step(&rows(), 1e-3, improve(&rloo)).unwrap();
    let mut rows = rows();
    let scores = recomputed.score(&rows).unwrap();
    for (row, old) in rows.iter_mut().zip(scores) {
        assert!(
            old.iter().zip(&row.trained).skip(1).all(|(score, learnt)| (*score < 0.0) == *learnt)
        );
        row.old = old;
    }
    recomputed.step(&rows, 1e-3, improve(&rloo)).unwrap();
    assert!(distance(&plain, &recomputed) < 1e-6);
}

#[test]
fn another_network_scores_the_same_rows() {
    let mut learner = learner(1000);
    let own = learner.score(&rows()).unwrap();
    assert_eq!(learner.score_by(&net(), &rows()).unwrap(), own);
    learner.step(&rows(), 1e-2, improve(&Rloo::default())).unwrap();
    assert_eq!(learner.score_by(&net(), &rows()).unwrap(), own);
    assert_ne!(learner.score(&rows()).unwrap(), own);
}

#[test]
fn a_rehearsal_teaches_nothing() {
    let rloo = Rloo::default();
    let (mut rehearsed, mut plain) = (learner(1000), learner(1000));
    rehearsed.rehearse(64, improve(&rloo)).unwrap();
    assert_eq!(weights(&rehearsed), weights(&plain));
    for learner in [&mut rehearsed, &mut plain] {
        learner.step(&rows(), 1e-3, improve(&rloo)).unwrap();
    }
    assert_eq!(weights(&rehearsed), weights(&plain));
}

/// An algorithm whose loss wants more memory than there is, the first few times.
struct Greedy(std::sync::atomic::AtomicU32);

impl Objective for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn advantages(&self, rewards: &[Option<f64>]) -> Vec<f64> {
        Rloo::default().advantages(rewards)
    }

    fn aggregation(&self) -> crate::Aggregation {
        Rloo::default().aggregation
    }

    fn loss(&self, scores: &Scores<'_>, advantage: &Tensor) -> Result<Tensor, TchError> {
        use std::sync::atomic::Ordering::Relaxed;
        match self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Err(TchError::Torch("CUDA out of memory".into())),
            Err(_) => Rloo::default().loss(scores, advantage),
        }
    }

    fn clip(&self) -> crate::Clip {
        Rloo::default().clip
    }
}

#[test]
fn a_loss_that_finds_no_memory_is_tried_with_fewer_tokens() {
    let step = |times: u32| {
        let mut learner = learner(40);
        let greedy = Greedy(times.into());
        learner.step(&rows(), 1e-3, improve(&greedy)).map(|learnt| (learnt, learner))
    };
    let (plain, one) = step(0).unwrap();
    let (retried, two) = step(2).unwrap();
    assert!((plain.loss - retried.loss).abs() < 1e-6 && distance(&one, &two) < 1e-5);
    assert!(retried.computed < plain.computed, "{retried:?} {plain:?}");
    let error = step(9).err().unwrap();
    assert!(matches!(error, LearnError::Memory { tokens: 14, .. }), "{error}");
}

#[test]
fn second_steps_on_the_same_batch_are_clipped() {
    let rloo = Rloo::default();
    let mut learner = learner(1000);
    let mut rows = rows();
    let scores = learner.score(&rows).unwrap();
    rows.iter_mut().zip(scores).for_each(|(row, old)| row.old = old);
    let clipped: Vec<f64> =
        (0..30).map(|_| learner.step(&rows, 1e-2, improve(&rloo)).unwrap().clipped).collect();
    assert_eq!(clipped[0], 0.0);
    assert!(clipped[29] > 0.1, "{clipped:?}");
}

#[test]
fn what_is_imitated_becomes_likelier_and_nothing_else_is_learnt() {
    let mut learner = learner(1000);
    let mut rows = rows();
    let tokens: usize = rows.iter().map(Row::learnt).sum();
    rows.iter_mut().for_each(|row| row.weight = 1.0 / tokens as f64);
    let first = learner.step(&rows, 1e-2, Lesson::Imitate).unwrap();
    assert!((first.loss - 32f64.ln()).abs() < 0.2, "{first:?}");
    let mut last = first.loss;
    for _ in 0..60 {
        last = learner.step(&rows, 1e-2, Lesson::Imitate).unwrap().loss;
    }
    assert!(last < 0.3, "{last}");
    let nothing: Vec<Row> = rows
        .iter()
        .map(|row| Row { trained: vec![false; row.tokens.len()], ..row.clone() })
        .collect();
    let before = weights(&learner);
    assert!(learner.step(&nothing, 1e-2, Lesson::Imitate).unwrap().skipped.is_some());
    assert_eq!(before, weights(&learner));
}

#[test]
fn a_loss_that_is_no_number_changes_nothing_and_is_named() {
    let mut learner = learner(1000);
    let before = weights(&learner);
    let mut rows = rows();
    rows[1].advantage = f64::NAN;
    let learnt = learner.step(&rows, 1e-3, improve(&Rloo::default())).unwrap();
    assert_eq!(learnt.skipped, Some("the loss is no number"));
    assert_eq!(before, weights(&learner));
    let learnt = learner.step(&super::tests::rows(), 1e-3, improve(&Rloo::default())).unwrap();
    assert_eq!(learnt.skipped, None, "and the next is taken");
    assert!(learnt.gradient.is_finite());
}

#[test]
fn tokens_the_sampler_found_unlikely_weigh_no_more_than_allowed() {
    let rloo = Rloo::default();
    let step = |most: Option<f64>| {
        let importance = most.map(|most| Importance { most });
        let lesson = Lesson::Improve { objective: &rloo, importance };
        learner(1000).step(&rows(), 1e-3, lesson).unwrap()
    };
    // The sampler's -3.4 lies close to ln 32, so that weights lie close to 1.
    let (without, with) = (step(None), step(Some(2.0)));
    assert!((without.loss - with.loss).abs() < 0.2 && without.loss != with.loss);
    assert!(with.divergence > 0.0 && with.divergence < 0.1, "{with:?}");
    let mut unlikely = rows();
    unlikely.iter_mut().for_each(|row| row.sampler = vec![-50.0; row.tokens.len()]);
    let lesson = Lesson::Improve { objective: &rloo, importance: Some(Importance { most: 2.0 }) };
    let bounded = learner(1000).step(&unlikely, 1e-3, lesson).unwrap();
    assert!((bounded.loss - 2.0 * without.loss).abs() < 1e-5, "{bounded:?} {without:?}");
}

#[test]
fn the_reference_pulls_where_it_is_asked_for() {
    let grpo = Grpo { kl: 0.1, ..Grpo::default() };
    let mut rows = rows();
    rows.iter_mut().for_each(|row| {
        row.advantage = 0.0;
        row.reference = vec![-1.0; row.tokens.len()];
    });
    let learnt = learner(1000).step(&rows, 1e-3, improve(&grpo)).unwrap();
    assert!(learnt.loss > 0.0 && learnt.gradient > 0.0, "{learnt:?}");
}

#[test]
fn tokens_that_the_model_does_not_know_are_refused() {
    let mut rows = rows();
    rows[0].tokens[1] = 32;
    let error = learner(1000).step(&rows, 1e-3, Lesson::Imitate).unwrap_err();
    assert!(matches!(error, LearnError::Batch(BatchError::Token { token: 32, .. })), "{error}");
}
