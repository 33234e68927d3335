//! Files of safetensors: a head in JSON that says where each tensor lies, then their numbers. Tensors are read and
//! written one by one. A hostile head is refused with a reason. Refuses to know what the tensors are for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tch::{Device, Kind, TchError, Tensor};

use crate::error::Fallible;

/// Bytes of the largest head, as the format has it.
const LARGEST_HEAD: u64 = 100_000_000;

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

/// A file of safetensors whose head has been read.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    places: BTreeMap<String, Place>,
    note: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Place {
    kind: Kind,
    size: Vec<i64>,
    start: u64,
    bytes: u64,
}

/// Why a file of safetensors cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum TensorFileError {
    #[error("{} cannot be read or written", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is no file of safetensors, or was cut off", path.display())]
    Head { path: PathBuf },
    #[error("{}: what the head says of tensor {name:?} cannot be true", path.display())]
    Place { path: PathBuf, name: String },
    #[error("{} holds no tensor {name:?}", path.display())]
    Missing { path: PathBuf, name: String },
    #[error("libtorch refused")]
    Torch(#[from] TchError),
}

impl TensorFile {
    /// Opens a file and checks where its tensors lie.
    pub fn open(path: &Path) -> Result<Self, TensorFileError> {
        let failed = |source| TensorFileError::Io { path: path.to_owned(), source };
        let damaged = || TensorFileError::Head { path: path.to_owned() };
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(|_| damaged())?;
        let size = u64::from_le_bytes(size);
        let data = size
            .checked_add(8)
            .filter(|data| size <= LARGEST_HEAD && *data <= length)
            .ok_or_else(damaged)?;
        let mut head = Vec::new();
        (&file).take(size).read_to_end(&mut head).map_err(failed)?;
        let head: Map<String, Value> = serde_json::from_slice(&head).map_err(|_| damaged())?;
        let mut read =
            Self { path: path.to_owned(), file, places: BTreeMap::new(), note: BTreeMap::new() };
        for (name, value) in head {
            if name == "__metadata__" {
                let texts = value.as_object().into_iter().flatten();
                read.note = texts
                    .filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())))
                    .collect();
                continue;
            }
            let place = place(&value, data, length);
            let place = place.ok_or_else(|| TensorFileError::Place {
                path: path.to_owned(),
                name: name.clone(),
            })?;
            read.places.insert(name, place);
        }
        Ok(read)
    }

    /// The names of the tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// What the writer noted beside the tensors.
    pub fn note(&self) -> &BTreeMap<String, String> {
        &self.note
    }

    /// A tensor, on the host.
    pub fn tensor(&self, name: &str) -> Result<Tensor, TensorFileError> {
        let missing =
            || TensorFileError::Missing { path: self.path.clone(), name: name.to_owned() };
        let place = self.places.get(name).ok_or_else(missing)?;
        let mut bytes = vec![0; place.bytes as usize];
        let failed = |source| TensorFileError::Io { path: self.path.clone(), source };
        self.file.read_exact_at(&mut bytes, place.start).map_err(failed)?;
        Ok(Tensor::f_from_data_size(&bytes, &place.size, place.kind)?)
    }
}

/// Writes tensors and a note to a file, which is complete on disk when this returns.
pub fn write_tensors(
    path: &Path,
    tensors: &[(String, Tensor)],
    note: &BTreeMap<String, String>,
) -> Result<(), TensorFileError> {
    let failed = |source| TensorFileError::Io { path: path.to_owned(), source };
    let head = head(tensors, note)?;
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    file.write_all(&(head.len() as u64).to_le_bytes()).map_err(failed)?;
    file.write_all(head.as_bytes()).map_err(failed)?;
    for (_, tensor) in tensors {
        file.write_all(&bytes(tensor)?).map_err(failed)?;
    }
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)
}

fn place(value: &Value, data: u64, length: u64) -> Option<Place> {
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
    within.then_some(Place { kind, size, start: data + start, bytes })
}

fn head(tensors: &[(String, Tensor)], note: &BTreeMap<String, String>) -> Fallible<String> {
    let mut head = Map::new();
    head.insert("__metadata__".to_owned(), json!(note));
    let mut start = 0;
    for (name, tensor) in tensors {
        let (dtype, width) = stored_as(tensor)?;
        let end = start + tensor.numel() as u64 * width;
        head.insert(
            name.clone(),
            json!({"dtype": dtype, "shape": tensor.size(), "data_offsets": [start, end]}),
        );
        start = end;
    }
    let mut text = Value::Object(head).to_string();
    // The numbers begin at a multiple of eight bytes.
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    Ok(text)
}

fn stored_as(tensor: &Tensor) -> Fallible<(&'static str, u64)> {
    let kind = tensor.f_kind()?;
    let known = KINDS.iter().find(|(_, known, _)| *known == kind);
    known
        .map(|(name, _, width)| (*name, *width))
        .ok_or_else(|| TchError::Kind(format!("{kind:?} are not stored")))
}

fn bytes(tensor: &Tensor) -> Fallible<Vec<u8>> {
    let host = tensor.f_detach()?.f_to_device(Device::Cpu)?.f_contiguous()?;
    let mut bytes = vec![0; host.numel() * stored_as(&host)?.1 as usize];
    host.f_copy_data_u8(&mut bytes, host.numel())?;
    Ok(bytes)
}
