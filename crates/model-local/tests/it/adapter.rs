//! LoRA adapters, built here byte by byte: one that changes nothing, one that changes much, one of another model.
//!
//! Reads `LIS_TEST_TINY_GGUF`, a SmolLM2 of 135M: its first layer's query matrix is 576 by 576.

use std::{fs, path::Path};

use lis_model_local::{LoadError, LocalModel, Options};
use trajectory::Message;

use crate::support::{ask, options, tiny_file};

const RANK: u64 = 2;

/// An adapter of the first layer's queries, all of whose numbers in `b` are one.
fn adapter(width: u64, number: f32) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(2_u64.to_le_bytes());
    bytes.extend(4_u64.to_le_bytes());
    for (key, value) in
        [("general.architecture", "llama"), ("general.type", "adapter"), ("adapter.type", "lora")]
    {
        text(&mut bytes, key);
        bytes.extend(8_u32.to_le_bytes());
        text(&mut bytes, value);
    }
    text(&mut bytes, "adapter.lora.alpha");
    bytes.extend(6_u32.to_le_bytes());
    bytes.extend((RANK as f32).to_le_bytes());
    let size = width * RANK * 4;
    for (part, shape, offset) in [("lora_a", [width, RANK], 0), ("lora_b", [RANK, width], size)] {
        text(&mut bytes, &format!("blk.0.attn_q.weight.{part}"));
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(shape.iter().flat_map(|side| side.to_le_bytes()));
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(u64::to_le_bytes(offset));
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.extend((0..width * RANK).flat_map(|_| number.to_le_bytes()));
    bytes.extend((0..width * RANK).flat_map(|_| 1_f32.to_le_bytes()));
    bytes
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn load(model: &Path, adapter: Option<&Path>) -> Result<LocalModel, LoadError> {
    let options = Options { adapter: adapter.map(Path::to_owned), ..options(512, 1) };
    LocalModel::load("tiny", model, &options)
}

#[tokio::test]
async fn an_adapter_changes_what_the_model_says() {
    let Some(model) = tiny_file() else { return };
    let model = model.as_path();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: Vec<u8>| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let idle = file("idle.gguf", adapter(576, 0.0));
    let strong = file("strong.gguf", adapter(576, 10.0));
    let foreign = file("foreign.gguf", adapter(320, 1.0));

    let messages = [Message::user("Name three colours.")];
    let mut said = Vec::new();
    for adapter in [None, Some(idle.as_path()), Some(strong.as_path())] {
        let loaded = load(model, adapter).unwrap();
        said.push(ask(&loaded, &messages, 24).await.unwrap().message.text);
    }
    assert_eq!(said[0], said[1], "an adapter of zeros changes nothing");
    assert_ne!(said[0], said[2], "the adapter was not applied");
    let refused = load(model, Some(&foreign)).map(|_| ()).unwrap_err();
    let LoadError::Adapter { why, .. } = &refused else { panic!("{refused}") };
    assert!(why.contains("wrong base model"), "{why}");
    let refused = refused.to_string();
    assert!(refused.contains("foreign.gguf") && refused.contains("model"), "{refused}");
}
