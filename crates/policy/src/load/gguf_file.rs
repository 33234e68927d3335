//! A GGUF file as a source of weights: its metadata as a configuration, its tensor names, and its row order for the Llama
//! family. How values are stored is in the crate `gguf`.

use std::path::Path;

use serde_json::{Map, Value, json};
use tch::Tensor;

use super::{LoadError, Source};
use crate::config::{self, ConfigError};
use crate::convert;
use crate::shape::{Architecture, Shape};

/// An open file.
pub(super) struct GgufFile {
    file: gguf::File,
    shape: Shape,
}

impl GgufFile {
    pub(super) fn open(path: &Path) -> Result<(Self, Shape, Map<String, Value>), LoadError> {
        let file = gguf::File::open(path)
            .map_err(|source| LoadError::Gguf { path: path.to_owned(), source })?;
        let origin = configuration(&file)?;
        let shape = config::shape(&origin)?;
        Ok((Self { file, shape: shape.clone() }, shape, origin))
    }
}

impl Source for GgufFile {
    fn tensor(&self, name: &str) -> Result<Tensor, LoadError> {
        let stored = stored_name(name).ok_or_else(|| LoadError::Missing(name.to_owned()))?;
        let info = self.file.tensor(&stored).ok_or_else(|| LoadError::Missing(stored.clone()))?;
        let size: Vec<i64> = info.dimensions.iter().rev().map(|size| *size as i64).collect();
        let numbers = self
            .file
            .read_f32(&stored)
            .map_err(|source| LoadError::Dequantise { name: stored.clone(), source })?;
        let tensor = Tensor::f_from_slice(&numbers)?.f_view(size.as_slice())?;
        let heads = match self.shape.architecture {
            Architecture::Llama if stored.contains("attn_q.") => self.shape.heads,
            Architecture::Llama if stored.contains("attn_k.") => self.shape.kv_heads,
            _ => return Ok(tensor),
        };
        let rows = size.first().copied().unwrap_or(0);
        if rows != heads * self.shape.head_dim {
            let expected = vec![heads * self.shape.head_dim, self.shape.hidden];
            return Err(LoadError::Size { name: stored, found: size, expected });
        }
        Ok(convert::from_interleaved(&tensor, heads)?)
    }
}

/// Names in the Hugging Face layout and in GGUF files.
const NAMES: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The name in a GGUF file of a tensor of the Hugging Face layout.
pub(crate) fn stored_name(name: &str) -> Option<String> {
    let whole = match name {
        "model.embed_tokens.weight" => "token_embd.weight",
        "model.norm.weight" => "output_norm.weight",
        "lm_head.weight" => "output.weight",
        _ => {
            let (number, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
            let (stem, end) = rest.rsplit_once('.')?;
            let (_, stored) = NAMES.iter().find(|(known, _)| *known == stem)?;
            return Some(format!("blk.{number}.{stored}.{end}"));
        }
    };
    Some(whole.to_owned())
}

/// The metadata as a `config.json`.
fn configuration(file: &gguf::File) -> Result<Map<String, Value>, LoadError> {
    let architecture =
        file.get("general.architecture").and_then(gguf::Value::as_str).unwrap_or_default();
    let get = |key: &str| file.get(&format!("{architecture}.{key}"));
    let unsupported = |what: &str| LoadError::Config(ConfigError::Unsupported(what.to_owned()));
    let scaled =
        get("rope.scaling.type").and_then(gguf::Value::as_str).is_some_and(|kind| kind != "none");
    if scaled || file.tensor("rope_freqs.weight").is_some() {
        return Err(unsupported("scaling of rotary positions in a GGUF file"));
    }
    let known = ["attn_q.bias", "attn_k.bias", "attn_v.bias"];
    let computed =
        |name: &str| architecture == "qwen2" && known.iter().any(|end| name.ends_with(end));
    let mut names = file.tensors().iter().map(|tensor| tensor.name.as_str());
    if let Some(name) = names.find(|name| name.ends_with(".bias") && !computed(name)) {
        return Err(unsupported(&format!("{name:?} of a {architecture} model")));
    }
    let number = |key: &str| get(key).and_then(gguf::Value::as_u64);
    let (width, heads) = (number("embedding_length"), number("attention.head_count"));
    let head = number("attention.key_length")
        .or_else(|| width.zip(heads).and_then(|(width, heads)| width.checked_div(heads)));
    if number("rope.dimension_count").is_some_and(|rotated| Some(rotated) != head) {
        return Err(unsupported("a partial rotation of heads"));
    }
    let mut config = Map::new();
    let mut set = |key: &str, value: Value| drop(config.insert(key.to_owned(), value));
    set("model_type", json!(architecture));
    for (key, stored) in [
        ("num_hidden_layers", "block_count"),
        ("hidden_size", "embedding_length"),
        ("intermediate_size", "feed_forward_length"),
        ("num_attention_heads", "attention.head_count"),
        ("num_key_value_heads", "attention.head_count_kv"),
        ("head_dim", "attention.key_length"),
        ("max_position_embeddings", "context_length"),
    ] {
        if let Some(value) = get(stored) {
            let number = value
                .as_u64()
                .ok_or_else(|| LoadError::Config(ConfigError::Field(stored.to_owned())))?;
            set(key, json!(number));
        }
    }
    for (key, stored) in
        [("rms_norm_eps", "attention.layer_norm_rms_epsilon"), ("rope_theta", "rope.freq_base")]
    {
        if let Some(value) = get(stored).and_then(gguf::Value::as_f64) {
            set(key, json!(shortest(value)));
        }
    }
    for (key, stored) in [("bos_token_id", "bos_token_id"), ("eos_token_id", "eos_token_id")] {
        if let Some(id) =
            file.get(&format!("tokenizer.ggml.{stored}")).and_then(gguf::Value::as_u64)
        {
            set(key, json!(id));
        }
    }
    let rows = file.tensor("token_embd.weight").and_then(|tensor| tensor.dimensions.get(1));
    set(
        "vocab_size",
        json!(rows.ok_or_else(|| LoadError::Missing("token_embd.weight".to_owned()))?),
    );
    set("tie_word_embeddings", json!(file.tensor("output.weight").is_none()));
    Ok(config)
}

/// The shortest decimal that gives the same single-precision value: `1e-5`, not `9.99999974737875e-6`.
fn shortest(value: f64) -> f64 {
    let single = value as f32;
    if f64::from(single) == value { single.to_string().parse().unwrap_or(value) } else { value }
}
