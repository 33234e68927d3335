//! Gradients against finite differences, and every way to compute them against every other.

use tch::{Device, Kind, Tensor};

use super::Checkpointing;
use crate::batch::{Row, TokenBatch};
use crate::head::{LogitLimits, Scored};
use crate::lora::{LoraConfig, Target};
use crate::net::Network;
use crate::shape::{Architecture, Output, Scaling, Shape};

const LITTLE: LogitLimits = LogitLimits { chunk: 60, stored: 70 };

fn tiny(architecture: Architecture, output: Output) -> Network {
    let shape = Shape {
        architecture,
        hidden: 8,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        intermediate: 12,
        vocabulary: 20,
        rope_theta: 10000.0,
        rope_scaling: Scaling::None,
        norm_eps: 1e-6,
        output,
        positions: 64,
    };
    let net = Network::random(shape, 7, Device::Cpu, Kind::Double).unwrap();
    // Larger than first weights are, so that every part of the net matters; and no bias or norm is trivial.
    let mut noise = crate::noise::Noise::new(3);
    for (_, mut tensor) in net.parameters().unwrap() {
        let change = noise.normal(&tensor.size(), 0.3, Device::Cpu, Kind::Double).unwrap();
        let _ = tensor.f_add_(&change).unwrap();
    }
    net
}

fn batch(net: &Network) -> TokenBatch {
    let rows = [
        Row { tokens: &[1, 5, 3, 2, 19, 0], scored: &[false, false, true, true, true, true] },
        Row { tokens: &[4, 4, 11], scored: &[true, true, false] },
    ];
    net.batch(&rows).unwrap()
}

/// A loss in which every scored token has a weight of its own and a curvature.
fn loss(scored: &Scored) -> crate::error::TchResult<Tensor> {
    let count = scored.logprob.numel() as i64;
    let weights = Tensor::f_arange(count, (Kind::Double, Device::Cpu))?
        .f_add_scalar(1.0)?
        .f_view_as(&scored.logprob)?;
    scored
        .logprob
        .f_mul(&weights)?
        .f_sum(Kind::Double)?
        .f_add(&scored.logprob.f_exp()?.f_sum(Kind::Double)?)
}

fn gradients(
    net: &Network,
    limits: LogitLimits,
    checkpointing: Checkpointing,
    temperature: f64,
) -> Vec<(String, Tensor)> {
    let trainable = net.trainable();
    trainable.iter().for_each(|(_, tensor)| tensor.shallow_clone().zero_grad());
    net.accumulate_within(limits, &batch(net), temperature, checkpointing, loss).unwrap();
    trainable.into_iter().map(|(name, tensor)| (name, tensor.grad().copy())).collect()
}

fn same(left: &[(String, Tensor)], right: &[(String, Tensor)]) {
    assert_eq!(left.len(), right.len());
    for ((name, left), (_, right)) in left.iter().zip(right) {
        let difference = (left - right).abs().max().double_value(&[]);
        assert!(difference < 1e-9, "{name}: {difference}");
    }
}

fn nets() -> Vec<Network> {
    let mut adapted = tiny(Architecture::Llama, Output::Own);
    let targets = vec![Target::Down, Target::Query, Target::Value, Target::Output, Target::Up];
    adapted.add_lora(&LoraConfig { rank: 2, alpha: 4.0, targets, seed: 5 }).unwrap();
    let mut noise = crate::noise::Noise::new(9);
    for (_, mut factor) in adapted.trainable() {
        let values = noise.normal(&factor.size(), 0.3, Device::Cpu, Kind::Double).unwrap();
        tch::no_grad(|| factor.copy_(&values));
    }
    vec![
        tiny(Architecture::Llama, Output::Tied),
        tiny(Architecture::Qwen2, Output::Own),
        tiny(Architecture::Qwen3, Output::Tied),
        adapted,
    ]
}

