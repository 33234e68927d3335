//! On a GPU gradients of an adapter are computed without autograd, in 16 bits with our own kernels. They are those of
//! autograd on the CPU in 32 bits, up to rounding.

use lis_policy::{
    Accumulated, AdapterGradients, Architecture, Checkpointing, LoraConfig, Network, Row, Scored,
    Shape, TARGETS, TchResult, TokenBatch, perf,
};
use tch::{Device, Kind, Tensor};

use crate::needs::{distance, has_cuda, stir, take_gradients};

/// A named shape with fewer layers and a smaller vocabulary.
fn smaller(name: &str) -> Shape {
    let shape = perf::named_shape(name).unwrap();
    Shape { hidden: 512, intermediate: 1024, layers: 3, vocabulary: 1000, ..shape }
}

/// A network with an adapter that matters, and norms and biases that are not trivial.
fn adapted(mut net: Network) -> Network {
    for (number, (name, mut tensor)) in net.parameters().unwrap().into_iter().enumerate() {
        if name.contains("norm") || name.contains("bias") {
            stir(&mut tensor, number as f64, 0.2);
        }
    }
    let targets = TARGETS.to_vec();
    net.add_lora(&LoraConfig { rank: 8, alpha: 32.0, targets, seed: 1 }).unwrap();
    for (number, (name, mut factor)) in net.trainable().into_iter().enumerate() {
        if name.contains("lora_B") {
            stir(&mut factor, number as f64, 0.01);
        }
    }
    net
}

/// Tokens that all sequences begin with.
const COMMON: u32 = 20;

/// `groups` of sequences with a common prompt, which begin alike themselves; a third of the rest is scored.
fn texts(groups: u32, members: u32, prompt: u32, own: u32, vocabulary: u32) -> Vec<Vec<Vec<u32>>> {
    let token = |group: u32, member: u32, at: u32| match at {
        ..COMMON => at * 37 % vocabulary,
        at if at < prompt => (group * 7919 + at * 31) % vocabulary,
        _ => (group * 7919 + member * 104_729 + at * 17 + 1) % vocabulary,
    };
    let text = |group: u32, member: u32| {
        (0..prompt + own / 2 + own * member / members).map(|at| token(group, member, at)).collect()
    };
    (0..groups).map(|group| (0..members).map(|member| text(group, member)).collect()).collect()
}

fn batch(net: &Network, texts: &[Vec<Vec<u32>>], prompt: usize) -> TokenBatch {
    let longest = texts.iter().flatten().map(Vec::len).max().unwrap();
    let scored: Vec<bool> = (0..longest).map(|at| at >= prompt && at % 3 == 0).collect();
    let mut rows = Vec::new();
    for group in texts {
        for (member, tokens) in group.iter().enumerate() {
            let shared = match member {
                0 if rows.is_empty() => 0,
                0 => COMMON as usize,
                _ => prompt,
            };
            rows.push(Row { tokens, scored: &scored[..tokens.len()], shared });
        }
    }
    net.batch(&rows).unwrap()
}

fn mean(scored: &Scored) -> TchResult<Tensor> {
    scored.logprob.f_mean(Kind::Float)
}

/// The log-probabilities and the gradients of the adapter, each in one tensor on the CPU.
fn results(net: &Network, work: impl FnOnce() -> TchResult<Accumulated>) -> [Tensor; 2] {
    let found = work().unwrap();
    [found.scored.logprob.to_device(Device::Cpu), take_gradients(net)]
}

#[test]
fn gradients_on_a_gpu_are_those_of_the_cpu() {
    if !has_cuda() {
        return;
    }
    for name in ["qwen2.5-1.5b", "smollm2-135m", "qwen3-0.6b"] {
        let shape = smaller(name);
        let texts = texts(3, 4, 50, 60, 1000);
        let on = |device, kind| adapted(Network::random(shape.clone(), 3, device, kind).unwrap());
        let cpu = on(Device::Cpu, Kind::Float);
        let reference = batch(&cpu, &texts, 50);
        let wanted = results(&cpu, || cpu.accumulate(&reference, 1.0, Checkpointing::Off, mean));
        // With our own kernels, and with libtorch's operations.
        for (kind, score_limit, gradient_limit) in
            [(Kind::BFloat16, 5e-3, 5e-2), (Kind::Float, 1e-4, 1e-3)]
        {
            let gpu = on(Device::Cuda(0), kind);
            let ours = AdapterGradients::new(&gpu).unwrap();
            let packed = batch(&gpu, &texts, 50);
            for checkpointing in [Checkpointing::Off, Checkpointing::Layers] {
                let found =
                    results(&gpu, || ours.accumulate(&gpu, &packed, 1.0, checkpointing, mean));
                let autograd = results(&gpu, || gpu.accumulate(&packed, 1.0, checkpointing, mean));
                let [scores, gradients] = [0, 1].map(|at| distance(&found[at], &wanted[at]));
                let others = [0, 1].map(|at| distance(&autograd[at], &wanted[at]));
                println!(
                    "{name} {kind:?} {checkpointing:?}: scores {scores:.2e}, gradients {gradients:.2e}; autograd {others:?}"
                );
                assert!(scores < score_limit, "{name} {kind:?}: {scores}");
                assert!(gradients < gradient_limit, "{name} {kind:?}: {gradients}");
            }
        }
        assert_eq!(shape.architecture == Architecture::Qwen3, name.starts_with("qwen3"));
    }
}
