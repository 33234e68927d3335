//! Saves adapters: in the PEFT layout, and as a GGUF file that llama.cpp applies to a model of any quantisation. Such a
//! file can be read again.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use gguf::{NewTensor, TensorData, Value};
use half::f16;
use serde_json::json;
use tch::{Device, Kind, Tensor};

use crate::convert;
use crate::error::TchResult;
use crate::load::{LoadError, stored_name};
use crate::lora::{Factors, TARGETS, Target};
use crate::net::Network;
use crate::save::{SaveError, write_pair};
use crate::shape::Architecture;

/// An adapted projection.
struct Adapted<'a> {
    target: Target,
    ours: &'a Factors,
    /// Its name in the Hugging Face layout.
    name: String,
    /// The name of its weight in a GGUF file.
    stem: String,
}

impl Network {
    /// Writes the adapter as `adapter_config.json` and `adapter_model.safetensors`, as PEFT and vLLM read it. `base` is the
    /// name of the base model.
    pub fn save_adapter(&self, directory: &Path, base: &str) -> Result<(), SaveError> {
        let lora = self.lora.as_ref().ok_or(SaveError::NoAdapter)?;
        let config = json!({
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "r": lora.rank,
            "lora_alpha": lora.alpha,
            "target_modules": lora.targets.iter().map(|target| target.name()).collect::<Vec<_>>(),
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": false,
            "inference_mode": true,
        });
        let renamed =
            |(name, factor): (String, Tensor)| (format!("base_model.model.{name}"), factor);
        let factors: Vec<_> = self.factors().into_iter().map(renamed).collect();
        write_pair(
            directory,
            ("adapter_config.json", config),
            ("adapter_model.safetensors", &factors),
        )
    }

    /// Writes the adapter as a GGUF file, as llama.cpp reads it. `name` is shown to users.
    pub fn save_adapter_gguf(&self, path: &Path, name: &str) -> Result<(), SaveError> {
        let lora = self.lora.as_ref().ok_or(SaveError::NoAdapter)?;
        let mut metadata = self.adapter_metadata(lora.alpha);
        metadata.push(("general.name", Value::from(name)));
        let metadata: Vec<_> =
            metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let tensors = self.stored_factors()?;
        let failed = |source: gguf::WriteError| SaveError::Gguf { path: path.to_owned(), source };
        let file = File::create(path).map_err(|error| failed(error.into()))?;
        let mut sink = BufWriter::new(file);
        gguf::write(&mut sink, &metadata, &tensors).map_err(failed)?;
        let file = sink.into_inner().map_err(|error| failed(error.into_error().into()))?;
        file.sync_all().map_err(|error| failed(error.into()))
    }

    /// Reads the factors of an adapter from a GGUF file, as [`Self::save_adapter_gguf`] writes it: in single precision on
    /// the host, by the names of [`Self::trainable`]. The network must have an adapter of the same rank, scale and
    /// targets, which is not changed.
    pub fn read_adapter_gguf(&self, path: &Path) -> Result<Vec<(String, Tensor)>, LoadError> {
        let alpha = self.lora.as_ref().ok_or(LoadError::NoAdapter)?.alpha;
        let file = gguf::File::open(path)
            .map_err(|source| LoadError::Gguf { path: path.to_owned(), source })?;
        for (key, expected) in self.adapter_metadata(alpha) {
            let found = file.get(key);
            if found != Some(&expected) {
                let found = found.map_or_else(|| "absent".to_owned(), shown);
                return Err(LoadError::Adapter { key, found, expected: shown(&expected) });
            }
        }
        let mut names = HashSet::new();
        let mut stored = |name: String, ours: &Tensor| {
            let found = stored_factor(&file, &name, ours);
            names.insert(name);
            found
        };
        let mut factors = Vec::new();
        for Adapted { target, ours, name, stem } in self.adapted() {
            let a = stored(format!("{stem}.lora_a"), &ours.a)?;
            let b = stored(format!("{stem}.lora_b"), &ours.b)?;
            let b = match self.interleaved_heads(target) {
                Some(heads) => convert::from_interleaved(&b, heads)?,
                None => b,
            };
            factors.push((format!("{name}.lora_A.weight"), a));
            factors.push((format!("{name}.lora_B.weight"), b));
        }
        match file.tensors().iter().find(|tensor| !names.contains(&tensor.name)) {
            Some(tensor) => Err(LoadError::Unexpected(tensor.name.clone())),
            None => Ok(factors),
        }
    }

