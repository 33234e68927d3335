//! Training steps against their mathematical definition, on networks of a few thousand parameters.

use tch::{Kind, Tensor};

use super::*;
use crate::{grpo::Grpo, rloo::Rloo, test_network::tiny};

fn net() -> Network {
    tiny(2, 32)
}

fn trainer(tokens_per_pass: usize) -> Trainer {
    Trainer::new(net(), AdamW::default(), tokens_per_pass, Checkpointing::Off).unwrap()
}

/// Rows of several lengths, with positive and negative advantages, a few trained tokens each.
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

fn policy_loss(objective: &dyn Objective) -> LossKind<'_> {
    LossKind::Policy { objective, importance: None }
}

fn weights(trainer: &Trainer) -> Vec<f32> {
    let all = trainer.state().unwrap().master;
    all.iter().flat_map(|(_, tensor)| Vec::<f32>::try_from(tensor.view([-1])).unwrap()).collect()
}

/// The most by which weights differ.
fn distance(one: &Trainer, other: &Trainer) -> f32 {
    let pairs = weights(one).into_iter().zip(weights(other));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn adding_up_over_passes_is_one_big_batch() {
    let rloo = Rloo::default();
    let (mut whole, mut parts) = (trainer(1000), trainer(1));
    let a = whole.step(&rows(), 1e-3, policy_loss(&rloo)).unwrap();
    let b = parts.step(&rows(), 1e-3, policy_loss(&rloo)).unwrap();
    assert_eq!((a.trained_tokens, a.skipped), (b.trained_tokens, None));
    assert_eq!((a.computed_tokens, b.computed_tokens), (39, 39), "nothing is padded");
    assert!((a.loss - b.loss).abs() < 1e-6, "{a:?} {b:?}");
    assert!((a.grad_norm - b.grad_norm).abs() < 1e-4 * a.grad_norm, "{a:?} {b:?}");
    assert!(distance(&whole, &parts) < 1e-5);
}

#[test]
fn gradients_of_parts_that_come_one_after_another_are_those_of_all() {
    let rloo = Rloo::default();
    let (mut whole, mut parts) = (trainer(1000), trainer(1000));
    let a = whole.step(&rows(), 1e-3, policy_loss(&rloo)).unwrap();
    // What an abandoned step has left does not count.
    let mut abandoned = Gradients::default();
    parts.accumulate(&mut abandoned, rows(), policy_loss(&rloo)).unwrap();
    let mut gradients = Gradients::default();
    for mut row in rows() {
        row.weight *= 50.0;
        parts.accumulate(&mut gradients, vec![row], policy_loss(&rloo)).unwrap();
    }
    let b = parts.step_with(&gradients, 0.02, 1e-3).unwrap();
    assert_eq!((a.trained_tokens, a.computed_tokens), (b.trained_tokens, b.computed_tokens));
    let close = |one: f64, other: f64| (one - other).abs() < 1e-5 * other.abs().max(1e-2);
    assert!(close(a.loss, b.loss) && close(a.entropy, b.entropy), "{a:?} {b:?}");
    assert!(close(a.grad_norm, b.grad_norm), "{a:?} {b:?}");
    assert!(distance(&whole, &parts) < 1e-5);
}

/// The episodes of groups, as a rollout gives them: a system prompt in common, a prompt per group, first responses in
/// common, a second segment, a masked member, equal members.
fn groups() -> Vec<Row> {
    let row = |group: u32, prompt: u32, text: &[u32], advantage: f64| {
        let system = (0..20).map(|at| at * 3 % 32);
        let tokens = system.chain((0..prompt).map(|at| (at * 5 + group) % 32));
        let tokens: Vec<u32> = tokens.chain(text.iter().copied()).collect();
        let trained = (0..tokens.len()).map(|at| at as u32 >= 20 + prompt && at % 3 != 1).collect();
        let sampler = (0..tokens.len()).map(|at| -3.0 - (at % 4) as f32 / 5.0).collect();
        Row { tokens, trained, sampler, advantage, weight: 0.2, ..Row::default() }
    };
    let first = [3, 4, 5, 6, 7, 8, 9, 10, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2];
    let after = |text: &[u32]| [&first, text].concat();
    let mut rows = vec![
        row(1, 20, &after(&[3, 4, 5, 6, 7]), 1.0),
        row(1, 20, &after(&[3, 4, 9]), -0.5),
        row(1, 20, &after(&[3, 4, 9]), -0.75),
        row(1, 20, &[8, 1, 2, 2, 2, 2, 2, 2, 1, 0, 4], 0.25),
        // An episode that ended where others went on.
        row(1, 20, &first, 0.75),
        // The second segment of an episode: its conversation was rewritten.
        row(1, 6, &[30, 31, 30, 31], 0.25),
        row(2, 20, &[1, 5], 0.5),
        row(2, 20, &[2, 5], -0.5),
        row(3, 4, &[9, 9, 9, 9], 0.3),
        row(4, 9, &[7, 7, 7, 7], 0.6),
    ];
    rows[9].trained = vec![false; rows[9].tokens.len()];
    rows
}

#[test]
fn rows_that_share_a_prompt_give_the_step_of_rows_that_do_not() {
    let rloo = Rloo::default();
    let rows = groups();
    let (mut shared, mut alone) = (trainer(1000), trainer(1));
    let loss =
        LossKind::Policy { objective: &rloo, importance: Some(ImportanceSampling { cap: 2.0 }) };
    let (a, b) = (shared.step(&rows, 1e-3, loss).unwrap(), alone.step(&rows, 1e-3, loss).unwrap());
    assert_eq!((a.trained_tokens, a.skipped), (b.trained_tokens, None));
    // The system prompt, the prompts and the first response once. Branches close to each other are one.
    let ends = (5 + 3 + 3 + 11) + (6 + 4) + (2 + 2) + (4 + 4);
    assert_eq!(a.computed_tokens, 20 + 20 + 18 + 20 + ends, "{a:?}");
    assert!(b.computed_tokens > 2 * a.computed_tokens, "{a:?} {b:?}");
    let close = |one: f64, other: f64| (one - other).abs() < 1e-5 * other.abs().max(1e-2);
    assert!(close(a.loss, b.loss) && close(a.grad_norm, b.grad_norm), "{a:?} {b:?}");
    assert!(close(a.entropy, b.entropy) && close(a.kl_to_sampler, b.kl_to_sampler), "{a:?} {b:?}");
    assert!(distance(&shared, &alone) < 1e-5);
    let (one, other) = (shared.score(&rows).unwrap(), alone.score(&rows).unwrap());
    let pairs = one.iter().flatten().zip(other.iter().flatten());
    assert!(pairs.clone().all(|(one, other)| (one - other).abs() < 1e-4));
    assert_eq!(one.len(), rows.len());
}

#[test]
fn the_step_of_one_batch_is_the_policy_gradient() {
    // With the ratio at 1 the gradient is that of -(1/N) sum A log pi, whatever the clips are.
    let rows = rows();
    let net = net();
    let alone: Vec<PlannedRow> = (0..rows.len()).map(|row| PlannedRow { row, shared: 0 }).collect();
    let batch = to_batch(&net, &rows, &alone).unwrap();
    let by_hand = |scored: &Scored| {
        let advantages: Vec<f32> = rows
            .iter()
            .flat_map(|row| {
                std::iter::repeat_n((row.advantage * row.weight) as f32, row.trained_tokens())
            })
            .collect();
        Ok(-(&scored.logprob * Tensor::from_slice(&advantages)).sum(Kind::Float))
    };
    net.accumulate(&batch, 1.0, Checkpointing::Off, by_hand).unwrap();
    let trainable = net.trainable();
    let squares = trainable.iter().map(|(_, tensor)| {
        let gradient = tensor.grad();
        if gradient.defined() { gradient.square().sum(Kind::Double).double_value(&[]) } else { 0.0 }
    });
    let wanted = squares.sum::<f64>().sqrt();
    let stats = trainer(1000).step(&rows, 1e-3, policy_loss(&Rloo::default())).unwrap();
    assert!((stats.grad_norm - wanted).abs() < 1e-4 * wanted, "{} {wanted}", stats.grad_norm);
    assert_eq!(stats.clip_fraction, 0.0);
}

#[test]
fn old_scores_of_the_same_weights_change_nothing() {
    let rloo = Rloo::default();
    let (mut plain, mut recomputed) = (trainer(1000), trainer(1000));
    plain.step(&rows(), 1e-3, policy_loss(&rloo)).unwrap();
    let mut rows = rows();
    let scores = recomputed.score(&rows).unwrap();
    for (row, old) in rows.iter_mut().zip(scores) {
        assert!(
            old.iter().zip(&row.trained).skip(1).all(|(score, stats)| (*score < 0.0) == *stats)
        );
        row.old = old;
    }
    recomputed.step(&rows, 1e-3, policy_loss(&rloo)).unwrap();
    assert!(distance(&plain, &recomputed) < 1e-6);
}

#[test]
fn another_network_scores_the_same_rows() {
    let mut trainer = trainer(1000);
    let own = trainer.score(&rows()).unwrap();
    assert_eq!(trainer.score_with(&net(), &rows()).unwrap(), own);
    trainer.step(&rows(), 1e-2, policy_loss(&Rloo::default())).unwrap();
    assert_eq!(trainer.score_with(&net(), &rows()).unwrap(), own);
    assert_ne!(trainer.score(&rows()).unwrap(), own);
}

#[test]
fn checking_memory_trains_nothing() {
    let rloo = Rloo::default();
    let (mut checked, mut plain) = (trainer(1000), trainer(1000));
    checked.check_memory(64, policy_loss(&rloo)).unwrap();
    assert_eq!(weights(&checked), weights(&plain));
    for trainer in [&mut checked, &mut plain] {
        trainer.step(&rows(), 1e-3, policy_loss(&rloo)).unwrap();
    }
    assert_eq!(weights(&checked), weights(&plain));
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

    fn surrogate(&self) -> crate::Surrogate {
        Rloo::default().0
    }

    fn loss(&self, logprobs: &Logprobs<'_>, advantage: &Tensor) -> Result<Tensor, TchError> {
        use std::sync::atomic::Ordering::Relaxed;
        match self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Err(TchError::Torch("CUDA out of memory".into())),
            Err(_) => Rloo::default().loss(logprobs, advantage),
        }
    }
}

