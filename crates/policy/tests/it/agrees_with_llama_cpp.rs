//! llama.cpp computes the same logits from the same GGUF file, up to rounding, and reads our adapters.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use lis_policy::{LoraConfig, Network, Target};
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use tch::{Device, Kind, Tensor};

use crate::needs::{named, stir};

const TOKENS: [i32; 12] = [1, 4093, 198, 7062, 314, 260, 3575, 282, 4649, 47, 2, 198];

/// llama.cpp can be initialised only once per process.
static ONE: Mutex<()> = Mutex::new(());

/// The logits after the last token, with or without an adapter.
fn llama_cpp(file: &Path, adapter: Option<&Path>) -> Tensor {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut backend = LlamaBackend::init().unwrap();
    backend.void_logs();
    let mut model =
        LlamaModel::load_from_file(&backend, file, &LlamaModelParams::default()).unwrap();
    let mut adapter = adapter.map(|path| model.lora_adapter_init(path).unwrap());
    let params = LlamaContextParams::default()
        .with_n_ctx(std::num::NonZeroU32::new(64))
        .with_n_threads(1)
        .with_n_threads_batch(1);
    let mut context = model.new_context(&backend, params).unwrap();
    if let Some(adapter) = &mut adapter {
        context.lora_adapter_set(adapter, 1.0).unwrap();
    }
    let mut batch = LlamaBatch::new(TOKENS.len(), 1);
    for (position, token) in TOKENS.into_iter().enumerate() {
        batch.add(LlamaToken(token), position as i32, &[0], position + 1 == TOKENS.len()).unwrap();
    }
    context.decode(&mut batch).unwrap();
    Tensor::from_slice(context.get_logits_ith(TOKENS.len() as i32 - 1))
}

fn ours(net: &Network) -> Tensor {
    let tokens = Tensor::from_slice(&TOKENS.map(i64::from)).unsqueeze(0);
    tch::no_grad(|| net.logits(&tokens)).unwrap().get(0).get(TOKENS.len() as i64 - 1)
}

/// The correlation of two vectors.
fn alike(left: &Tensor, right: &Tensor) -> f64 {
    let centred = |tensor: &Tensor| tensor - tensor.mean(Kind::Float);
    let (left, right) = (centred(left), centred(right));
    (left.dot(&right) / (left.norm() * right.norm())).double_value(&[])
}

/// Adds an adapter to the network, saves it, and compares its effect here and in llama.cpp.
fn compare_adapter(file: &Path, targets: Vec<Target>, height: f64) {
    let mut net = Network::load(file, Device::Cpu, Kind::Float).unwrap();
    let (plain, theirs_plain) = (ours(&net), llama_cpp(file, None));
    assert!(alike(&plain, &theirs_plain) > 0.999, "{}", alike(&plain, &theirs_plain));
    net.add_lora(&LoraConfig { rank: 4, alpha: 8.0, targets, seed: 1 }).unwrap();
    for (number, (name, mut factor)) in net.trainable().into_iter().enumerate() {
        if name.contains("lora_B") {
            stir(&mut factor, number as f64, height);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("adapter.gguf");
    net.save_adapter_gguf(&path, "waves").unwrap();
    let (adapted, theirs_adapted) = (ours(&net), llama_cpp(file, Some(&path)));
    assert!(alike(&plain, &adapted) < 0.99, "the adapter must matter: {}", alike(&plain, &adapted));
    let (moved, theirs_moved) = (adapted - plain, theirs_adapted - theirs_plain);
    assert!(alike(&moved, &theirs_moved) > 0.9, "{}", alike(&moved, &theirs_moved));
}

#[test]
fn an_adapter_of_every_projection_means_the_same() {
    let Some(file) = named("LIS_TEST_TINY_GGUF", "gguf") else { return };
    let targets = [
        Target::Query,
        Target::Key,
        Target::Value,
        Target::Output,
        Target::Gate,
        Target::Up,
        Target::Down,
    ];
    compare_adapter(&file, targets.to_vec(), 0.1);
}

/// Their rows have another order in the file; a wrong order would change the logits.
#[test]
fn an_adapter_of_queries_and_keys_means_the_same() {
    let Some(file) = named("LIS_TEST_TINY_GGUF", "gguf") else { return };
    compare_adapter(&file, vec![Target::Query, Target::Key], 0.4);
}
