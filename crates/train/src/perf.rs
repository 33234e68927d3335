//! The command `perf`: tokens per second of sampling and training, optionally compared with a plain PyTorch loop.

mod decode;
mod learn;

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context;
use policy::{
    Checkpointing, CudaGraphs, LoraConfig, Network,
    perf::{self, Generated, Generation, Rate},
};
use serde_json::{Value, json};
use startup::note;
use training::{AdamW, LossKind, Machine, Precision, Row, Trainer};

use crate::{args::PerfArgs, progress};

/// The script that does the same work in plain PyTorch.
const EAGER: &str = include_str!("../perf/eager.py");

/// Measures and prints.
pub(crate) fn run(args: &PerfArgs) -> anyhow::Result<()> {
    if let Some(model) = &args.model {
        return decode::run(args, model);
    }
    let machine = Machine::new(args.device, Precision::Auto)?;
    let net = perf::random(perf::small_shape(), machine.device, machine.kind)?;
    let what = Generation {
        batch: args.batch,
        prompt: args.prompt,
        response: args.reply,
        cuda_graphs: graphs(args),
    };
    let generated = perf::generation(&net, &what)?;
    disabled("CUDA graphs are", generated.graphs_disabled_reason.as_deref());
    if machine.device.is_cuda() {
        disabled("the sampler's own kernels are", generated.kernels_disabled_reason.as_deref());
    }
    let packed_attention = packed_attention(&net);
    let adapted = args.rank.map(|rank| adapted(rank, &what, machine)).transpose()?;
    let trained = training(args, net, machine)?;
    let numbers = [
        ("--batch", args.batch as i64),
        ("--prompt", args.prompt as i64),
        ("--reply", args.reply as i64),
        ("--train-batch", args.train_batch as i64),
        ("--train-length", args.train_length as i64),
        ("--train-steps", i64::from(args.steps)),
    ];
    let python = args.python.as_deref();
    let eager = python.map(|python| eager(python, &numbers, machine)).transpose()?;
    let mut object = object(machine, &generated, trained, eager.as_ref());
    object["own_kernels"] = json!(generated.kernels_disabled_reason.is_none());
    object["packed_attention"] = json!(packed_attention);
    if let Some(rate) = adapted {
        object["adapted_generation_tokens_per_s"] = json!(rate.per_second());
    }
    match args.json {
        true => progress::print(&object),
        false => lines(machine, &object)?,
    }
    Ok(())
}

/// Reports why something is not used.
fn disabled(what: &str, why: Option<&str>) {
    if let Some(why) = why {
        note(&format!("{what} disabled: {why}"));
    }
}

/// Whether training computes attention over packed sequences; reports why not on a GPU.
fn packed_attention(net: &Network) -> bool {
    let why = net.packed_attention_disabled_reason();
    if net.device().is_cuda() {
        disabled("packed attention is", why.as_deref());
    }
    why.is_none()
}

/// Whether to use CUDA graphs.
fn graphs(args: &PerfArgs) -> CudaGraphs {
    if args.no_graphs { CudaGraphs::Off } else { CudaGraphs::Auto }
}

/// Times sampling with an adapter.
fn adapted(rank: u16, what: &Generation, machine: Machine) -> anyhow::Result<Rate> {
    let mut net = perf::random(perf::small_shape(), machine.device, machine.kind)?;
    let (rank, targets) = (i64::from(rank), policy::TARGETS.to_vec());
    net.add_lora(&LoraConfig { rank, alpha: 16.0, targets, seed: 0 })?;
    Ok(perf::generation(&net, what)?.rate)
}

/// Times full training steps in which all tokens are trained.
fn training(args: &PerfArgs, net: Network, machine: Machine) -> anyhow::Result<Rate> {
    let tokens = (args.train_batch * args.train_length) as u64;
    let vocabulary = u32::try_from(net.shape().vocabulary)?;
    let row = |number: u32| Row {
        tokens: (0..args.train_length as u32)
            .map(|at| (number * 7919 + at * 104_729) % vocabulary)
            .collect(),
        trained: vec![true; args.train_length],
        weight: 1.0 / tokens as f64,
        ..Row::default()
    };
    let rows: Vec<Row> = (0..args.train_batch as u32).map(row).collect();
    let mut trainer = Trainer::new(net, AdamW::default(), tokens as usize, Checkpointing::Off)?;
    let step = || trainer.step(&rows, 1e-6, LossKind::Supervised).map(drop);
    Ok(perf::training(machine.device, args.steps, tokens, step)?)
}

/// The same work with plain PyTorch.
#[expect(clippy::disallowed_methods, reason = "the user names the program to compare with")]
fn eager(python: &Path, numbers: &[(&str, i64)], machine: Machine) -> anyhow::Result<Value> {
    let device = match machine.device {
        tch::Device::Cuda(number) => format!("cuda:{number}"),
        _ => "cpu".to_owned(),
    };
    let mut command = Command::new(python);
    command.args(["-", "--device", &device]);
    for (name, number) in numbers {
        command.arg(name).arg(number.to_string());
    }
    // PyTorch brings its own libtorch.
    command.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = started.with_context(|| format!("cannot start {}", python.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(EAGER.as_bytes()).context("the interpreter did not read the script")?;
    }
    let output = child.wait_with_output()?;
    anyhow::ensure!(output.status.success(), "{} ended with {}", python.display(), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("{} printed no metrics", python.display()))
}

fn object(machine: Machine, generated: &Generated, trained: Rate, eager: Option<&Value>) -> Value {
    let (sampling, optimization) = (generated.rate.per_second(), trained.per_second());
    let mut object = json!({
        "machine": machine.describe(),
        "generation_tokens_per_s": sampling,
        "generation_steps": generated.stats.steps,
        "generation_steps_replayed": generated.stats.replayed_steps,
        "generation_memory": generated.memory,
        "training_tokens_per_s": optimization,
    });
    if let Some(eager) = eager {
        let ratio = |ours: f64, name: &str| eager[name].as_f64().map(|theirs| ours / theirs);
        object["eager"] = eager.clone();
        object["generation_ratio"] = json!(ratio(sampling, "generation_tokens_per_s"));
        object["training_ratio"] = json!(ratio(optimization, "training_tokens_per_s"));
    }
    object
}

fn lines(machine: Machine, object: &Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "on {}", machine.describe())?;
    for (what, key) in [("sampling", "generation"), ("training", "training")] {
        let of = |name: String| object[name].as_f64();
        let ours = of(format!("{key}_tokens_per_s")).unwrap_or(0.0);
        let beside = object["eager"][format!("{key}_tokens_per_s")].as_f64();
        match (beside, of(format!("{key}_ratio"))) {
            (Some(theirs), Some(ratio)) => {
                writeln!(
                    out,
                    "{what}: {ours:.0} tokens/s; plain PyTorch {theirs:.0}; ratio {ratio:.2}"
                )?;
            }
            _ => writeln!(out, "{what}: {ours:.0} tokens/s")?,
        }
    }
    if let Some(rate) = object["adapted_generation_tokens_per_s"].as_f64() {
        writeln!(out, "sampling with an adapter: {rate:.0} tokens/s")?;
    }
    Ok(())
}
