//! Files that are damaged, incomplete or of unsupported networks are rejected with the reason.

use std::path::Path;

use lis_policy::{
    Architecture, LoadError, Network, Output, Scaling, TensorFile, TensorFileError, write_tensors,
};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use crate::needs::tiny;

fn saved() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    tiny(Architecture::Llama, Output::Own, Scaling::None).save(directory.path()).unwrap();
    directory
}

fn refused(path: &Path) -> LoadError {
    match Network::load(path, Device::Cpu, Kind::Float) {
        Ok(_) => panic!("{} was loaded", path.display()),
        Err(error) => error,
    }
}

fn change_config(directory: &Path, change: impl FnOnce(&mut Value)) {
    let path = directory.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
}

/// Rewrites the weights with one of them changed or left out.
fn change_tensor(directory: &Path, changed: &str, to: Option<Tensor>) {
    let path = directory.join("model.safetensors");
    let file = TensorFile::open(&path).unwrap();
    let mut tensors: Vec<_> = file
        .names()
        .filter(|name| *name != changed)
        .map(|name| (name.to_owned(), file.tensor(name).unwrap()))
        .collect();
    tensors.extend(to.map(|tensor| (changed.to_owned(), tensor)));
    write_tensors(&path, &tensors, &Default::default()).unwrap();
}

#[test]
fn unknown_networks_are_named() {
    let directory = saved();
    change_config(directory.path(), |config| config["model_type"] = json!("mamba"));
    assert!(matches!(refused(directory.path()), LoadError::Config(_)));
    change_config(directory.path(), |config| {
        config["model_type"] = json!("llama");
        config["rope_scaling"] = json!({"rope_type": "yarn", "factor": 4.0});
    });
    assert!(matches!(refused(directory.path()), LoadError::Config(_)));
}

#[test]
fn missing_and_misshapen_tensors_are_named() {
    let name = "model.layers.1.self_attn.k_proj.weight";
    let directory = saved();
    change_tensor(
        directory.path(),
        name,
        Some(Tensor::zeros([32, 31], (Kind::Float, Device::Cpu))),
    );
    assert!(
        matches!(refused(directory.path()), LoadError::Size { name: wrong, .. } if wrong == name)
    );
    change_tensor(
        directory.path(),
        name,
        Some(Tensor::zeros([32, 32], (Kind::Int64, Device::Cpu))),
    );
    assert!(
        matches!(refused(directory.path()), LoadError::ElementType { name: wrong, .. } if wrong == name)
    );
    change_tensor(directory.path(), name, None);
    assert!(matches!(refused(directory.path()), LoadError::Missing(missing) if missing == name));
    let directory = saved();
    change_tensor(directory.path(), "lm_head.weight", None);
    assert!(
        matches!(refused(directory.path()), LoadError::Missing(missing) if missing == "lm_head.weight")
    );
}

#[test]
fn incomplete_directories_are_named() {
    let directory = saved();
    std::fs::rename(directory.path().join("model.safetensors"), directory.path().join("else"))
        .unwrap();
    assert!(matches!(refused(directory.path()), LoadError::NoWeights { .. }));
    let index = |text: &str| {
        std::fs::write(directory.path().join("model.safetensors.index.json"), text).unwrap()
    };
    index(r#"{"weight_map": {"a": "../else"}}"#);
    assert!(matches!(refused(directory.path()), LoadError::Shard(name) if name == "../else"));
    index(r#"{"weight_map": {"a": 3}}"#);
    assert!(matches!(refused(directory.path()), LoadError::Shard(_)));
    index("[]");
    assert!(matches!(refused(directory.path()), LoadError::Json { .. }));
    std::fs::remove_file(directory.path().join("config.json")).unwrap();
    assert!(matches!(refused(directory.path()), LoadError::Io { .. }));
    assert!(matches!(refused(Path::new("/no/such/model")), LoadError::Gguf { .. }));
}

#[test]
fn damaged_heads_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.safetensors");
    let open = |head: &str, length: u64, data: usize| {
        let mut bytes = Vec::from(length.to_le_bytes());
        bytes.extend(head.as_bytes());
        bytes.extend(vec![0; data]);
        std::fs::write(&path, bytes).unwrap();
        TensorFile::open(&path).map(|file| file.tensor("t").map(|tensor| tensor.size()))
    };
    let head = |shape: &str, offsets: &str| {
        format!(r#"{{"t":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let sound = head("[2]", "[0,8]");
    assert_eq!(open(&sound, sound.len() as u64, 8).unwrap().unwrap(), [2]);
    assert!(matches!(open(&sound, sound.len() as u64, 7), Err(TensorFileError::Entry { .. })));
    assert!(matches!(open(&sound, u64::MAX, 8), Err(TensorFileError::Header { .. })));
    assert!(matches!(open(&sound, sound.len() as u64 + 9, 8), Err(TensorFileError::Header { .. })));
    assert!(matches!(open("{", 1, 0), Err(TensorFileError::Header { .. })));
    for (shape, offsets) in [
        ("[3]", "[0,8]"),
        ("[2]", "[8,0]"),
        ("[2]", "[-8,0]"),
        ("[2]", "[0]"),
        ("[-2]", "[0,8]"),
        ("[4611686018427387904,4]", "[0,0]"),
        ("[0,9223372036854775808]", "[0,0]"),
        ("\"2\"", "[0,8]"),
    ] {
        let head = head(shape, offsets);
        assert!(
            matches!(open(&head, head.len() as u64, 8), Err(TensorFileError::Entry { .. })),
            "{head}"
        );
    }
    std::fs::write(&path, b"short").unwrap();
    assert!(matches!(TensorFile::open(&path), Err(TensorFileError::Header { .. })));
}

#[test]
fn a_gguf_file_without_a_net_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.gguf");
    let write = |metadata: &[(&str, gguf::Value)]| {
        let metadata: Vec<_> =
            metadata.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let tensor = gguf::NewTensor {
            name: "token_embd.weight".to_owned(),
            dimensions: vec![8, 3],
            data: gguf::TensorData::F32(vec![0.0; 24]),
        };
        gguf::write(&mut std::fs::File::create(&path).unwrap(), &metadata, &[tensor]).unwrap();
    };
    write(&[("general.architecture", "gemma".into())]);
    assert!(
        matches!(refused(&path), LoadError::Config(lis_policy::ConfigError::Architecture(name)) if name == "gemma")
    );
    let mut known = vec![("general.architecture", "llama".into())];
    write(&known);
    assert!(matches!(refused(&path), LoadError::Config(lis_policy::ConfigError::Field(_))));
    for (key, value) in [
        ("llama.block_count", 1),
        ("llama.embedding_length", 8),
        ("llama.feed_forward_length", 8),
        ("llama.attention.head_count", 2),
        ("llama.context_length", 16),
    ] {
        known.push((key, gguf::Value::U32(value)));
    }
    write(&known);
    assert!(matches!(refused(&path), LoadError::Missing(name) if name == "blk.0.attn_norm.weight"));
    known.push(("llama.rope.scaling.type", "yarn".into()));
    write(&known);
    assert!(matches!(refused(&path), LoadError::Config(lis_policy::ConfigError::Unsupported(_))));
}
