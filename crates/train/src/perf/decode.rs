//! `perf --model`: decode steps of one model with conversations that are long already, and whether the sampler's
//! probabilities are those of training.

use std::{io::Write, path::Path};

use anyhow::Context;
use policy::{
    AdapterPath, CudaGraphs, LoraConfig, Network, PrefixSharing, TARGETS,
    perf::{self, Agreement, CheckSettings, Decoded, Decoding, Memory},
};
use serde_json::{Value, json};
use training::{Machine, Precision};

use super::learn::{self, Episodes};
use crate::{args::PerfArgs, progress};

/// How much larger the sampler's errors may be than those of training; both come from rounding. A merged adapter is
/// rounded once more.
const LARGEST_RATIO: f64 = 2.5;

/// Errors below this are not compared, in nats.
const SMALL: f64 = 1e-3;

/// Episodes of a measured training step: an eighth of a usual one, which takes long in plain PyTorch.
const MAX_EPISODES: usize = 32;

/// Measures, or checks, and prints.
pub(super) fn run(args: &PerfArgs, model: &str) -> anyhow::Result<()> {
    let machine = Machine::new(args.device, Precision::Auto)?;
    let mut net = network(model, machine)?;
    if let Some(rank) = args.rank {
        adapt(&mut net, rank)?;
    }
    let mut object = match args.check {
        true => check(args, &net)?,
        false => measure(args, net, machine)?,
    };
    object["machine"] = json!(machine.describe());
    object["model"] = json!(model);
    match args.json {
        true => progress::print(&object),
        false => lines(&object)?,
    }
    Ok(())
}

/// The weights of a file, or random ones of a named shape.
fn network(model: &str, machine: Machine) -> anyhow::Result<Network> {
    if let Some(shape) = perf::named_shape(model) {
        return Ok(perf::random(shape, machine.device, machine.kind)?);
    }
    let path = Path::new(model);
    anyhow::ensure!(
        path.exists(),
        "cannot find the model `{model}`: give a model file or directory, or one of the shapes {}",
        perf::SHAPES.join(", ")
    );
    Network::load(path, machine.device, machine.kind)
        .with_context(|| format!("cannot load {}", path.display()))
}

/// Adds an adapter whose effect is about that of a short training.
fn adapt(net: &mut Network, rank: u16) -> anyhow::Result<()> {
    let (rank, targets) = (i64::from(rank), TARGETS.to_vec());
    net.add_lora(&LoraConfig { rank, alpha: 32.0, targets, seed: 0 })?;
    let _guard = tch::no_grad_guard();
    for (name, mut factor) in net.trainable() {
        if name.contains("lora_B") {
            let _ = factor.f_normal_(0.0, 1e-3)?;
        }
    }
    Ok(())
}

fn measure(args: &PerfArgs, net: Network, machine: Machine) -> anyhow::Result<Value> {
    let what = Decoding {
        slots: args.slots,
        context: args.context,
        tokens: args.reply,
        cuda_graphs: super::graphs(args),
    };
    let decoded = perf::decoding(&net, &what)?;
    super::disabled("CUDA graphs are", decoded.graphs_disabled_reason.as_deref());
    super::disabled("the sampler's own kernels are", decoded.kernels_disabled_reason.as_deref());
    let shape = net.shape().clone();
    let episodes = Episodes { count: args.slots.min(MAX_EPISODES), tokens: args.context };
    let learning = match args.rank {
        Some(_) => Some(learn::measure(net, episodes, args.steps, machine)?),
        None => None,
    };
    let mut object = object(&what, &decoded);
    if let Some(python) = &args.python {
        let numbers = [
            ("--hidden", shape.hidden),
            ("--layers", shape.layers),
            ("--heads", shape.heads),
            ("--kv-heads", shape.kv_heads),
            ("--head-dim", shape.head_dim),
            ("--intermediate", shape.intermediate),
            ("--vocabulary", shape.vocabulary),
            ("--batch", args.slots as i64),
            ("--context", args.context as i64),
            ("--rank", args.rank.map_or(0, i64::from)),
            ("--episodes", episodes.count as i64),
            ("--sampled", learn::SAMPLED as i64),
            ("--train-steps", i64::from(args.steps)),
        ];
        let eager = super::eager(python, &numbers, machine)?;
        let ours = decoded.step_ms();
        for name in ["eager_step_ms", "graph_step_ms"] {
            if let Some(theirs) = eager[name].as_f64() {
                object[name.replace("step_ms", "ratio")] = json!(theirs / ours);
            }
        }
        object["eager"] = eager;
    }
    if let Some(mut learning) = learning {
        let theirs = object["eager"]["learning_step_s"].as_f64();
        if let (Some(theirs), Some(ours)) = (theirs, learning["step_s"].as_f64()) {
            learning["eager_ratio"] = json!(theirs / ours);
        }
        object["learning"] = learning;
    }
    Ok(object)
}

fn object(what: &Decoding, decoded: &Decoded) -> Value {
    json!({
        "conversations": what.slots,
        "context": what.context,
        "step_ms": decoded.step_ms(),
        "steps": decoded.steps,
        "decode_tokens_per_s": decoded.rate.per_second(),
        "prefill_tokens_per_s": decoded.prefill.per_second(),
        "refresh_ms": decoded.refresh * 1e3,
        "cuda_graphs": decoded.graphs_disabled_reason.is_none(),
        "own_kernels": decoded.kernels_disabled_reason.is_none(),
        "adapter": adapter(decoded.adapter),
    })
}