#[test]
fn gradients_agree_with_finite_differences() {
    for net in nets() {
        let gradients = gradients(&net, LogitLimits::default(), Checkpointing::Off, 0.7);
        let at = || loss(&net.logprobs(&batch(&net), 0.7).unwrap()).unwrap().double_value(&[]);
        for ((name, tensor), (_, gradient)) in net.trainable().into_iter().zip(gradients) {
            let (values, gradient) = (tensor.detach().view(-1), gradient.view(-1));
            let count = values.size()[0];
            for place in [0, count / 3, count - 1] {
                let before = values.double_value(&[place]);
                let step = 1e-5;
                let _ = values.get(place).fill_(before + step);
                let above = at();
                let _ = values.get(place).fill_(before - step);
                let below = at();
                let _ = values.get(place).fill_(before);
                let expected = (above - below) / (2.0 * step);
                let found = gradient.double_value(&[place]);
                assert!(
                    (found - expected).abs() < 1e-5 * expected.abs().max(1.0),
                    "{name} {place}: {found} {expected}"
                );
            }
        }
    }
}

#[test]
fn every_way_to_compute_gives_the_same_gradients() {
    for net in nets() {
        let plain = gradients(&net, LogitLimits::default(), Checkpointing::Off, 1.0);
        let largest = plain
            .iter()
            .map(|(_, tensor)| tensor.abs().max().double_value(&[]))
            .fold(0.0, f64::max);
        assert!(largest > 1e-3);
        same(&plain, &gradients(&net, LogitLimits::default(), Checkpointing::Layers, 1.0));
        same(&plain, &gradients(&net, LITTLE, Checkpointing::Off, 1.0));
        same(&plain, &gradients(&net, LITTLE, Checkpointing::Layers, 1.0));
    }
}

#[test]
fn gradients_of_the_plain_graph_are_the_same() {
    for net in nets() {
        let ours = gradients(&net, LITTLE, Checkpointing::Layers, 0.7);
        let trainable = net.trainable();
        trainable.iter().for_each(|(_, tensor)| tensor.shallow_clone().zero_grad());
        let batch = batch(&net);
        let logits = net.logits(&batch.tokens).unwrap() / 0.7;
        let all = logits.narrow(1, 0, batch.length - 1).log_softmax(-1, Kind::Double);
        let next = batch.tokens.narrow(1, 1, batch.length - 1).unsqueeze(-1);
        let logprob =
            all.gather(-1, &next, false).squeeze_dim(-1) * batch.mask.to_kind(Kind::Double);
        let entropy = -(all.exp() * &all).sum_dim_intlist([-1i64].as_slice(), false, Kind::Double);
        let scored = net.logprobs(&batch, 0.7).unwrap();
        assert!((&scored.logprob - &logprob).abs().max().double_value(&[]) < 1e-10);
        let masked = entropy * batch.mask.to_kind(Kind::Double);
        assert!((&scored.entropy - masked).abs().max().double_value(&[]) < 1e-10);
        loss(&Scored { logprob, entropy: scored.entropy }).unwrap().backward();
        let plain: Vec<_> =
            trainable.into_iter().map(|(name, tensor)| (name, tensor.grad().copy())).collect();
        same(&ours, &plain);
    }
}

#[test]
fn batches_add_up() {
    let net = tiny(Architecture::Llama, Output::Tied);
    let once = gradients(&net, LogitLimits::default(), Checkpointing::Layers, 1.0);
    net.accumulate(&batch(&net), 1.0, Checkpointing::Off, loss).unwrap();
    for ((name, tensor), (_, once)) in net.trainable().into_iter().zip(once) {
        assert!((tensor.grad() - once * 2.0).abs().max().double_value(&[]) < 1e-9, "{name}");
    }
}

#[test]
fn a_batch_with_nothing_to_score_changes_nothing() {
    let net = tiny(Architecture::Qwen2, Output::Own);
    let batch = net.batch(&[Row { tokens: &[1, 2], scored: &[false, false] }]).unwrap();
    let given = net
        .accumulate(&batch, 1.0, Checkpointing::Layers, |scored| scored.logprob.f_sum(Kind::Double))
        .unwrap();
    assert_eq!(given.loss.double_value(&[]), 0.0);
    let batch = net.batch(&[Row { tokens: &[1], scored: &[true] }]).unwrap();
    assert_eq!(net.logprobs(&batch, 1.0).unwrap().logprob.size(), [1, 0]);
}
