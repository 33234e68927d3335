//! A saved and loaded network is the same; adapters change nothing at first, can be merged, and are saved as PEFT reads
//! them, or in a file that is read again.

use lis_policy::{
    Architecture, LoadError, LoraConfig, LoraError, Network, Output, Row, SaveError, Scaling,
    Target, TensorFile,
};
use tch::{Device, Kind, Tensor};

use crate::needs::{difference, stir, tiny};

fn logits(net: &Network) -> Tensor {
    let tokens = Tensor::from_slice(&[3i64, 1, 4, 1, 5, 9, 2, 6]).view([2, 4]);
    tch::no_grad(|| net.logits(&tokens)).unwrap()
}

fn lora(targets: Vec<Target>) -> LoraConfig {
    LoraConfig { rank: 2, alpha: 3.0, targets, seed: 9 }
}

#[test]
fn every_family_survives_saving_and_loading() {
    let families = [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3];
    for (architecture, output) in
        families.into_iter().flat_map(|family| [(family, Output::Tied), (family, Output::Own)])
    {
        let net = tiny(architecture, output, Scaling::None);
        let directory = tempfile::tempdir().unwrap();
        net.save(directory.path()).unwrap();
        let loaded = Network::load(directory.path(), Device::Cpu, Kind::Float).unwrap();
        assert_eq!(loaded.shape(), net.shape());
        let (before, after) = (net.parameters().unwrap(), loaded.parameters().unwrap());
        assert_eq!(before.len(), after.len());
        for ((name, before), (other, after)) in before.iter().zip(&after) {
            assert_eq!(name, other);
            assert_eq!(difference(before, after), 0.0, "{name}");
        }
        assert_eq!(difference(&logits(&net), &logits(&loaded)), 0.0);
        let half = Network::load(directory.path(), Device::Cpu, Kind::BFloat16).unwrap();
        assert_eq!(half.kind(), Kind::BFloat16);
        assert!(difference(&logits(&net), &logits(&half)) < 0.3);
    }
}

#[test]
fn several_files_with_an_index_are_one_net() {
    let net = tiny(Architecture::Qwen2, Output::Own, Scaling::None);
    let directory = tempfile::tempdir().unwrap();
    net.save(directory.path()).unwrap();
    std::fs::remove_file(directory.path().join("model.safetensors")).unwrap();
    let parameters = net.parameters().unwrap();
    let (left, right) = parameters.split_at(parameters.len() / 2);
    let mut map = serde_json::Map::new();
    for (file, part) in [("a.safetensors", left), ("b.safetensors", right)] {
        let part: Vec<_> =
            part.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect();
        lis_policy::write_tensors(&directory.path().join(file), &part, &Default::default())
            .unwrap();
        map.extend(part.iter().map(|(name, _)| (name.clone(), file.into())));
    }
    let index = serde_json::json!({"weight_map": map});
    std::fs::write(directory.path().join("model.safetensors.index.json"), index.to_string())
        .unwrap();
    let loaded = Network::load(directory.path(), Device::Cpu, Kind::Float).unwrap();
    assert_eq!(difference(&logits(&net), &logits(&loaded)), 0.0);
}

#[test]
fn a_change_in_place_changes_the_net() {
    let net = tiny(Architecture::Llama, Output::Tied, Scaling::None);
    let before = logits(&net);
    let (_, mut tensor) = net.trainable().swap_remove(2);
    tch::no_grad(|| tensor.copy_(&(&tensor * 1.5)));
    assert!(difference(&before, &logits(&net)) > 1e-3);
}

#[test]
fn an_adapter_adds_nothing_at_first_and_is_all_that_is_trained() {
    let mut net = tiny(Architecture::Qwen3, Output::Tied, Scaling::None);
    let before = logits(&net);
    net.add_lora(&lora(vec![Target::Value, Target::Query, Target::Query])).unwrap();
    assert_eq!(difference(&before, &logits(&net)), 0.0);
    let names: Vec<String> = net.trainable().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 8);
    assert_eq!(names[0], "model.layers.0.self_attn.q_proj.lora_A.weight");
    assert_eq!(names[3], "model.layers.0.self_attn.v_proj.lora_B.weight");
    let row = Row { tokens: &[1, 2, 3], scored: &[false, true, true], shared: 0 };
    let batch = net.batch(&[row]).unwrap();
    let sum = |scored: &lis_policy::Scored| scored.logprob.f_sum(Kind::Float);
    net.accumulate(&batch, 1.0, lis_policy::Checkpointing::Layers, sum).unwrap();
    for (name, tensor) in net.trainable() {
        let gradient = tensor.grad().abs().max().double_value(&[]);
        assert_eq!(gradient > 0.0, name.contains("lora_B"), "{name}: {gradient}");
    }
}

