//! On a GPU in 16 bits, packed sequences with shared prefixes are computed by one fused kernel, which gives the scores and
//! gradients of the CPU in 32 bits, up to rounding.

use std::time::Instant;

use lis_policy::{AttentionPath, Checkpointing, LoraConfig, Network, Row, Shape, TARGETS, perf};
use tch::{Device, Kind, Tensor};

use crate::needs::{distance, has_cuda, take_gradients};

/// Qwen2.5-1.5B with fewer layers and a smaller vocabulary, and an adapter that matters.
fn small(device: Device, kind: Kind) -> Network {
    let shape = perf::named_shape("qwen2.5-1.5b").unwrap();
    let shape = Shape { hidden: 512, intermediate: 1024, layers: 2, vocabulary: 1000, ..shape };
    adapted(Network::random(shape, 3, device, kind).unwrap())
}

fn adapted(mut net: Network) -> Network {
    let targets = TARGETS.to_vec();
    net.add_lora(&LoraConfig { rank: 8, alpha: 32.0, targets, seed: 1 }).unwrap();
    for (number, (name, mut factor)) in net.trainable().into_iter().enumerate() {
        if name.contains("lora_B") {
            let count = factor.numel() as i64;
            let waves = Tensor::arange(count, (Kind::Float, net.device())) * 0.7 + number as f64;
            let waves = (waves.sin() * 0.01).view(factor.size().as_slice());
            tch::no_grad(|| factor.copy_(&waves));
        }
    }
    net
}

/// How many tokens each part of a sequence has.
#[derive(Clone, Copy)]
struct Lengths {
    system: u32,
    prompt: u32,
    first: u32,
    own: u32,
}

/// Sequences that begin alike: their tokens, which of them are scored, and how many are those of the one before.
struct Texts(Vec<(Vec<u32>, Vec<bool>, usize)>);

impl Texts {
    /// Groups of `members` sequences: a system prompt that all share, a prompt that the members of a group share, a first
    /// response that each two of them share, then tokens of their own. Two thirds of what follows the prompts is scored.
    fn new(groups: u32, members: u32, lengths: Lengths, vocabulary: u32) -> Self {
        let Lengths { system, prompt, first, own } = lengths;
        let prompted = system + prompt;
        let member = |group: u32, member: u32| {
            // Lengths differ, as those of episodes do.
            let length = prompted + first + own / 2 + own * (member + 1) / (members + 1);
            let token = |at: u32| match at {
                at if at < system => at * 13,
                at if at < prompted => group * 7919 + at * 31 + 1,
                at if at < prompted + first => group * 7919 + member / 2 * 3571 + at * 19 + 2,
                at => group * 7919 + member * 104_729 + at * 17 + 3,
            };
            let tokens: Vec<u32> = (0..length).map(|at| token(at) % vocabulary).collect();
            let scored = (0..length).map(|at| at >= prompted && !at.is_multiple_of(3)).collect();
            let shared = match (group, member) {
                (0, 0) => 0,
                (_, 0) => system,
                (_, odd) if odd % 2 == 1 => prompted + first,
                _ => prompted,
            };
            (tokens, scored, shared as usize)
        };
        let members = |group: u32| (0..members).map(move |at| member(group, at));
        Self((0..groups).flat_map(members).collect())
    }

    fn rows(&self, share: bool) -> Vec<Row<'_>> {
        let rows = self.0.iter().map(|(tokens, scored, shared)| {
            let shared = if share { *shared } else { 0 };
            Row { tokens, scored, shared }
        });
        rows.collect()
    }
}

