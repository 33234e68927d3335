//! A directory in the Hugging Face layout: `config.json`, and weights in one safetensors file, or in several with an index.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};
use tch::{Kind, Tensor};

use super::{LoadError, Source};
use crate::config;
use crate::shape::Shape;
use crate::tensor_file::TensorFile;

/// The maximum size of a JSON file, in bytes.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// An open directory.
pub(super) struct Directory {
    shards: Vec<TensorFile>,
    /// The shard of each tensor.
    shard_of: HashMap<String, usize>,
}

impl Directory {
    pub(super) fn open(path: &Path) -> Result<(Self, Shape, Map<String, Value>), LoadError> {
        let origin = object(&path.join("config.json"))?;
        let shape = config::shape(&origin)?;
        let mut directory = Self { shards: Vec::new(), shard_of: HashMap::new() };
        for file in files(path)? {
            let shard = TensorFile::open(&file)?;
            let number = directory.shards.len();
            directory.shard_of.extend(shard.names().map(|name| (name.to_owned(), number)));
            directory.shards.push(shard);
        }
        Ok((directory, shape, origin))
    }
}

impl Source for Directory {
    fn tensor(&self, name: &str) -> Result<Tensor, LoadError> {
        let shard = self.shard_of.get(name).and_then(|number| self.shards.get(*number));
        let tensor = shard.ok_or_else(|| LoadError::Missing(name.to_owned()))?.tensor(name)?;
        match tensor.f_kind()? {
            Kind::Double | Kind::Float | Kind::Half | Kind::BFloat16 => Ok(tensor),
            other => {
                Err(LoadError::ElementType { name: name.to_owned(), kind: format!("{other:?}") })
            }
        }
    }
}

/// The safetensors files.
fn files(path: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let single = path.join("model.safetensors");
    if single.is_file() {
        return Ok(vec![single]);
    }
    let index = path.join("model.safetensors.index.json");
    if !index.is_file() {
        return Err(LoadError::NoWeights { path: path.to_owned() });
    }
    let map = object(&index)?;
    let names =
        map.get("weight_map").and_then(Value::as_object).ok_or(LoadError::Json { path: index })?;
    let names: BTreeSet<&str> =
        names.values().map(|name| name.as_str().unwrap_or_default()).collect();
    let is_plain = |name: &str| {
        let mut parts = Path::new(name).components();
        matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
    };
    match names.iter().find(|name| !is_plain(name)) {
        Some(name) => Err(LoadError::Shard((*name).to_owned())),
        None => Ok(names.iter().map(|name| path.join(name)).collect()),
    }
}

fn object(path: &Path) -> Result<Map<String, Value>, LoadError> {
    let failed = |source| LoadError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX_JSON_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    let small = bytes.len() as u64 <= MAX_JSON_BYTES;
    let parsed = small.then(|| serde_json::from_slice(&bytes).ok()).flatten();
    parsed.ok_or_else(|| LoadError::Json { path: path.to_owned() })
}
