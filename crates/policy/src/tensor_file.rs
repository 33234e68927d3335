//! Safetensors files: a JSON header with the type, shape and offsets of each tensor, then their data. Tensors are read and
//! written one at a time, so that a model is never in memory twice; the crate `safetensors` needs the whole file as one
//! slice (see docs/design/012-training.md). Hostile headers are rejected.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tch::{Device, Kind, TchError, Tensor};

use crate::error::TchResult;

/// The maximum size of the header in bytes, as the format defines it.
const MAX_HEADER: u64 = 100_000_000;

/// Element types: name in files, type in libtorch, size in bytes.
const KINDS: [(&str, Kind, u64); 8] = [
    ("F64", Kind::Double, 8),
    ("F32", Kind::Float, 4),
    ("F16", Kind::Half, 2),
    ("BF16", Kind::BFloat16, 2),
    ("I64", Kind::Int64, 8),
    ("I32", Kind::Int, 4),
    ("U8", Kind::Uint8, 1),
    ("BOOL", Kind::Bool, 1),
];

/// An open safetensors file.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    entries: BTreeMap<String, Entry>,
    metadata: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Entry {
    kind: Kind,
    size: Vec<i64>,
    start: u64,
    bytes: u64,
}

/// A safetensors file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum TensorFileError {
    #[error("{} cannot be read or written", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a safetensors file, or is truncated", path.display())]
    Header { path: PathBuf },
    #[error("{}: the header entry of tensor {name:?} is invalid", path.display())]
    Entry { path: PathBuf, name: String },
    #[error("{} has no tensor {name:?}", path.display())]
    Missing { path: PathBuf, name: String },
    #[error("libtorch failed")]
    Torch(#[from] TchError),
}

impl TensorFile {
    /// Opens a file, and checks its header.
    pub fn open(path: &Path) -> Result<Self, TensorFileError> {
        let failed = |source| TensorFileError::Io { path: path.to_owned(), source };
        let damaged = || TensorFileError::Header { path: path.to_owned() };
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(|_| damaged())?;
        let size = u64::from_le_bytes(size);
        let data = size
            .checked_add(8)
            .filter(|data| size <= MAX_HEADER && *data <= length)
            .ok_or_else(damaged)?;
        let mut header = Vec::new();
        (&file).take(size).read_to_end(&mut header).map_err(failed)?;
        let header: Map<String, Value> = serde_json::from_slice(&header).map_err(|_| damaged())?;
        let mut read = Self {
            path: path.to_owned(),
            file,
            entries: BTreeMap::new(),
            metadata: BTreeMap::new(),
        };
        for (name, value) in header {
            if name == "__metadata__" {
                let texts = value.as_object().into_iter().flatten();
                read.metadata = texts
                    .filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())))
                    .collect();
                continue;
            }
            let entry = entry(&value, data, length);
            let entry = entry.ok_or_else(|| TensorFileError::Entry {
                path: path.to_owned(),
                name: name.clone(),
            })?;
            read.entries.insert(name, entry);
        }
        Ok(read)
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The metadata of the file.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Reads a tensor, on the host.
    pub fn tensor(&self, name: &str) -> Result<Tensor, TensorFileError> {
        let missing =
            || TensorFileError::Missing { path: self.path.clone(), name: name.to_owned() };
        let entry = self.entries.get(name).ok_or_else(missing)?;
        let mut bytes = vec![0; entry.bytes as usize];
        let failed = |source| TensorFileError::Io { path: self.path.clone(), source };
        self.file.read_exact_at(&mut bytes, entry.start).map_err(failed)?;
        Ok(Tensor::f_from_data_size(&bytes, &entry.size, entry.kind)?)
    }
}

/// Writes tensors and metadata to a file, and syncs it.
pub fn write_tensors(
    path: &Path,
    tensors: &[(String, Tensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<(), TensorFileError> {
    let failed = |source| TensorFileError::Io { path: path.to_owned(), source };
    let header = header(tensors, metadata)?;
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    file.write_all(&(header.len() as u64).to_le_bytes()).map_err(failed)?;
    file.write_all(header.as_bytes()).map_err(failed)?;
    for (_, tensor) in tensors {
        file.write_all(&bytes(tensor)?).map_err(failed)?;
    }
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)
}

fn entry(value: &Value, data: u64, length: u64) -> Option<Entry> {
    let name = value.get("dtype")?.as_str()?;
    let (_, kind, width) = *KINDS.iter().find(|(known, ..)| *known == name)?;
    let shape =
        value.get("shape")?.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()?;
    let offsets = value
        .get("data_offsets")?
        .as_array()?
        .iter()
        .map(Value::as_u64)
        .collect::<Option<Vec<_>>>()?;
    let &[start, end] = offsets.as_slice() else { return None };
    let bytes = shape.iter().try_fold(width, |product, size| product.checked_mul(*size))?;
    let size = shape.iter().map(|size| i64::try_from(*size).ok()).collect::<Option<Vec<_>>>()?;
    let within = end.checked_sub(start)? == bytes && end <= length - data && size.len() <= 8;
    within.then_some(Entry { kind, size, start: data + start, bytes })
}

fn header(tensors: &[(String, Tensor)], metadata: &BTreeMap<String, String>) -> TchResult<String> {
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!(metadata));
    let mut start = 0;
    for (name, tensor) in tensors {
        let (dtype, width) = dtype(tensor)?;
        let end = start + tensor.numel() as u64 * width;
        header.insert(
            name.clone(),
            json!({"dtype": dtype, "shape": tensor.size(), "data_offsets": [start, end]}),
        );
        start = end;
    }
    let mut text = Value::Object(header).to_string();
    // The data is aligned to eight bytes.
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    Ok(text)
}

fn dtype(tensor: &Tensor) -> TchResult<(&'static str, u64)> {
    let kind = tensor.f_kind()?;
    let known = KINDS.iter().find(|(_, known, _)| *known == kind);
    known
        .map(|(name, _, width)| (*name, *width))
        .ok_or_else(|| TchError::Kind(format!("{kind:?} is not a safetensors type")))
}

fn bytes(tensor: &Tensor) -> TchResult<Vec<u8>> {
    let host = tensor.f_detach()?.f_to_device(Device::Cpu)?.f_contiguous()?;
    let mut bytes = vec![0; host.numel() * dtype(&host)?.1 as usize];
    host.f_copy_data_u8(&mut bytes, host.numel())?;
    Ok(bytes)
}
