//! `transformers` loads our exports and computes the same logits, log-probabilities and gradients, and reads the same
//! weights from a GGUF file.

use std::path::Path;

use lis_policy::{
    Architecture, Checkpointing, LoraConfig, Network, Output, Row, Scaling, Target, TensorFile,
};
use tch::{Device, Kind, Tensor};

use crate::needs::{difference, named, python, stir, tiny};

/// Loads a directory, computes logits and the gradient of a weighted sum of log-probabilities, writes them to a file.
const SCORES: &str = r#"
import sys
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
tokens = torch.tensor([[1, 5, 3, 2, 19, 0, 76, 4, 4, 11, 30, 31], [7, 70, 12, 12, 13, 50, 2, 9, 0, 0, 0, 0]])
mask = torch.tensor([[0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1], [1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0]], dtype=torch.float32)
logits = model(tokens).logits
logprob = torch.log_softmax(logits[:, :-1] / 0.8, -1).gather(-1, tokens[:, 1:, None])[..., 0] * mask
weights = torch.arange(1, 23, dtype=torch.float32).view(2, 11) / 10
(logprob * weights).sum().backward()
out = {"grad." + name: tensor.grad for name, tensor in model.named_parameters()}
out |= {"logits": logits.detach(), "logprob": logprob.detach()}
save_file({name: tensor.contiguous() for name, tensor in out.items()}, sys.argv[2])
"#;

const TOKENS: [[u32; 12]; 2] =
    [[1, 5, 3, 2, 19, 0, 76, 4, 4, 11, 30, 31], [7, 70, 12, 12, 13, 50, 2, 9, 0, 0, 0, 0]];
const SCORED: [[u8; 12]; 2] =
    [[0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1], [0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0]];

/// The results of `transformers` for a saved network.
fn theirs(net: &Network) -> Option<TensorFile> {
    let directory = tempfile::tempdir().unwrap();
    net.save(directory.path()).unwrap();
    let out = directory.path().join("out.safetensors");
    python(SCORES, &[directory.path(), &out])?;
    Some(TensorFile::open(&out).unwrap())
}

fn compare(net: &Network, theirs: &TensorFile, checkpointing: Checkpointing) {
    let scored = SCORED.map(|row| row.map(|mark| mark == 1));
    // The second sequence is shorter here; there it is padded with zeros.
    let rows = [
        Row { tokens: &TOKENS[0], scored: &scored[0] },
        Row { tokens: &TOKENS[1][..8], scored: &scored[1][..8] },
    ];
    let batch = net.batch(&rows).unwrap();
    let logits = tch::no_grad(|| net.logits(&batch.tokens)).unwrap();
    assert!(difference(&logits, &theirs.tensor("logits").unwrap()) < 1e-4);
    let logprob = net.logprobs(&batch, 0.8).unwrap().logprob;
    assert!(difference(&logprob, &theirs.tensor("logprob").unwrap()) < 1e-4);
    assert!(logprob.abs().max().double_value(&[]) > 1.0);

    let weights = (Tensor::arange(22, (Kind::Float, Device::Cpu)) + 1.0).view([2, 11]) / 10.0;
    net.trainable().iter().for_each(|(_, tensor)| tensor.shallow_clone().zero_grad());
    net.accumulate(&batch, 0.8, checkpointing, |scored| {
        scored.logprob.f_mul(&weights)?.f_sum(Kind::Float)
    })
    .unwrap();
    let mut compared = 0;
    for (name, tensor) in net.trainable() {
        let grad = tensor.grad();
        let whole = joined(theirs, &name);
        let scale = whole.abs().max().double_value(&[]).max(1.0);
        assert!(difference(&grad, &whole) < 1e-4 * scale, "{name}: {}", difference(&grad, &whole));
        compared += usize::from(whole.abs().max().double_value(&[]) > 1e-3);
    }
    assert!(compared > 10, "too few gradients are more than nothing");
}

