//! `transformers` loads our exports and computes the same logits, log-probabilities and gradients, and reads the same
//! weights from a GGUF file.
//!
//! Importing PyTorch and `transformers` takes far longer than all computations, so one Python process serves all cases,
//! and one test compares them and reports every case that differs.

use std::path::{Path, PathBuf};

use lis_policy::{
    Architecture, Checkpointing, LoraConfig, Network, Output, Row, Scaling, TARGETS, TensorFile,
};
use tch::{Device, Kind, Tensor};

use crate::needs::{difference, named, python, stir, tiny};

/// For every directory: loads it, computes logits and the gradient of a weighted sum of log-probabilities, and writes
/// them to `out.safetensors` in it. For every file: loads it as GGUF and writes its logits to the path after it. What
/// fails is written to `error.txt` beside the output, so that the other cases are computed.
const REFERENCE: &str = r#"
import os
import sys
import traceback
import torch
import transformers.modeling_utils
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)

def scores(folder, out):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = torch.tensor([[1, 5, 3, 2, 19, 0, 76, 4, 4, 11, 30, 31], [7, 70, 12, 12, 13, 50, 2, 9, 0, 0, 0, 0]])
    mask = torch.tensor([[0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1], [1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0]], dtype=torch.float32)
    logits = model(tokens).logits
    logprob = torch.log_softmax(logits[:, :-1] / 0.8, -1).gather(-1, tokens[:, 1:, None])[..., 0] * mask
    weights = torch.arange(1, 23, dtype=torch.float32).view(2, 11) / 10
    (logprob * weights).sum().backward()
    found = {"grad." + name: tensor.grad for name, tensor in model.named_parameters()}
    found |= {"logits": logits.detach(), "logprob": logprob.detach()}
    save_file({name: tensor.contiguous() for name, tensor in found.items()}, out)

def gguf(file, out):
    # It asks for the package accelerate, and does nothing with it here.
    transformers.modeling_utils.is_accelerate_available = lambda *_: True
    folder, name = os.path.split(file)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    tokens = torch.tensor([[1, 4093, 198, 7062, 314, 260, 3575, 282, 4649, 47, 2, 198]])
    with torch.no_grad():
        save_file({"logits": model(tokens).logits.contiguous()}, out)

for model, out in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        (scores if os.path.isdir(model) else gguf)(model, out)
    except Exception:
        with open(os.path.join(os.path.dirname(out), "error.txt"), "w") as file:
            file.write(traceback.format_exc())
"#;

const TOKENS: [[u32; 12]; 2] =
    [[1, 5, 3, 2, 19, 0, 76, 4, 4, 11, 30, 31], [7, 70, 12, 12, 13, 50, 2, 9, 0, 0, 0, 0]];
const SCORED: [[u8; 12]; 2] =
    [[0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1], [0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 0]];

/// The length of the second sequence here; there it is padded with zeros.
const SECOND: usize = 8;

/// What is compared of a case.
enum Compared {
    /// Logits, log-probabilities and gradients, with each of these.
    Everything(&'static [Checkpointing]),
    /// Logits.
    Logits,
}

struct Case {
    name: &'static str,
    net: Network,
    compared: Compared,
}

fn cases() -> Vec<Case> {
    const OFF: Compared = Compared::Everything(&[Checkpointing::Off]);
    const LAYERS: Compared = Compared::Everything(&[Checkpointing::Layers]);
    const BOTH: Compared = Compared::Everything(&[Checkpointing::Off, Checkpointing::Layers]);
    let llama3 = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 64.0 };
    let linear = Scaling::Linear { factor: 2.5 };
    let case = |name, architecture, output, scaling, compared| Case {
        name,
        net: tiny(architecture, output, scaling),
        compared,
    };
    let mut adapted =
        case("adapter", Architecture::Llama, Output::Tied, Scaling::None, Compared::Logits);
    let lora = LoraConfig { rank: 3, alpha: 6.0, targets: TARGETS.to_vec(), seed: 1 };
    adapted.net.add_lora(&lora).unwrap();
    for (number, (_, mut factor)) in adapted.net.trainable().into_iter().enumerate() {
        stir(&mut factor, number as f64, 0.1);
    }
    vec![
        case("llama", Architecture::Llama, Output::Tied, Scaling::None, BOTH),
        case("llama-linear", Architecture::Llama, Output::Own, linear, BOTH),
        case("llama3", Architecture::Llama, Output::Tied, llama3, BOTH),
        case("qwen2", Architecture::Qwen2, Output::Own, Scaling::None, LAYERS),
        case("qwen3", Architecture::Qwen3, Output::Tied, Scaling::None, OFF),
        adapted,
    ]
}

