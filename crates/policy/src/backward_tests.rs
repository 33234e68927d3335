//! Gradients against finite differences, and every way to compute them against every other.

use tch::{Device, Kind, Tensor};

use super::Checkpointing;
use crate::batch::{BatchError, Row, TokenBatch};
use crate::head::{Head, HeadPrecision, LogitLimits, Projection, Scored};
use crate::lora::{LoraConfig, Target};
use crate::net::Network;
use crate::shape::{Architecture, Output, Scaling, Shape};

const LITTLE: LogitLimits = LogitLimits { chunk: 60, stored: 70 };

pub(crate) fn tiny(architecture: Architecture, output: Output) -> Network {
    // Other tests run meanwhile: threads would mostly wait for each other.
    tch::set_num_threads(1);
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

/// A row that shares nothing.
const fn row<'a>(tokens: &'a [u32], scored: &'a [bool]) -> Row<'a> {
    Row { tokens, scored, shared: 0 }
}

const ROWS: [Row<'static>; 2] = [
    row(&[1, 5, 3, 2, 19, 0], &[false, false, true, true, true, true]),
    row(&[4, 4, 11], &[true, true, false]),
];

fn batch(net: &Network) -> TokenBatch {
    net.batch(&ROWS).unwrap()
}

/// A loss in which every scored token has a weight of its own and a curvature.
pub(crate) fn loss(scored: &Scored) -> crate::error::TchResult<Tensor> {
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
    gradients_of(net, &batch(net), limits, checkpointing, temperature)
}

fn gradients_of(
    net: &Network,
    batch: &TokenBatch,
    limits: LogitLimits,
    checkpointing: Checkpointing,
    temperature: f64,
) -> Vec<(String, Tensor)> {
    let trainable = net.trainable();
    trainable.iter().for_each(|(_, tensor)| tensor.shallow_clone().zero_grad());
    net.accumulate_within(limits, batch, temperature, checkpointing, loss).unwrap();
    trainable.into_iter().map(|(name, tensor)| (name, tensor.grad().copy())).collect()
}

pub(crate) fn same(left: &[(String, Tensor)], right: &[(String, Tensor)]) {
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
        let (mut logprobs, mut entropies) = (Vec::new(), Vec::new());
        for row in ROWS {
            let tokens: Vec<i64> = row.tokens.iter().map(|token| i64::from(*token)).collect();
            let tokens = Tensor::from_slice(&tokens);
            let logits = net.logits(&tokens.unsqueeze(0)).unwrap().squeeze_dim(0) / 0.7;
            let before = tokens.size1().unwrap() - 1;
            let all = logits.narrow(0, 0, before).log_softmax(-1, Kind::Double);
            let next = tokens.narrow(0, 1, before).unsqueeze(-1);
            let mask = Tensor::from_slice(&row.scored[1..]);
            logprobs.push(all.gather(-1, &next, false).squeeze_dim(-1).masked_select(&mask));
            let products = all.exp() * &all;
            let entropy = -products.sum_dim_intlist([-1i64].as_slice(), false, Kind::Double);
            entropies.push(entropy.masked_select(&mask));
        }
        let (logprob, entropy) = (Tensor::cat(&logprobs, 0), Tensor::cat(&entropies, 0));
        let scored = net.logprobs(&batch(&net), 0.7).unwrap();
        assert!((&scored.logprob - &logprob).abs().max().double_value(&[]) < 1e-10);
        assert!((&scored.entropy - entropy).abs().max().double_value(&[]) < 1e-10);
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
    let batch = net.batch(&[row(&[1, 2], &[false, false])]).unwrap();
    let given = net
        .accumulate(&batch, 1.0, Checkpointing::Layers, |scored| scored.logprob.f_sum(Kind::Double))
        .unwrap();
    assert_eq!(given.loss.double_value(&[]), 0.0);
    let batch = net.batch(&[row(&[1], &[true])]).unwrap();
    assert_eq!(net.logprobs(&batch, 1.0).unwrap().logprob.size(), [0]);
}

/// Compares sequences that share what they have in common with the one before with the same sequences alone. All of
/// their tokens are scored but every fifth, of each sequence other ones.
fn compare_shared(net: &Network, texts: &[&[u8]]) {
    let tokens: Vec<Vec<u32>> =
        texts.iter().map(|text| text.iter().map(|byte| u32::from(byte % 20)).collect()).collect();
    let scored = |(at, text): (usize, &&[u8])| -> Vec<bool> {
        (0..text.len()).map(|position| !(at + position).is_multiple_of(5)).collect()
    };
    let scored: Vec<Vec<bool>> = texts.iter().enumerate().map(scored).collect();
    let alone: Vec<Row<'_>> =
        tokens.iter().zip(&scored).map(|(tokens, scored)| row(tokens, scored)).collect();
    let mut together = alone.clone();
    for at in 1..alone.len() {
        let pairs = alone[at - 1].tokens.iter().zip(alone[at].tokens);
        together[at].shared = pairs.take_while(|(before, own)| before == own).count();
    }
    let saved: usize = together.iter().map(|row| row.shared).sum();
    let (together, alone) = (net.batch(&together).unwrap(), net.batch(&alone).unwrap());
    assert_eq!((together.computed + saved, together.scored), (alone.computed, alone.scored));
    let scores = [&together, &alone].map(|batch| net.logprobs(batch, 0.7).unwrap());
    let differences = (&scores[0].logprob - &scores[1].logprob).abs();
    assert!(together.scored == 0 || differences.max().double_value(&[]) < 1e-10, "{texts:?}");
    for checkpointing in [Checkpointing::Off, Checkpointing::Layers] {
        let of = |batch| gradients_of(net, batch, LITTLE, checkpointing, 0.7);
        same(&of(&together), &of(&alone));
    }
}

#[test]
fn what_sequences_share_is_computed_once_with_the_same_result() {
    for net in nets() {
        let compare = |texts: &[&str]| {
            let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
            compare_shared(&net, &texts);
        };
        // Two groups, and one sequence that shares nothing.
        compare(&["promptABC", "promptBC", "promptCABA", "otherA", "otherB", "zz"]);
        // All but the last token is shared.
        compare(&["promptA", "promptB", "promptC"]);
        // Identical sequences, of which nothing is left, alone and beside one that goes on.
        compare(&["same", "same", "promptly", "promptly", "promptlyA"]);
        // A system prompt, problems, and first responses in common, in order and not.
        let tree = [
            "systemABCDE",
            "systemABCDEF",
            "systemABCDEFG",
            "systemABCDH",
            "systemABJ",
            "systemKL",
            "systemKLMN",
            "systemKLMN",
            "systemKLMO",
            "tail",
        ];
        compare(&tree);
        compare(&[3, 1, 0, 2, 7, 6, 9, 8, 4, 5].map(|at: usize| tree[at]));
    }
}

#[test]
fn arbitrary_trees_give_the_result_of_separate_sequences() {
    let net = tiny(Architecture::Qwen2, Output::Own);
    let mut state = 1u64;
    let mut below = |limit: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for _ in 0..40 {
        // Two different tokens, so that many begin alike; some sequences are empty.
        let mut texts: Vec<Vec<u8>> = (0..1 + below(8))
            .map(|_| (0..below(9)).map(|_| 3 + 4 * below(2) as u8).collect())
            .collect();
        texts.push(vec![3]);
        if below(2) == 0 {
            texts.sort();
        }
        compare_shared(&net, &texts.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
}

#[test]
fn sequences_share_what_they_say_they_share() {
    let net = tiny(Architecture::Llama, Output::Tied);
    let scored = [false, true, true];
    let batch = |shares: [usize; 3]| {
        let tokens: [&[u32]; 3] = [&[1, 2, 3], &[1, 4, 3], &[1, 2, 3]];
        let rows = tokens.map(|tokens| row(tokens, &scored));
        let shared = |at: usize| Row { shared: shares[at], ..rows[at] };
        net.batch(&[shared(0), shared(1), shared(2)])
    };
    assert_eq!(batch([0, 1, 1]).unwrap().computed, 7);
    assert_eq!(batch([0, 0, 1]).unwrap().computed, 8, "less than they have in common");
    // Shared tokens are those of the row before it, not of any.
    for (shares, wrong) in [([0, 2, 0], 1), ([0, 1, 2], 2), ([0, 4, 0], 1), ([1, 1, 1], 0)] {
        let error = batch(shares).unwrap_err();
        let is_named = matches!(
            error,
            BatchError::Prefix { row, shared } if row == wrong && shared == shares[wrong]
        );
        assert!(is_named, "{error}");
    }
}

#[test]
fn logits_in_single_precision_lose_less() {
    let exact = tiny(Architecture::Llama, Output::Own);
    let values = exact.parameters().unwrap();
    // The same 16-bit weights, logits in both precisions, compared with 64 bits throughout the head.
    let narrow = Network::random(exact.shape().clone(), 7, Device::Cpu, Kind::BFloat16).unwrap();
    for ((_, mut to), (_, from)) in narrow.parameters().unwrap().into_iter().zip(values) {
        to.copy_(&(from * 4.0));
    }
    let hidden =
        crate::noise::Noise::new(2).normal(&[64, 8], 3.0, Device::Cpu, Kind::BFloat16).unwrap();
    let weight = narrow.output_weight();
    let wanted =
        hidden.to_kind(Kind::Double).linear(&weight.to_kind(Kind::Double), None::<&Tensor>);
    let error = |precision| {
        let logits = Projection { weight, precision }.logits(&hidden).unwrap();
        (logits.to_kind(Kind::Double) - &wanted).abs().max().double_value(&[])
    };
    let (single, model) = (error(HeadPrecision::F32), error(HeadPrecision::Model));
    assert!(single < 1e-4 && model > 1e-2, "{single} {model}");
    let settled = narrow.with_head_precision(HeadPrecision::Model);
    assert_eq!(settled.head_precision(), HeadPrecision::Model);
}

#[test]
fn the_gradient_of_a_confident_token_is_not_rounded_away() {
    let net = tiny(Architecture::Llama, Output::Own);
    let batch = net.batch(&[row(&[1, 2], &[false, true])]).unwrap();
    // The logit of token 2 is the first number of the hidden state, all others are 0.
    let options = (Kind::BFloat16, Device::Cpu);
    let (weight, hidden) = (Tensor::zeros([20, 8], options), Tensor::zeros([2, 8], options));
    let _ = weight.get(2).get(0).fill_(1.0);
    let _ = hidden.get(0).get(0).fill_(12.0);
    let rest = 19.0 * (-12f64).exp() / (1.0 + 19.0 * (-12f64).exp());
    for stored in [0, 1000] {
        let projection = Projection { weight: &weight, precision: HeadPrecision::F32 };
        let limits = LogitLimits { chunk: 60, stored };
        let (head, scored) = Head::forward(projection, &hidden, &batch, 1.0, limits).unwrap();
        assert!((scored.logprob.double_value(&[0]) + rest).abs() < 1e-6);
        let gradient = head.backward(&Tensor::from_slice(&[1f32])).unwrap();
        let found = gradient.double_value(&[0, 0]);
        assert!((found / rest - 1.0).abs() < 0.01, "{found} instead of {rest}");
    }
}