#[test]
fn a_loss_that_finds_no_memory_is_tried_with_fewer_tokens() {
    let step = |times: u32| {
        let mut trainer = trainer(40);
        let greedy = Greedy(times.into());
        trainer.step(&rows(), 1e-3, policy_loss(&greedy)).map(|stats| (stats, trainer))
    };
    let (plain, one) = step(0).unwrap();
    let (retried, two) = step(2).unwrap();
    assert!((plain.loss - retried.loss).abs() < 1e-6 && distance(&one, &two) < 1e-5);
    assert_eq!(retried.computed_tokens, plain.computed_tokens);
    let error = step(9).err().unwrap();
    assert!(matches!(error, StepError::OutOfMemory { tokens: 14, .. }), "{error}");
}

#[test]
fn memory_that_runs_out_while_scoring_loses_no_gradients() {
    let rloo = Rloo::default();
    let step = |runs_out: bool| {
        let mut trainer = trainer(40);
        let mut gradients = Gradients::default();
        let (first, second) = (rows()[..2].to_vec(), rows()[2..].to_vec());
        trainer.accumulate(&mut gradients, first, policy_loss(&rloo)).unwrap();
        let mut left = u32::from(runs_out);
        trainer
            .with_smaller_passes(&second, |_, _| match std::mem::take(&mut left) {
                0 => Ok(()),
                _ => Err(StepError::Torch(TchError::Torch("CUDA out of memory".into()))),
            })
            .unwrap();
        trainer.accumulate(&mut gradients, second, policy_loss(&rloo)).unwrap();
        trainer.step_with(&gradients, 1.0, 1e-3).unwrap();
        trainer
    };
    assert!(distance(&step(false), &step(true)) < 1e-6);
}

