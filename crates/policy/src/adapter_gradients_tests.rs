//! Gradients of an adapter against those of autograd.

use tch::{Device, Kind, Tensor};

use super::*;
use crate::{
    Architecture, LoraConfig, Network, Output, Row, TARGETS, Target,
    backward::tests::{loss, same, tiny},
    noise::Noise,
};

/// A network with an adapter in which every factor matters.
fn adapted(architecture: Architecture, output: Output, targets: &[Target]) -> Network {
    let mut net = tiny(architecture, output);
    let targets = targets.to_vec();
    net.add_lora(&LoraConfig { rank: 2, alpha: 4.0, targets, seed: 5 }).unwrap();
    change(&net, 9);
    net
}

fn change(net: &Network, seed: u64) {
    let mut noise = Noise::new(seed);
    for (_, mut factor) in net.trainable() {
        let values = noise.normal(&factor.size(), 0.3, Device::Cpu, Kind::Double).unwrap();
        tch::no_grad(|| factor.copy_(&values));
    }
}

/// Rows that share some tokens with those before them, in several levels.
fn batch(net: &Network) -> TokenBatch {
    let texts: [&[u32]; 6] = [
        &[1, 5, 3, 2, 19, 0, 7],
        &[1, 5, 3, 2, 8, 8],
        &[1, 5, 3, 2, 8, 11, 4, 4],
        &[1, 5, 9],
        &[6, 2, 6, 2],
        &[6, 2, 13, 0, 1],
    ];
    let scored = [false, true, false, true, true, false, true, true];
    let mut rows: Vec<Row<'_>> = texts
        .iter()
        .map(|tokens| Row { tokens, scored: &scored[..tokens.len()], shared: 0 })
        .collect();
    for (row, shared) in rows.iter_mut().zip([0, 4, 5, 2, 0, 2]) {
        row.shared = shared;
    }
    net.batch(&rows).unwrap()
}

/// The loss and the gradients that `accumulate` leaves at the factors.
fn gradients(
    net: &Network,
    accumulate: impl FnOnce() -> TchResult<Accumulated>,
) -> (f64, Vec<(String, Tensor)>) {
    let trainable = net.trainable();
    trainable.iter().for_each(|(_, tensor)| tensor.shallow_clone().zero_grad());
    let found = accumulate().unwrap();
    let gradients = trainable.into_iter().map(|(name, tensor)| (name, tensor.grad().copy()));
    (found.loss.double_value(&[]), gradients.collect())
}

fn compare(net: &Network, gradients_of: &AdapterGradients) {
    let batch = batch(net);
    let (wanted_loss, wanted) =
        gradients(net, || net.accumulate(&batch, 0.7, Checkpointing::Off, loss));
    let largest = wanted.iter().map(|(_, tensor)| tensor.abs().max().double_value(&[]));
    assert!(largest.fold(0.0, f64::max) > 1e-3);
    for checkpointing in [Checkpointing::Off, Checkpointing::Layers] {
        let (found_loss, found) =
            gradients(net, || gradients_of.accumulate(net, &batch, 0.7, checkpointing, loss));
        assert!((found_loss - wanted_loss).abs() < 1e-9);
        same(&found, &wanted);
    }
    let [wanted, found] = [
        net.logprobs(&batch, 0.7).unwrap().logprob,
        gradients_of.logprobs(net, &batch, 0.7).unwrap().logprob,
    ];
    assert!((found - wanted).abs().max().double_value(&[]) < 1e-10);
}

#[test]
fn they_are_those_of_the_automatic_graph() {
    let some = [Target::Key, Target::Up, Target::Down];
    for (architecture, output, targets) in [
        (Architecture::Llama, Output::Own, &TARGETS[..]),
        (Architecture::Qwen2, Output::Tied, &TARGETS[..]),
        (Architecture::Qwen3, Output::Tied, &TARGETS[..]),
        (Architecture::Qwen2, Output::Own, &some[..]),
        (Architecture::Llama, Output::Tied, &[Target::Output][..]),
    ] {
        let net = adapted(architecture, output, targets);
        compare(&net, &AdapterGradients::new(&net).unwrap());
    }
}

#[test]
fn they_follow_the_adapter_after_a_refresh() {
    let net = adapted(Architecture::Qwen2, Output::Tied, &TARGETS);
    let ours = AdapterGradients::new(&net).unwrap();
    change(&net, 10);
    let stale = ours.logprobs(&net, &batch(&net), 1.0).unwrap().logprob;
    ours.refresh(&net).unwrap();
    let fresh = ours.logprobs(&net, &batch(&net), 1.0).unwrap().logprob;
    assert!((stale - fresh).abs().max().double_value(&[]) > 1e-3);
    compare(&net, &ours);
}

#[test]
fn passes_add_up() {
    let net = adapted(Architecture::Llama, Output::Own, &TARGETS);
    let ours = AdapterGradients::new(&net).unwrap();
    let batch = batch(&net);
    let pass = || ours.accumulate(&net, &batch, 1.0, Checkpointing::Off, loss);
    let (_, once) = gradients(&net, pass);
    let (_, twice) = gradients(&net, || pass().and_then(|_| pass()));
    let doubled: Vec<_> = once.into_iter().map(|(name, tensor)| (name, tensor * 2.0)).collect();
    same(&twice, &doubled);
}

#[test]
fn a_batch_with_nothing_to_score_has_none() {
    let net = adapted(Architecture::Llama, Output::Own, &TARGETS);
    let ours = AdapterGradients::new(&net).unwrap();
    let batch = net.batch(&[Row { tokens: &[1, 2], scored: &[false, false], shared: 0 }]).unwrap();
    let sum = |scored: &Scored| scored.logprob.f_sum(Kind::Double);
    let given = ours.accumulate(&net, &batch, 1.0, Checkpointing::Off, sum).unwrap();
    assert_eq!(given.loss.double_value(&[]), 0.0);
}

#[test]
fn without_kernels_small_changes_would_be_lost_in_16_bits() {
    let plain = tiny(Architecture::Llama, Output::Own);
    assert!(matches!(AdapterGradients::new(&plain), Err(AdapterGradientsError::NoAdapter)));
    let shape = plain.shape().clone();
    let mut narrow = Network::random(shape, 7, Device::Cpu, Kind::BFloat16).unwrap();
    let targets = TARGETS.to_vec();
    narrow.add_lora(&LoraConfig { rank: 2, alpha: 4.0, targets, seed: 5 }).unwrap();
    let refused = AdapterGradients::new(&narrow).map(drop);
    assert!(matches!(refused, Err(AdapterGradientsError::Kernels(_))), "{refused:?}");
}
