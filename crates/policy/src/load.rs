//! Loads networks from a directory in the Hugging Face layout, or from a GGUF file. Both are a `Source` of tensors; the
//! rest is common.

mod directory;
mod gguf_file;

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tch::{Device, Kind, TchError, Tensor};

use crate::config::ConfigError;
use crate::layer::Layer;
use crate::net::Network;
use crate::shape::{Architecture, Output, Shape};
use crate::tensor_file::TensorFileError;

pub(crate) use gguf_file::stored_name;

use directory::Directory;
use gguf_file::GgufFile;

/// Weights cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum LoadError {
    #[error("{} cannot be read", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a JSON object of at most 64 MiB", path.display())]
    Json { path: PathBuf },
    #[error("the tensors cannot be read")]
    Tensors(#[from] TensorFileError),
    #[error("{} has neither model.safetensors nor model.safetensors.index.json", path.display())]
    NoWeights { path: PathBuf },
    #[error("the index names {0:?}, which is not a file in the same directory")]
    Shard(String),
    #[error("{} cannot be opened", path.display())]
    Gguf {
        path: PathBuf,
        #[source]
        source: gguf::OpenError,
    },
    #[error("the configuration cannot be used")]
    Config(#[from] ConfigError),
    #[error("tensor {0:?} is missing")]
    Missing(String),
    #[error("tensor {name:?} has the shape {found:?}, and the configuration requires {expected:?}")]
    Size { name: String, found: Vec<i64>, expected: Vec<i64> },
    #[error("tensor {name:?} has elements of type {kind}, which is not a type of weights")]
    ElementType { name: String, kind: String },
    #[error("tensor {name:?} cannot be read")]
    Dequantise {
        name: String,
        #[source]
        source: gguf::ReadError,
    },
    #[error("the network has no adapter")]
    NoAdapter,
    #[error("`{key}` of the adapter is {found}, and has to be {expected}")]
    Adapter { key: &'static str, found: String, expected: String },
    #[error("the file has the tensor {0:?}, which is not part of the adapter")]
    Unexpected(String),
    #[error("libtorch failed")]
    Torch(#[from] TchError),
}

/// A source of tensors by their names in the Hugging Face layout, on the host.
trait Source {
    fn tensor(&self, name: &str) -> Result<Tensor, LoadError>;
}

impl Network {
    /// Loads a directory in the Hugging Face layout (`config.json` and safetensors), or a `.gguf` file, whose quantised
    /// weights are dequantised.
    pub fn load(path: &Path, device: Device, kind: Kind) -> Result<Self, LoadError> {
        if path.is_dir() {
            let (directory, shape, origin) = Directory::open(path)?;
            return assemble(&directory, shape, origin, device, kind);
        }
        let (file, shape, origin) = GgufFile::open(path)?;
        assemble(&file, shape, origin, device, kind)
    }
}

fn assemble(
    source: &impl Source,
    shape: Shape,
    origin: Map<String, Value>,
    device: Device,
    kind: Kind,
) -> Result<Network, LoadError> {
    let _guard = tch::no_grad_guard();
    let loader = Loader { source, device, kind };
    let layers =
        (0..shape.layers).map(|number| layer(&loader, &shape, number)).collect::<Result<_, _>>()?;
    let head = match shape.output {
        Output::Tied => None,
        Output::Own => Some(loader.get("lm_head.weight", &[shape.vocabulary, shape.hidden])?),
    };
    let net = Network {
        embedding: loader.get("model.embed_tokens.weight", &[shape.vocabulary, shape.hidden])?,
        layers,
        norm: loader.get("model.norm.weight", &[shape.hidden])?,
        head,
        head_precision: Default::default(),
        lora: None,
        shape,
        origin,
    };
    net.require_gradients()?;
    Ok(net)
}

fn layer(loader: &Loader<'_, impl Source>, shape: &Shape, number: i64) -> Result<Layer, LoadError> {
    let named = |name: &str| format!("model.layers.{number}.{name}");
    let (hidden, inner) = (shape.hidden, shape.intermediate);
    let (query, key) = (shape.query_rows(), shape.key_rows());
    let heads = [("q_proj", query), ("k_proj", key), ("v_proj", key)];
    let weights =
        heads.map(|(part, rows)| (named(&format!("self_attn.{part}.weight")), vec![rows, hidden]));
    let biases = heads.map(|(part, rows)| (named(&format!("self_attn.{part}.bias")), vec![rows]));
    let gates = ["gate_proj", "up_proj"]
        .map(|part| (named(&format!("mlp.{part}.weight")), vec![inner, hidden]));
    let head_norm = |name: &str| match shape.architecture {
        Architecture::Qwen3 => loader.get(&named(name), &[shape.head_dim]).map(Some),
        Architecture::Llama | Architecture::Qwen2 => Ok(None),
    };
    Ok(Layer {
        input_norm: loader.get(&named("input_layernorm.weight"), &[hidden])?,
        qkv: loader.fused(&weights)?,
        qkv_bias: (shape.architecture == Architecture::Qwen2)
            .then(|| loader.fused(&biases))
            .transpose()?,
        query_norm: head_norm("self_attn.q_norm.weight")?,
        key_norm: head_norm("self_attn.k_norm.weight")?,
        output: loader.get(&named("self_attn.o_proj.weight"), &[hidden, query])?,
        post_norm: loader.get(&named("post_attention_layernorm.weight"), &[hidden])?,
        gate_up: loader.fused(&gates)?,
        down: loader.get(&named("mlp.down_proj.weight"), &[hidden, inner])?,
        adapted: Default::default(),
    })
}

struct Loader<'a, S> {
    source: &'a S,
    device: Device,
    kind: Kind,
}

impl<S: Source> Loader<'_, S> {
    /// A tensor, copied to the device.
    fn get(&self, name: &str, size: &[i64]) -> Result<Tensor, LoadError> {
        let tensor = self.source.tensor(name)?;
        if tensor.size() != size {
            return Err(LoadError::Size {
                name: name.to_owned(),
                found: tensor.size(),
                expected: size.to_vec(),
            });
        }
        Ok(tensor.f_to_kind(self.kind)?.f_to_device(self.device)?.f_contiguous()?)
    }

    /// Several tensors, concatenated.
    fn fused(&self, parts: &[(String, Vec<i64>)]) -> Result<Tensor, LoadError> {
        let parts =
            parts.iter().map(|(name, size)| self.get(name, size)).collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor::f_cat(&parts, 0)?)
    }
}
