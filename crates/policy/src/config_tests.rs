//! Configurations as they come: old and new spelling, defaults left out, and what must be refused.

use serde_json::{Map, Value, json};
use tch::Kind;

use super::{ConfigError, config, shape};
use crate::shape::{Architecture, Output, Scaling};

fn smollm() -> Value {
    json!({
        "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152, "rope_theta": 100000,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "max_position_embeddings": 8192, "eos_token_id": 2,
    })
}

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn with(key: &str, value: Value) -> Map<String, Value> {
    let mut changed = map(&smollm());
    changed.insert(key.to_owned(), value);
    changed
}

#[test]
fn a_configuration_is_read_with_its_defaults() {
    let read = shape(&map(&smollm())).unwrap();
    assert_eq!((read.architecture, read.head_dim, read.kv_heads), (Architecture::Llama, 64, 3));
    assert_eq!(
        (read.rope_theta, read.output, read.rope_scaling),
        (100000.0, Output::Tied, Scaling::None)
    );
    let bare = json!({
        "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 8, "vocab_size": 10, "rope_parameters": {"rope_type": "default", "rope_theta": 5e6},
    });
    let read = shape(&map(&bare)).unwrap();
    assert_eq!((read.head_dim, read.kv_heads, read.positions), (128, 2, 32768));
    assert_eq!((read.rope_theta, read.output), (5e6, Output::Own));
}

#[test]
fn what_is_written_is_read_again() {
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    });
    for scaling in [Value::Null, json!({"type": "linear", "factor": 2.0}), llama3] {
        let origin = with("rope_scaling", scaling);
        let read = shape(&origin).unwrap();
        let written = config(&read, &origin, Kind::BFloat16);
        assert_eq!(shape(&written).unwrap(), read);
        assert_eq!((&written["eos_token_id"], &written["dtype"]), (&json!(2), &json!("bfloat16")));
    }
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    let refused = |config: &Map<String, Value>| shape(config).unwrap_err();
    assert!(
        matches!(refused(&with("model_type", json!("mamba"))), ConfigError::Architecture(name) if name == "mamba")
    );
    let yarn = with("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0}));
    assert!(matches!(refused(&yarn), ConfigError::Rope(name) if name == "yarn"));
    for (key, value) in [
        ("attention_bias", json!(true)),
        ("use_sliding_window", json!(true)),
        ("hidden_act", json!("gelu")),
        ("quantization_config", json!({"bits": 4})),
        ("layer_types", json!(["full_attention", "sliding_attention"])),
        ("partial_rotary_factor", json!(0.5)),
    ] {
        assert!(matches!(refused(&with(key, value)), ConfigError::Unsupported(_)), "{key}");
    }
    assert!(
        matches!(refused(&with("vocab_size", json!("many"))), ConfigError::Field(key) if key == "vocab_size")
    );
}

#[test]
fn impossible_sizes_are_refused() {
    for (key, value) in [
        ("num_attention_heads", json!(0)),
        ("num_key_value_heads", json!(2)),
        ("hidden_size", json!(-576)),
        ("num_hidden_layers", json!(i64::MAX)),
        ("head_dim", json!(63)),
        ("rms_norm_eps", json!(-1.0)),
        ("rope_theta", json!(0)),
    ] {
        assert!(matches!(shape(&with(key, value)), Err(ConfigError::Shape(_))), "{key}");
    }
}
