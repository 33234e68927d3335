//! Saves adapters: in the PEFT layout, and as a GGUF file that llama.cpp applies to a model of any quantisation.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use gguf::{NewTensor, TensorData, Value};
use half::f16;
use serde_json::json;
use tch::{Device, Kind, Tensor};

use crate::convert;
use crate::error::TchResult;
use crate::load::stored_name;
use crate::lora::{TARGETS, Target};
use crate::net::Network;
use crate::save::{SaveError, write_pair};
use crate::shape::Architecture;

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
        let architecture = match self.shape.architecture {
            Architecture::Llama => "llama",
            Architecture::Qwen2 => "qwen2",
            Architecture::Qwen3 => "qwen3",
        };
        let metadata = [
            ("general.architecture", Value::from(architecture)),
            ("general.type", Value::from("adapter")),
            ("general.name", Value::from(name)),
            ("adapter.type", Value::from("lora")),
            ("adapter.lora.alpha", Value::F32(lora.alpha as f32)),
        ];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value));
        let tensors = self.stored_factors()?;
        let failed = |source: gguf::WriteError| SaveError::Gguf { path: path.to_owned(), source };
        let file = File::create(path).map_err(|error| failed(error.into()))?;
        let mut sink = BufWriter::new(file);
        gguf::write(&mut sink, &metadata, &tensors).map_err(failed)?;
        let file = sink.into_inner().map_err(|error| failed(error.into_error().into()))?;
        file.sync_all().map_err(|error| failed(error.into()))
    }

    fn stored_factors(&self) -> TchResult<Vec<NewTensor>> {
        let mut all = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            for target in TARGETS {
                let Some(factors) = layer.adapted.get(target) else { continue };
                let name =
                    format!("model.layers.{number}.{}.{}.weight", target.part(), target.name());
                let Some(name) = stored_name(&name) else { continue };
                // The adapter's rows have the order of the projection's.
                let heads = match target {
                    Target::Query => Some(self.shape.heads),
                    Target::Key => Some(self.shape.kv_heads),
                    _ => None,
                };
                let b = match heads.filter(|_| self.shape.architecture == Architecture::Llama) {
                    Some(heads) => convert::to_interleaved(&factors.b.f_detach()?, heads)?,
                    None => factors.b.f_detach()?,
                };
                all.push(pending(format!("{name}.lora_a"), &factors.a)?);
                all.push(pending(format!("{name}.lora_b"), &b)?);
            }
        }
        Ok(all)
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