/// Their gradients in our layout.
fn joined(theirs: &TensorFile, name: &str) -> Tensor {
    let parts: &[&str] = if name.contains("qkv_proj") {
        &["q_proj", "k_proj", "v_proj"]
    } else {
        &["gate_proj", "up_proj"]
    };
    if !name.contains("qkv_proj") && !name.contains("gate_up_proj") {
        return theirs.tensor(&format!("grad.{name}")).unwrap();
    }
    let part = |part: &&str| name.replace("gate_up_proj", part).replace("qkv_proj", part);
    let parts: Vec<Tensor> =
        parts.iter().map(|name| theirs.tensor(&format!("grad.{}", part(name))).unwrap()).collect();
    Tensor::cat(&parts, 0)
}

#[test]
fn llama_scores_and_gradients_are_the_same() {
    let llama3 = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 64.0 };
    for (output, scaling) in [
        (Output::Tied, Scaling::None),
        (Output::Own, Scaling::Linear { factor: 2.5 }),
        (Output::Tied, llama3),
    ] {
        let net = tiny(Architecture::Llama, output, scaling);
        let Some(theirs) = theirs(&net) else { return };
        compare(&net, &theirs, Checkpointing::Off);
        compare(&net, &theirs, Checkpointing::Layers);
    }
}

#[test]
fn qwen2_scores_and_gradients_are_the_same() {
    let net = tiny(Architecture::Qwen2, Output::Own, Scaling::None);
    let Some(theirs) = theirs(&net) else { return };
    compare(&net, &theirs, Checkpointing::Layers);
}

#[test]
fn qwen3_scores_and_gradients_are_the_same() {
    let net = tiny(Architecture::Qwen3, Output::Tied, Scaling::None);
    let Some(theirs) = theirs(&net) else { return };
    compare(&net, &theirs, Checkpointing::Off);
}

#[test]
fn an_adapter_is_merged_when_it_is_saved() {
    let mut net = tiny(Architecture::Llama, Output::Tied, Scaling::None);
    let targets = vec![
        Target::Query,
        Target::Key,
        Target::Value,
        Target::Output,
        Target::Gate,
        Target::Up,
        Target::Down,
    ];
    net.add_lora(&LoraConfig { rank: 3, alpha: 6.0, targets, seed: 1 }).unwrap();
    for (number, (_, mut factor)) in net.trainable().into_iter().enumerate() {
        stir(&mut factor, number as f64, 0.1);
    }
    let Some(theirs) = theirs(&net) else { return };
    let tokens = Tensor::from_slice(
        &TOKENS.concat().iter().map(|token| i64::from(*token)).collect::<Vec<_>>(),
    )
    .view([2, 12]);
    let logits = tch::no_grad(|| net.logits(&tokens)).unwrap();
    assert!(difference(&logits, &theirs.tensor("logits").unwrap()) < 1e-4);
}

/// Loads a GGUF file and writes the logits of a few tokens.
const GGUF: &str = r#"
import os
import sys
import torch
import transformers.modeling_utils
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

# It asks for the package accelerate, and does nothing with it here.
transformers.modeling_utils.is_accelerate_available = lambda *_: True
folder, name = os.path.split(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
tokens = torch.tensor([[1, 4093, 198, 7062, 314, 260, 3575, 282, 4649, 47, 2, 198]])
with torch.no_grad():
    save_file({"logits": model(tokens).logits.contiguous()}, sys.argv[2])
"#;

#[test]
fn a_gguf_file_gives_the_same_scores() {
    let Some(file) = named("LIS_TEST_TINY_GGUF", "gguf") else { return };
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out.safetensors");
    if python(GGUF, &[Path::new(&file), &out]).is_none() {
        return;
    }
    let theirs = TensorFile::open(&out).unwrap().tensor("logits").unwrap();
    let net = Network::load(&file, Device::Cpu, Kind::Float).unwrap();
    let tokens =
        Tensor::from_slice(&[1i64, 4093, 198, 7062, 314, 260, 3575, 282, 4649, 47, 2, 198])
            .view([1, 12]);
    let ours = tch::no_grad(|| net.logits(&tokens)).unwrap();
    assert!(difference(&ours, &theirs) < 1e-3, "{}", difference(&ours, &theirs));
    assert!(ours.abs().max().double_value(&[]) > 5.0);
}