    /// What a file says of an adapter, besides its name.
    fn adapter_metadata(&self, alpha: f64) -> Vec<(&'static str, Value)> {
        let architecture = match self.shape.architecture {
            Architecture::Llama => "llama",
            Architecture::Qwen2 => "qwen2",
            Architecture::Qwen3 => "qwen3",
        };
        vec![
            ("general.architecture", Value::from(architecture)),
            ("general.type", Value::from("adapter")),
            ("adapter.type", Value::from("lora")),
            ("adapter.lora.alpha", Value::F32(alpha as f32)),
        ]
    }

    fn adapted(&self) -> impl Iterator<Item = Adapted<'_>> {
        self.layers.iter().enumerate().flat_map(|(number, layer)| {
            TARGETS.into_iter().filter_map(move |target| {
                let ours = layer.adapted.get(target)?;
                let name = format!("model.layers.{number}.{}.{}", target.part(), target.name());
                let stem = stored_name(&format!("{name}.weight"))?;
                Some(Adapted { target, ours, name, stem })
            })
        })
    }

    /// The heads of a projection whose rows have another order in a GGUF file. The adapter's rows have that of the
    /// projection's.
    fn interleaved_heads(&self, target: Target) -> Option<i64> {
        let heads = match target {
            Target::Query => self.shape.heads,
            Target::Key => self.shape.kv_heads,
            _ => return None,
        };
        (self.shape.architecture == Architecture::Llama).then_some(heads)
    }

    fn stored_factors(&self) -> TchResult<Vec<NewTensor>> {
        let mut all = Vec::new();
        for Adapted { target, ours, stem, .. } in self.adapted() {
            let b = match self.interleaved_heads(target) {
                Some(heads) => convert::to_interleaved(&ours.b.f_detach()?, heads)?,
                None => ours.b.f_detach()?,
            };
            all.push(pending(format!("{stem}.lora_a"), &ours.a)?);
            all.push(pending(format!("{stem}.lora_b"), &b)?);
        }
        Ok(all)
    }
}

/// A stored factor, with the shape of ours.
fn stored_factor(file: &gguf::File, name: &str, ours: &Tensor) -> Result<Tensor, LoadError> {
    let info = file.tensor(name).ok_or_else(|| LoadError::Missing(name.to_owned()))?;
    let found: Vec<i64> = info.dimensions.iter().rev().map(|size| *size as i64).collect();
    let expected = ours.size();
    if found != expected {
        return Err(LoadError::Size { name: name.to_owned(), found, expected });
    }
    let numbers = file
        .read_f32(name)
        .map_err(|source| LoadError::Dequantise { name: name.to_owned(), source })?;
    Ok(Tensor::f_from_slice(&numbers)?.f_view(expected.as_slice())?)
}

/// A value of the metadata for the user.
fn shown(value: &Value) -> String {
    match (value.as_str(), value.as_f64()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(number)) => number.to_string(),
        (None, None) => "of another type".to_owned(),
    }
}

/// The smallest maximum of a factor for which f16 is as precise as the bf16 of training.
const MIN_FOR_HALF: f32 = 1e-3;

/// A factor as stored: in f16 where it was trained in bf16 and loses nothing.
fn pending(name: String, factor: &Tensor) -> TchResult<NewTensor> {
    let host =
        factor.f_detach()?.f_to_kind(Kind::Float)?.f_to_device(Device::Cpu)?.f_contiguous()?;
    let mut numbers = vec![0f32; host.numel()];
    host.f_copy_data(&mut numbers, host.numel())?;
    let dimensions = host.size().iter().rev().map(|size| *size as u64).collect();
    let largest = numbers.iter().fold(0f32, |largest, number| largest.max(number.abs()));
    let numbers = match factor.kind() {
        Kind::BFloat16 if (MIN_FOR_HALF..60_000.0).contains(&largest) => {
            TensorData::F16(numbers.into_iter().map(f16::from_f32).collect())
        }
        _ => TensorData::F32(numbers),
    };
    Ok(NewTensor { name, dimensions, data: numbers })
}