/// The log-probabilities and the gradients of the adapter, all in one tensor each, on the CPU.
fn results(net: &Network, rows: &[Row<'_>]) -> (Tensor, Tensor) {
    let batch = net.batch(rows).unwrap();
    assert_eq!(batch.attention_path(), expected_path(net));
    let loss = |scored: &lis_policy::Scored| scored.logprob.f_mean(Kind::Float);
    let found = net.accumulate(&batch, 1.0, Checkpointing::Off, loss).unwrap();
    (found.scored.logprob.to_device(Device::Cpu), take_gradients(net))
}

/// How attention has to be computed: with the fused kernel on a GPU.
fn expected_path(net: &Network) -> AttentionPath {
    let why = net.packed_attention_disabled_reason();
    assert_eq!(why.is_none(), net.device().is_cuda(), "{why:?}");
    if net.device().is_cuda() { AttentionPath::Packed } else { AttentionPath::Each }
}

#[test]
fn the_fused_kernel_gives_the_numbers_of_the_cpu() {
    if !has_cuda() {
        return;
    }
    let lengths = Lengths { system: 40, prompt: 50, first: 20, own: 40 };
    let texts = Texts::new(3, 4, lengths, 1000);
    let wanted = results(&small(Device::Cpu, Kind::Float), &texts.rows(false));
    let gpu = small(Device::Cuda(0), Kind::BFloat16);
    for share in [false, true] {
        let found = results(&gpu, &texts.rows(share));
        let (scores, gradients) = (distance(&found.0, &wanted.0), distance(&found.1, &wanted.1));
        println!("share {share}: scores differ by {scores:.2e}, gradients by {gradients:.2e}");
        assert!(scores < 5e-3 && gradients < 5e-2, "{share}: {scores} {gradients}");
    }
}

#[test]
fn on_the_cpu_what_is_shared_is_computed_once_with_the_same_numbers() {
    let lengths = Lengths { system: 20, prompt: 10, first: 5, own: 10 };
    let texts = Texts::new(2, 4, lengths, 1000);
    let net = small(Device::Cpu, Kind::Float);
    let computed = |share| net.batch(&texts.rows(share)).unwrap().computed;
    assert_eq!(computed(false) - computed(true), 7 * 20 + 6 * 10 + 4 * 5);
    let [alone, shared] = [false, true].map(|share| results(&net, &texts.rows(share)));
    let (scores, gradients) = (distance(&shared.0, &alone.0), distance(&shared.1, &alone.1));
    assert!(scores < 1e-5 && gradients < 1e-4, "{scores} {gradients}");
}

#[test]
fn on_the_cpu_the_reason_is_reported() {
    let why = small(Device::Cpu, Kind::Float).packed_attention_disabled_reason().unwrap();
    assert!(why.contains("not on a CUDA device"), "{why}");
}

#[test]
fn a_real_network_computes_what_is_shared_once() {
    if !has_cuda() {
        return;
    }
    let shape = perf::named_shape("qwen2.5-1.5b").unwrap();
    let gpu = adapted(perf::random(shape, Device::Cuda(0), Kind::BFloat16).unwrap());
    // 4 problems of 8 episodes each: an eighth of a step of 256 episodes of 2,000 tokens, half of them prompt.
    let lengths = Lengths { system: 600, prompt: 400, first: 100, own: 900 };
    let texts = Texts::new(4, 8, lengths, 151_936);
    let [(alone, separate), (shared, together)] = [false, true].map(|share| {
        let begun = Instant::now();
        let (mut computed, mut losses) = (0, Vec::new());
        let mut rows = texts.rows(share);
        for group in rows.chunks_mut(8) {
            // The groups are in passes of their own.
            group[0].shared = 0;
            let batch = gpu.batch(group).unwrap();
            assert_eq!(batch.attention_path(), AttentionPath::Packed);
            let loss = |scored: &lis_policy::Scored| scored.logprob.f_mean(Kind::Float);
            let found = gpu.accumulate(&batch, 1.0, Checkpointing::Off, loss).unwrap();
            losses.push(found.loss.double_value(&[]));
            computed += batch.computed;
        }
        tch::Cuda::synchronize(0);
        let seconds = begun.elapsed().as_secs_f64();
        println!("share {share}: {computed} tokens in {seconds:.2} s, warm-up included");
        (computed, losses)
    });
    assert_eq!(alone - shared, 4 * (7 * 1000 + 4 * 100), "prompts and first responses once");
    let worst = separate.iter().zip(&together).map(|(one, other)| (one - other).abs());
    assert!(worst.fold(0.0, f64::max) < 0.02, "{separate:?} {together:?}");
}