#[test]
fn second_steps_on_the_same_batch_are_clipped() {
    let rloo = Rloo::default();
    let mut trainer = trainer(1000);
    let mut rows = rows();
    let scores = trainer.score(&rows).unwrap();
    rows.iter_mut().zip(scores).for_each(|(row, old)| row.old = old);
    let clip_fraction: Vec<f64> = (0..30)
        .map(|_| trainer.step(&rows, 1e-2, policy_loss(&rloo)).unwrap().clip_fraction)
        .collect();
    assert_eq!(clip_fraction[0], 0.0);
    assert!(clip_fraction[29] > 0.1, "{clip_fraction:?}");
}

#[test]
fn supervised_loss_falls_and_masked_rows_train_nothing() {
    let mut trainer = trainer(1000);
    let mut rows = rows();
    let tokens: usize = rows.iter().map(Row::trained_tokens).sum();
    rows.iter_mut().for_each(|row| row.weight = 1.0 / tokens as f64);
    let first = trainer.step(&rows, 1e-2, LossKind::Supervised).unwrap();
    assert!((first.loss - 32f64.ln()).abs() < 0.2, "{first:?}");
    let mut last = first.loss;
    for _ in 0..60 {
        last = trainer.step(&rows, 1e-2, LossKind::Supervised).unwrap().loss;
    }
    assert!(last < 0.3, "{last}");
    let nothing: Vec<Row> = rows
        .iter()
        .map(|row| Row { trained: vec![false; row.tokens.len()], ..row.clone() })
        .collect();
    let before = weights(&trainer);
    assert!(trainer.step(&nothing, 1e-2, LossKind::Supervised).unwrap().skipped.is_some());
    assert_eq!(before, weights(&trainer));
}

