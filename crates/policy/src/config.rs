//! Reads and writes the `config.json` of the Hugging Face layout, in its older and its newer form. Features that this
//! crate does not implement are rejected by name instead of being ignored.

use serde_json::{Map, Value, json};
use tch::Kind;

use crate::shape::{Architecture, Output, Scaling, Shape, ShapeError};

/// A configuration that is not supported.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ConfigError {
    #[error("models of type {0:?} are not supported, only llama, qwen2 and qwen3")]
    Architecture(String),
    #[error("{0} is missing or not a valid number")]
    Field(String),
    #[error("{0} is not supported")]
    Unsupported(String),
    #[error("rotary positions of type {0:?} are not supported, only default, linear and llama3")]
    Rope(String),
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// The shape that a configuration describes.
pub(crate) fn shape(config: &Map<String, Value>) -> Result<Shape, ConfigError> {
    let architecture = architecture(config)?;
    reject_unsupported(config)?;
    let hidden = required(config, "hidden_size")?;
    let heads = required(config, "num_attention_heads")?;
    let optional = |key: &str, default: i64| match config.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(_) => required(config, key),
    };
    // Files omit values that equal the architecture's defaults.
    let (head_dim, positions) = match architecture {
        Architecture::Llama => (hidden.checked_div(heads).unwrap_or(0), 2048),
        Architecture::Qwen2 => (hidden.checked_div(heads).unwrap_or(0), 32768),
        Architecture::Qwen3 => (128, 32768),
    };
    let tied = config.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false);
    let (rope_theta, rope_scaling) = rope(config)?;
    let shape = Shape {
        architecture,
        hidden,
        layers: required(config, "num_hidden_layers")?,
        heads,
        kv_heads: optional("num_key_value_heads", heads)?,
        head_dim: optional("head_dim", head_dim)?,
        intermediate: required(config, "intermediate_size")?,
        vocabulary: required(config, "vocab_size")?,
        rope_theta,
        rope_scaling,
        norm_eps: number(config, "rms_norm_eps", 1e-6)?,
        output: if tied { Output::Tied } else { Output::Own },
        positions: optional("max_position_embeddings", positions)?,
    };
    shape.check()?;
    Ok(shape)
}

/// The configuration of a shape; unrelated entries of `origin` are kept.
pub(crate) fn config(shape: &Shape, origin: &Map<String, Value>, kind: Kind) -> Map<String, Value> {
    let mut config = origin.clone();
    for stale in ["rope_parameters", "quantization_config", "transformers_version", "torch_dtype"] {
        config.remove(stale);
    }
    let (model, class) = match shape.architecture {
        Architecture::Llama => ("llama", "LlamaForCausalLM"),
        Architecture::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
        Architecture::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
    };
    let scaling = match shape.rope_scaling {
        Scaling::None => Value::Null,
        Scaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        Scaling::Llama3 { factor, low, high, original } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original as i64,
        }),
    };
    let dtype = match kind {
        Kind::BFloat16 => "bfloat16",
        Kind::Half => "float16",
        Kind::Double => "float64",
        _ => "float32",
    };
    let ours = [
        ("architectures", json!([class])),
        ("model_type", json!(model)),
        ("hidden_act", json!("silu")),
        ("hidden_size", json!(shape.hidden)),
        ("num_hidden_layers", json!(shape.layers)),
        ("num_attention_heads", json!(shape.heads)),
        ("num_key_value_heads", json!(shape.kv_heads)),
        ("head_dim", json!(shape.head_dim)),
        ("intermediate_size", json!(shape.intermediate)),
        ("vocab_size", json!(shape.vocabulary)),
        ("rope_theta", json!(shape.rope_theta)),
        ("rope_scaling", scaling),
        ("rms_norm_eps", json!(shape.norm_eps)),
        ("tie_word_embeddings", json!(shape.output == Output::Tied)),
        ("max_position_embeddings", json!(shape.positions)),
        ("dtype", json!(dtype)),
    ];
    config.extend(ours.map(|(key, value)| (key.to_owned(), value)));
    config
}

fn architecture(config: &Map<String, Value>) -> Result<Architecture, ConfigError> {
    match config.get("model_type").and_then(Value::as_str).unwrap_or_default() {
        "llama" => Ok(Architecture::Llama),
        "qwen2" => Ok(Architecture::Qwen2),
        "qwen3" => Ok(Architecture::Qwen3),
        other => Err(ConfigError::Architecture(other.to_owned())),
    }
}

fn reject_unsupported(config: &Map<String, Value>) -> Result<(), ConfigError> {
    let flag = |key: &str| config.get(key).and_then(Value::as_bool).unwrap_or(false);
    if let Some(key) =
        ["attention_bias", "mlp_bias", "use_sliding_window"].into_iter().find(|key| flag(key))
    {
        return Err(ConfigError::Unsupported(key.to_owned()));
    }
    let set = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
    if set("quantization_config") {
        return Err(ConfigError::Unsupported("quantization_config".to_owned()));
    }
    if set("hidden_act") && config.get("hidden_act") != Some(&json!("silu")) {
        return Err(ConfigError::Unsupported(
            "an activation (hidden_act) other than silu".to_owned(),
        ));
    }
    let partial = config.get("partial_rotary_factor").and_then(Value::as_f64);
    if partial.is_some_and(|part| part != 1.0) {
        return Err(ConfigError::Unsupported("partial_rotary_factor".to_owned()));
    }
    let layers = config.get("layer_types").and_then(Value::as_array);
    if layers.is_some_and(|layers| layers.iter().any(|layer| layer != "full_attention")) {
        return Err(ConfigError::Unsupported(
            "a layer of a type (layer_types) other than full_attention".to_owned(),
        ));
    }
    Ok(())
}

fn rope(config: &Map<String, Value>) -> Result<(f64, Scaling), ConfigError> {
    let nothing = Map::new();
    let parameters = config.get("rope_parameters").and_then(Value::as_object);
    let scaling = parameters
        .or_else(|| config.get("rope_scaling").and_then(Value::as_object))
        .unwrap_or(&nothing);
    let theta = match parameters.filter(|parameters| parameters.contains_key("rope_theta")) {
        Some(parameters) => number(parameters, "rope_theta", 10000.0)?,
        None => number(config, "rope_theta", 10000.0)?,
    };
    let named = scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Value::as_str);
    let number_of = |key: &str| match scaling.get(key).and_then(Value::as_f64) {
        Some(value) => Ok(value),
        None => Err(ConfigError::Field(format!("{key} of the rotary positions"))),
    };
    let scaling = match named.unwrap_or("default") {
        "default" if scaling.get("factor").is_none_or(Value::is_null) => Scaling::None,
        "linear" => Scaling::Linear { factor: number_of("factor")? },
        "llama3" => Scaling::Llama3 {
            factor: number_of("factor")?,
            low: number_of("low_freq_factor")?,
            high: number_of("high_freq_factor")?,
            original: number_of("original_max_position_embeddings")?,
        },
        other => return Err(ConfigError::Rope(other.to_owned())),
    };
    Ok((theta, scaling))
}

fn required(config: &Map<String, Value>, key: &str) -> Result<i64, ConfigError> {
    config.get(key).and_then(Value::as_i64).ok_or_else(|| ConfigError::Field(key.to_owned()))
}

fn number(config: &Map<String, Value>, key: &str, default: f64) -> Result<f64, ConfigError> {
    match config.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => value.as_f64().ok_or_else(|| ConfigError::Field(key.to_owned())),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
