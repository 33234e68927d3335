//! On a GPU in 16 bits, gradients of an adapter are computed without an automatic graph, with our own kernels. They are
//! those of the automatic graph on the CPU in 32 bits, up to rounding.

use std::time::Instant;

use lis_policy::{
    Accumulated, AdapterGradients, Architecture, Checkpointing, LoraConfig, Network, Row, Scored,
    Shape, TARGETS, TchResult, TokenBatch, perf,
};
use tch::{Device, Kind, Tensor};

use crate::needs::has_cuda;

/// A named shape with fewer layers and a smaller vocabulary.
fn smaller(name: &str) -> Shape {
    let shape = perf::named_shape(name).unwrap();
    Shape { hidden: 512, intermediate: 1024, layers: 3, vocabulary: 1000, ..shape }
}

/// A network with an adapter that matters, and norms and biases that are not trivial.
fn adapted(mut net: Network) -> Network {
    for (number, (name, mut tensor)) in net.parameters().unwrap().into_iter().enumerate() {
        if name.contains("norm") || name.contains("bias") {
            add_waves(&mut tensor, number, 0.2);
        }
    }
    let targets = TARGETS.to_vec();
    net.add_lora(&LoraConfig { rank: 8, alpha: 32.0, targets, seed: 1 }).unwrap();
    for (number, (name, mut factor)) in net.trainable().into_iter().enumerate() {
        if name.contains("lora_B") {
            add_waves(&mut factor, number, 0.01);
        }
    }
    net
}

fn add_waves(tensor: &mut Tensor, phase: usize, height: f64) {
    let count = tensor.numel() as i64;
    let waves = (Tensor::arange(count, (Kind::Float, tensor.device())) * 0.7 + phase as f64).sin();
    let waves = (waves * height).view(tensor.size().as_slice()).to_kind(tensor.kind());
    tch::no_grad(|| {
        let _ = tensor.f_add_(&waves).unwrap();
    });
}

/// `groups` of sequences with a common prompt, of which a third of the rest is scored.
fn texts(groups: u32, members: u32, prompt: u32, own: u32, vocabulary: u32) -> Vec<Vec<Vec<u32>>> {
    let token = |group: u32, member: u32, at: u32| match at < prompt {
        true => (group * 7919 + at * 31) % vocabulary,
        false => (group * 7919 + member * 104_729 + at * 17 + 1) % vocabulary,
    };
    let text = |group: u32, member: u32| {
        (0..prompt + own / 2 + own * member / members).map(|at| token(group, member, at)).collect()
    };
    (0..groups).map(|group| (0..members).map(|member| text(group, member)).collect()).collect()
}

fn batch(net: &Network, texts: &[Vec<Vec<u32>>], prompt: usize) -> TokenBatch {
    let longest = texts.iter().flatten().map(Vec::len).max().unwrap();
    let scored: Vec<bool> = (0..longest).map(|at| at >= prompt && at % 3 == 0).collect();
    let rows: Vec<Row<'_>> = texts
        .iter()
        .flat_map(|texts| texts.iter().enumerate())
        .map(|(at, tokens)| Row {
            tokens,
            scored: &scored[..tokens.len()],
            shared: if at == 0 { 0 } else { prompt },
        })
        .collect();
    net.batch(&rows).unwrap()
}

fn mean(scored: &Scored) -> TchResult<Tensor> {
    scored.logprob.f_mean(Kind::Float)
}

/// The log-probabilities and the gradients of the adapter, each in one tensor on the CPU.
fn results(net: &Network, work: impl FnOnce() -> TchResult<Accumulated>) -> [Tensor; 2] {
    let found = work().unwrap();
    let gradients: Vec<Tensor> = net
        .trainable()
        .into_iter()
        .map(|(_, mut factor)| {
            let gradient = factor.grad().to_kind(Kind::Float).to_device(Device::Cpu).copy();
            factor.zero_grad();
            gradient.view([-1])
        })
        .collect();
    [found.scored.logprob.to_device(Device::Cpu), Tensor::cat(&gradients, 0)]
}

/// The distance of two vectors, relative to the length of the second.
fn distance(one: &Tensor, other: &Tensor) -> f64 {
    ((one - other).norm() / other.norm()).double_value(&[])
}

#[test]
fn our_own_kernels_give_the_gradients_of_the_cpu() {
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
        let gpu = on(Device::Cuda(0), Kind::BFloat16);
        let ours = AdapterGradients::new(&gpu).unwrap();
        let packed = batch(&gpu, &texts, 50);
        for checkpointing in [Checkpointing::Off, Checkpointing::Layers] {
            let found = results(&gpu, || ours.accumulate(&gpu, &packed, 1.0, checkpointing, mean));
            let graph = results(&gpu, || gpu.accumulate(&packed, 1.0, checkpointing, mean));
            let [scores, gradients] = [0, 1].map(|at| distance(&found[at], &wanted[at]));
            let [graph_scores, graph_gradients] =
                [0, 1].map(|at| distance(&graph[at], &wanted[at]));
            println!(
                "{name} {checkpointing:?}: scores {scores:.2e} (graph {graph_scores:.2e}), gradients {gradients:.2e} \
                 (graph {graph_gradients:.2e})"
            );
            assert!(scores < 5e-3 && gradients < 5e-2, "{name}: {scores} {gradients}");
        }
        assert_eq!(shape.architecture == Architecture::Qwen3, name.starts_with("qwen3"));
    }
}

#[test]
fn a_real_network_is_faster_than_the_automatic_graph() {
    if !has_cuda() {
        return;
    }
    let shape = perf::named_shape("qwen2.5-1.5b").unwrap();
    let gpu = adapted(perf::random(shape, Device::Cuda(0), Kind::BFloat16).unwrap());
    let ours = AdapterGradients::new(&gpu).unwrap();
    let texts = texts(2, 8, 1000, 1000, 151_936);
    let packed = batch(&gpu, &texts, 1000);
    let timed = |work: &dyn Fn() -> TchResult<Accumulated>| {
        (0..4)
            .map(|_| {
                let begun = Instant::now();
                work().unwrap();
                tch::Cuda::synchronize(0);
                begun.elapsed().as_secs_f64()
            })
            .fold(f64::INFINITY, f64::min)
    };
    let own = timed(&|| ours.accumulate(&gpu, &packed, 1.0, Checkpointing::Off, mean));
    let graph = timed(&|| gpu.accumulate(&packed, 1.0, Checkpointing::Off, mean));
    println!("{} tokens: {own:.3} s, with the automatic graph {graph:.3} s", packed.computed);
    assert!(own < graph, "{own} {graph}");
}