#[test]
fn a_loss_that_is_not_finite_changes_nothing_and_is_named() {
    let mut trainer = trainer(1000);
    let before = weights(&trainer);
    let mut rows = rows();
    rows[1].advantage = f64::NAN;
    let stats = trainer.step(&rows, 1e-3, policy_loss(&Rloo::default())).unwrap();
    assert_eq!(stats.skipped, Some("the loss is not finite"));
    assert_eq!(before, weights(&trainer));
    let stats = trainer.step(&super::tests::rows(), 1e-3, policy_loss(&Rloo::default())).unwrap();
    assert_eq!(stats.skipped, None, "and the next is taken");
    assert!(stats.grad_norm.is_finite());
}

#[test]
fn importance_weights_are_capped() {
    let rloo = Rloo::default();
    let step = |cap: Option<f64>| {
        let importance = cap.map(|cap| ImportanceSampling { cap });
        let loss_kind = LossKind::Policy { objective: &rloo, importance };
        trainer(1000).step(&rows(), 1e-3, loss_kind).unwrap()
    };
    // The sampler's -3.4 lies close to ln 32, so that weights lie close to 1.
    let (without, with) = (step(None), step(Some(2.0)));
    assert!((without.loss - with.loss).abs() < 0.2 && without.loss != with.loss);
    assert!(with.kl_to_sampler > 0.0 && with.kl_to_sampler < 0.1, "{with:?}");
    let mut unlikely = rows();
    unlikely.iter_mut().for_each(|row| row.sampler = vec![-50.0; row.tokens.len()]);
    let loss_kind =
        LossKind::Policy { objective: &rloo, importance: Some(ImportanceSampling { cap: 2.0 }) };
    let bounded = trainer(1000).step(&unlikely, 1e-3, loss_kind).unwrap();
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
    let stats = trainer(1000).step(&rows, 1e-3, policy_loss(&grpo)).unwrap();
    assert!(stats.loss > 0.0 && stats.grad_norm > 0.0, "{stats:?}");
}

#[test]
fn importance_does_not_weight_the_pull_of_the_reference() {
    let grpo = Grpo { kl: 0.1, ..Grpo::default() };
    let mut rows = rows();
    rows.iter_mut().for_each(|row| {
        row.advantage = 0.0;
        row.reference = vec![-1.0; row.tokens.len()];
        row.sampler = vec![-50.0; row.tokens.len()];
    });
    let step = |importance| {
        let loss = LossKind::Policy { objective: &grpo, importance };
        trainer(1000).step(&rows, 1e-3, loss).unwrap().loss
    };
    assert_eq!(step(None), step(Some(ImportanceSampling { cap: 2.0 })));
}

#[test]
fn tokens_that_the_model_does_not_know_are_refused() {
    let mut rows = rows();
    rows[0].tokens[1] = 32;
    let error = trainer(1000).step(&rows, 1e-3, LossKind::Supervised).unwrap_err();
    assert!(matches!(error, StepError::Batch(BatchError::Token { token: 32, .. })), "{error}");
}