/// The name of how an adapter is applied.
fn adapter(path: AdapterPath) -> &'static str {
    match path {
        AdapterPath::None => "none",
        AdapterPath::Merged => "merged",
        AdapterPath::Factors => "factors",
    }
}

/// Compares the probabilities of the sampler with those of training.
fn check(args: &PerfArgs, net: &Network) -> anyhow::Result<Value> {
    let mut all = Vec::new();
    let mut worst = 0f64;
    let packed_attention = super::packed_attention(net);
    for (conversations, prefix_sharing, cuda_graphs, memory) in [
        (args.slots, PrefixSharing::Off, super::graphs(args), Memory::Free),
        (args.slots, PrefixSharing::On, super::graphs(args), Memory::Free),
        (args.slots, PrefixSharing::On, super::graphs(args), Memory::Scarce),
        (args.slots, PrefixSharing::On, super::graphs(args), Memory::Least),
        (3, PrefixSharing::On, CudaGraphs::Off, Memory::Free),
    ] {
        // Only pages can be evicted.
        if memory != Memory::Free && !net.device().is_cuda() {
            continue;
        }
        let slots = (conversations * 3 / 4).max(1);
        let agreement = perf::check(
            net,
            &CheckSettings {
                conversations,
                slots,
                context: args.context,
                prompt: args.context,
                turns: 3,
                tokens: args.reply,
                cuda_graphs,
                prefix_sharing,
                memory,
            },
        )?;
        let Agreement { tokens, mean, worst: largest, logprob, kl, .. } = agreement;
        let Agreement { sampler_error, training_error, evictions, path, .. } = agreement;
        let ratio = sampler_error / training_error.max(SMALL);
        worst = if ratio.is_finite() { worst.max(ratio) } else { f64::INFINITY };
        all.push(json!({
            "conversations": conversations,
            "prefixes": if prefix_sharing == PrefixSharing::On { "shared" } else { "separate" },
            "memory": match memory {
                Memory::Free => "free",
                Memory::Scarce => "scarce",
                Memory::Least => "least",
            },
            "own_kernels": path.is_some_and(|path| path.own_kernels),
            "adapter": path.map(|path| adapter(path.adapter)),
            "evictions": evictions,
            "tokens": tokens,
            "mean_difference": mean,
            "largest_difference": largest,
            "mean_logprob": logprob,
            "kl": kl,
            "sampler_error": sampler_error,
            "training_error": training_error,
        }));
    }
    anyhow::ensure!(
        worst <= LARGEST_RATIO,
        "the sampler's errors are {worst:.1} times those of training: {}",
        json!(all)
    );
    Ok(json!({ "checks": all, "packed_attention": packed_attention }))
}

fn lines(object: &Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    writeln!(out, "{} on {}", text("model"), text("machine"))?;
    for one in object["checks"].as_array().into_iter().flatten() {
        let number = |name: &str| one[name].as_f64().unwrap_or(f64::NAN);
        writeln!(
            out,
            "{} conversations, prefixes {}, memory {}, {}, {} evictions: log-probabilities of {} tokens differ from training \
             by {:.5} on average, {:.4} at most; KL {:.2e}; errors against single precision: sampler {:.5}, training {:.5}",
            one["conversations"],
            one["prefixes"].as_str().unwrap_or_default(),
            one["memory"].as_str().unwrap_or_default(),
            if one["own_kernels"] == true { "own kernels" } else { "libtorch's operations" },
            one["evictions"],
            one["tokens"],
            number("mean_difference"),
            number("largest_difference"),
            number("kl"),
            number("sampler_error"),
            number("training_error")
        )?;
    }
    let number = |name: &str| object[name].as_f64();
    if let Some(step) = number("step_ms") {
        writeln!(
            out,
            "decode, {} conversations of {} tokens: {step:.2} ms a step, {:.0} tokens/s",
            object["conversations"],
            object["context"],
            number("decode_tokens_per_s").unwrap_or_default()
        )?;
        writeln!(
            out,
            "prefill: {:.0} tokens/s",
            number("prefill_tokens_per_s").unwrap_or_default()
        )?;
        writeln!(
            out,
            "refresh after an update: {:.0} ms",
            number("refresh_ms").unwrap_or_default()
        )?;
    }
    learning_lines(&mut out, object)?;
    for (name, what) in [("eager", "plain PyTorch"), ("graph", "plain PyTorch in a CUDA graph")] {
        let theirs = object["eager"][format!("{name}_step_ms")].as_f64();
        if let (Some(theirs), Some(ratio)) = (theirs, number(&format!("{name}_ratio"))) {
            writeln!(out, "{what}: {theirs:.2} ms a step; ratio {ratio:.2}")?;
        }
    }
    Ok(())
}

/// Prints what was measured of learning, if anything.
fn learning_lines(out: &mut impl Write, object: &Value) -> anyhow::Result<()> {
    let learning = &object["learning"];
    let number = |name: &str| learning[name].as_f64();
    let Some(step) = number("step_s") else { return Ok(()) };
    writeln!(
        out,
        "learning, {} episodes of {} tokens: {step:.3} s, {:.0} computed tokens/s",
        learning["episodes"],
        learning["tokens"],
        number("computed_tokens_per_s").unwrap_or_default()
    )?;
    let others = [
        ("autograd", number("autograd_step_s"), "autograd_ratio"),
        ("plain PyTorch", object["eager"]["learning_step_s"].as_f64(), "eager_ratio"),
    ];
    for (what, seconds, ratio) in others {
        if let (Some(seconds), Some(ratio)) = (seconds, number(ratio)) {
            writeln!(out, "learning with {what}: {seconds:.3} s; ratio {ratio:.2}")?;
        }
    }
    Ok(())
}