#[test]
fn a_merged_net_computes_what_the_adapted_one_does() {
    let mut net = tiny(Architecture::Qwen2, Output::Own, Scaling::None);
    net.add_lora(&lora(vec![Target::Key, Target::Output, Target::Up, Target::Down])).unwrap();
    let before = net.merged().unwrap();
    assert!(before.lora().is_none());
    for (number, (_, mut factor)) in net.trainable().into_iter().enumerate() {
        stir(&mut factor, number as f64, 0.1);
    }
    assert!(difference(&logits(&net), &logits(&before)) > 1e-2);
    assert!(difference(&logits(&net), &logits(&net.merged().unwrap())) < 1e-4);
}

#[test]
fn an_adapter_is_written_as_peft_reads_it() {
    let mut net = tiny(Architecture::Llama, Output::Tied, Scaling::None);
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(net.save_adapter(directory.path(), "base"), Err(SaveError::NoAdapter)));
    net.add_lora(&lora(vec![Target::Gate, Target::Query])).unwrap();
    net.save_adapter(directory.path(), "base").unwrap();
    let config = std::fs::read_to_string(directory.path().join("adapter_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["target_modules"], serde_json::json!(["q_proj", "gate_proj"]));
    assert_eq!((&config["r"], &config["lora_alpha"]), (&2.into(), &3.0.into()));
    let file = TensorFile::open(&directory.path().join("adapter_model.safetensors")).unwrap();
    assert_eq!(file.names().count(), 8);
    let a = file.tensor("base_model.model.model.layers.1.mlp.gate_proj.lora_A.weight").unwrap();
    assert_eq!(a.size(), [2, 32]);
    assert_eq!(file.metadata()["format"], "pt");
}

#[test]
fn an_adapter_is_read_as_it_was_written() {
    for architecture in [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3] {
        let mut net = tiny(architecture, Output::Tied, Scaling::None);
        net.add_lora(&lora(vec![Target::Query, Target::Key, Target::Down])).unwrap();
        for (number, (_, mut factor)) in net.trainable().into_iter().enumerate() {
            stir(&mut factor, number as f64, 0.1);
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("adapter.gguf");
        net.save_adapter_gguf(&path, "waves").unwrap();
        let (written, read) = (net.trainable(), net.read_adapter_gguf(&path).unwrap());
        assert_eq!(written.len(), read.len());
        for ((name, written), (other, read)) in written.iter().zip(&read) {
            assert_eq!(name, other);
            assert_eq!(difference(written, read), 0.0, "{architecture:?} {name}");
        }
        let other = match architecture {
            Architecture::Llama => Architecture::Qwen2,
            _ => Architecture::Llama,
        };
        let mut other = tiny(other, Output::Tied, Scaling::None);
        assert!(matches!(other.read_adapter_gguf(&path), Err(LoadError::NoAdapter)));
        other.add_lora(&lora(vec![Target::Query, Target::Key, Target::Down])).unwrap();
        let refused = other.read_adapter_gguf(&path).unwrap_err();
        assert!(refused.to_string().contains("`general.architecture`"), "{refused}");
    }
}

#[test]
fn impossible_adapters_are_refused() {
    let mut net = tiny(Architecture::Llama, Output::Tied, Scaling::None);
    assert!(matches!(net.add_lora(&lora(vec![])), Err(LoraError::NoTargets)));
    let wide = LoraConfig { rank: 33, ..lora(vec![Target::Query]) };
    assert!(matches!(net.add_lora(&wide), Err(LoraError::Rank { rank: 33, max: 32 })));
    let nan = LoraConfig { alpha: f64::NAN, ..lora(vec![Target::Query]) };
    assert!(matches!(net.add_lora(&nan), Err(LoraError::Alpha(_))));
    net.add_lora(&lora(vec![Target::Query])).unwrap();
    assert!(matches!(net.add_lora(&lora(vec![Target::Query])), Err(LoraError::AlreadyAdapted)));
}

#[test]
fn batches_that_cannot_be_are_refused() {
    use lis_policy::BatchError;
    let net = tiny(Architecture::Llama, Output::Tied, Scaling::None);
    let refused = |tokens: &[u32], scored: &[bool]| {
        net.batch(&[Row { tokens, scored, shared: 0 }]).unwrap_err()
    };
    assert!(matches!(net.batch(&[]).unwrap_err(), BatchError::Empty));
    assert!(matches!(refused(&[], &[]), BatchError::Empty));
    let marks = refused(&[1, 2], &[true]);
    assert!(matches!(marks, BatchError::Mask { row: 0, tokens: 2, mask: 1 }));
    let token = refused(&[77], &[true]);
    assert!(matches!(token, BatchError::Token { row: 0, token: 77, vocabulary: 77 }));
    let long = refused(&[1; 257], &[true; 257]);
    assert!(matches!(long, BatchError::TooLong { row: 0, tokens: 257, positions: 256 }));
}