#[test]
fn scores_and_gradients_are_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let cases = cases();
    let mut models: Vec<PathBuf> = Vec::new();
    for case in &cases {
        let model = directory.path().join(case.name);
        case.net.save(&model).unwrap();
        models.extend([model.clone(), model.join("out.safetensors")]);
    }
    let gguf = named("LIS_TEST_TINY_GGUF", "gguf");
    let gguf_out = directory.path().join("gguf/out.safetensors");
    if let Some(gguf) = &gguf {
        std::fs::create_dir(directory.path().join("gguf")).unwrap();
        models.extend([gguf.clone(), gguf_out.clone()]);
    }
    let models: Vec<&Path> = models.iter().map(PathBuf::as_path).collect();
    if python(REFERENCE, &models).is_none() {
        return;
    }
    let mut failures = Vec::new();
    let mut note = |name: &str, result: Result<(), String>| {
        failures.extend(result.err().map(|why| format!("{name}: {why}")));
    };
    for case in &cases {
        let out = directory.path().join(case.name).join("out.safetensors");
        note(case.name, reference(&out).and_then(|theirs| compare(case, &theirs)));
    }
    if let Some(gguf) = &gguf {
        note("gguf", reference(&gguf_out).and_then(|theirs| compare_gguf(gguf, &theirs)));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The results of `transformers` for a case, or why there are none.
fn reference(out: &Path) -> Result<TensorFile, String> {
    match std::fs::read_to_string(out.with_file_name("error.txt")) {
        Ok(error) => Err(error),
        Err(_) => TensorFile::open(out).map_err(|error| error.to_string()),
    }
}

fn compare(case: &Case, theirs: &TensorFile) -> Result<(), String> {
    let Case { net, compared, .. } = case;
    let tokens: Vec<i64> = TOKENS.concat().into_iter().map(i64::from).collect();
    let logits = tch::no_grad(|| net.logits(&Tensor::from_slice(&tokens).view([2, 12]))).unwrap();
    close("logits", &logits, &theirs.tensor("logits").unwrap(), 1e-4)?;
    match compared {
        Compared::Logits => Ok(()),
        Compared::Everything(ways) => ways.iter().try_for_each(|checkpointing| {
            compare_gradients(net, theirs, *checkpointing)
                .map_err(|why| format!("{checkpointing:?}: {why}"))
        }),
    }
}

fn compare_gradients(
    net: &Network,
    theirs: &TensorFile,
    checkpointing: Checkpointing,
) -> Result<(), String> {
    let scored = SCORED.map(|row| row.map(|mark| mark == 1));
    let rows = [
        Row { tokens: &TOKENS[0], scored: &scored[0], shared: 0 },
        Row { tokens: &TOKENS[1][..SECOND], scored: &scored[1][..SECOND], shared: 0 },
    ];
    let batch = net.batch(&rows).unwrap();
    let logprob = net.logprobs(&batch, 0.8).unwrap().logprob;
    close("log-probabilities", &logprob, &scored_of(&theirs.tensor("logprob").unwrap()), 1e-4)?;
    let largest = logprob.abs().max().double_value(&[]);
    check(largest > 1.0, || format!("the largest log-probability is {largest}"))?;
    let weights = (Tensor::arange(22, (Kind::Float, Device::Cpu)) + 1.0).view([2, 11]) / 10.0;
    let weights = scored_of(&weights);
    net.trainable().iter().for_each(|(_, tensor)| tensor.shallow_clone().zero_grad());
    net.accumulate(&batch, 0.8, checkpointing, |scored| {
        scored.logprob.f_mul(&weights)?.f_sum(Kind::Float)
    })
    .unwrap();
    let mut nonzero = 0;
    for (name, tensor) in net.trainable() {
        let whole = joined(theirs, &name);
        let largest = whole.abs().max().double_value(&[]);
        close(&name, &tensor.grad(), &whole, 1e-4 * largest.max(1.0))?;
        nonzero += usize::from(largest > 1e-3);
    }
    check(nonzero > 10, || format!("only {nonzero} gradients are more than nothing"))
}

fn compare_gguf(file: &Path, theirs: &TensorFile) -> Result<(), String> {
    let net = Network::load(file, Device::Cpu, Kind::Float).unwrap();
    let tokens =
        Tensor::from_slice(&[1i64, 4093, 198, 7062, 314, 260, 3575, 282, 4649, 47, 2, 198])
            .view([1, 12]);
    let ours = tch::no_grad(|| net.logits(&tokens)).unwrap();
    close("logits", &ours, &theirs.tensor("logits").unwrap(), 1e-3)?;
    let largest = ours.abs().max().double_value(&[]);
    check(largest > 5.0, || format!("the largest logit is {largest}"))
}

/// The values at scored tokens, one sequence after another, of `[2, 11]`.
fn scored_of(values: &Tensor) -> Tensor {
    let marks: Vec<bool> =
        SCORED.iter().flat_map(|row| row.iter().skip(1).map(|mark| *mark == 1)).collect();
    values.masked_select(&Tensor::from_slice(&marks).view([2, 11]))
}

fn close(what: &str, ours: &Tensor, theirs: &Tensor, bound: f64) -> Result<(), String> {
    let difference = difference(ours, theirs);
    check(difference < bound, || format!("{what} differ by {difference}"))
}

fn check(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
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
