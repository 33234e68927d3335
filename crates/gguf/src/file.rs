//! A GGUF file: opening it checks the whole header; values are read tensor by tensor on request.
//! Does not know what any tensor is for.

use std::collections::HashSet;
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::dequantize::dequantize;
use crate::header::HeaderReader;
use crate::tensor_type::TensorType;
use crate::value::Value;

/// The most metadata entries, and the most tensors.
const MAX_ENTRIES: u64 = 1 << 16;
/// The largest alignment; the usual one is 32.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// An open GGUF file whose header has been read.
#[derive(Debug)]
pub struct File {
    file: std::fs::File,
    metadata: Vec<(String, Value)>,
    tensors: Vec<TensorInfo>,
}

/// An entry of the table of tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its dimensions, the contiguous one first (the reverse of most libraries).
    pub dimensions: Vec<u64>,
    /// How its values are stored.
    pub tensor_type: TensorType,
    /// The position of its first byte in the file.
    start: u64,
    /// The number of its values.
    values: u64,
}

/// Why a file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum OpenError {
    #[error("the file cannot be read")]
    Io(#[source] io::Error),
    #[error("this is not a GGUF file")]
    NotGguf,
    #[error("GGUF version {0} is not supported, only 2 and 3 (little-endian)")]
    Version(u32),
    #[error("the file ends at byte {at}, within its header: it is truncated")]
    Truncated { at: u64 },
    #[error("{count} {what} are more than the file can hold or than is supported")]
    Count { what: &'static str, count: u64 },
    #[error("the string at byte {at} is not UTF-8")]
    Text { at: u64 },
    #[error("metadata values of type {0} are unknown, or not allowed there")]
    ValueType(u32),
    #[error("{0:?} appears twice")]
    Twice(String),
    #[error("the alignment is not a power of two up to {MAX_ALIGNMENT}")]
    Alignment,
    #[error("tensor {name:?} has dimensions {dimensions:?}, which its type does not allow")]
    Dimensions { name: String, dimensions: Vec<u64> },
    #[error("tensor {name:?} is not within the file: it is truncated or damaged")]
    Outside { name: String },
}

/// Why the values of a tensor cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ReadError {
    #[error("there is no tensor {0:?}")]
    Missing(String),
    #[error("tensor {name:?} is stored as {tensor_type:?}, which is not supported")]
    Type { name: String, tensor_type: TensorType },
    #[error("tensor {name:?} cannot be read")]
    Io {
        name: String,
        #[source]
        source: io::Error,
    },
}

impl File {
    /// Opens a file and checks its header: every string, every count, the position of every tensor.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let file = std::fs::File::open(path).map_err(OpenError::Io)?;
        let length = file.metadata().map_err(OpenError::Io)?.len();
        let mut header = HeaderReader::new(BufReader::new(&file), length);
        let (entries, tensors) = counts(&mut header)?;
        let metadata = metadata(&mut header, entries)?;
        let mut tensors = table(&mut header, tensors)?;
        let alignment = alignment(&metadata)?;
        let data = header.position().next_multiple_of(alignment);
        for tensor in &mut tensors {
            tensor.locate(data, alignment, length)?;
        }
        drop(header);
        Ok(Self { file, metadata, tensors })
    }

    /// The metadata value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// All metadata, in the order of the file.
    pub fn metadata(&self) -> &[(String, Value)] {
        &self.metadata
    }

    /// The table of tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The table's entry for a tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// Reads the values of a tensor, dequantized.
    pub fn read_f32(&self, name: &str) -> Result<Vec<f32>, ReadError> {
        let tensor = self.tensor(name).ok_or_else(|| ReadError::Missing(name.to_owned()))?;
        let tensor_type = tensor.tensor_type;
        let unsupported = || ReadError::Type { name: name.to_owned(), tensor_type };
        let block = tensor_type.block().ok_or_else(unsupported)?;
        let mut bytes = vec![0; (tensor.values / block.values * block.bytes) as usize];
        let failed = |source| ReadError::Io { name: name.to_owned(), source };
        self.file.read_exact_at(&mut bytes, tensor.start).map_err(failed)?;
        dequantize(tensor_type, &bytes).ok_or_else(unsupported)
    }
}

impl TensorInfo {
    /// Turns the table's offset into a position in the file, and checks it.
    fn locate(&mut self, data: u64, alignment: u64, length: u64) -> Result<(), OpenError> {
        let outside = || OpenError::Outside { name: self.name.clone() };
        if !self.start.is_multiple_of(alignment) {
            return Err(outside());
        }
        let start = data.checked_add(self.start).ok_or_else(outside)?;
        // The length of an unsupported type is unknown; it is never read.
        let bytes = self
            .tensor_type
            .block()
            .map_or(Some(0), |block| (self.values / block.values).checked_mul(block.bytes));
        let end = bytes.and_then(|bytes| start.checked_add(bytes)).ok_or_else(outside)?;
        if end > length {
            return Err(outside());
        }
        self.start = start;
        Ok(())
    }
}

fn counts<R: io::Read>(header: &mut HeaderReader<R>) -> Result<(u64, u64), OpenError> {
    match header.bytes() {
        Ok(magic) if magic == *b"GGUF" => {}
        Ok(_) | Err(OpenError::Truncated { .. }) => return Err(OpenError::NotGguf),
        Err(error) => return Err(error),
    }
    let version = header.u32()?;
    if !(2..=3).contains(&version) {
        return Err(OpenError::Version(version));
    }
    let tensors = header.count("tensors", MAX_ENTRIES, 1)?;
    let entries = header.count("metadata entries", MAX_ENTRIES, 1)?;
    Ok((entries, tensors))
}

fn metadata<R: io::Read>(
    header: &mut HeaderReader<R>,
    count: u64,
) -> Result<Vec<(String, Value)>, OpenError> {
    let mut known = HashSet::new();
    let mut entries = Vec::new();
    for _ in 0..count {
        let key = header.key()?;
        if !known.insert(key.clone()) {
            return Err(OpenError::Twice(key));
        }
        entries.push((key, header.value()?));
    }
    Ok(entries)
}

fn table<R: io::Read>(
    header: &mut HeaderReader<R>,
    count: u64,
) -> Result<Vec<TensorInfo>, OpenError> {
    let mut known = HashSet::new();
    let mut tensors = Vec::new();
    for _ in 0..count {
        let name = header.key()?;
        if !known.insert(name.clone()) {
            return Err(OpenError::Twice(name));
        }
        let rank = header.u32()?;
        if !(1..=4).contains(&rank) {
            return Err(OpenError::Count { what: "dimensions of a tensor", count: rank.into() });
        }
        let dimensions = (0..rank).map(|_| header.u64()).collect::<Result<Vec<_>, _>>()?;
        let tensor_type = TensorType::from_code(header.u32()?);
        let start = header.u64()?;
        let values = match value_count(&dimensions, tensor_type) {
            Some(values) => values,
            None => return Err(OpenError::Dimensions { name, dimensions }),
        };
        tensors.push(TensorInfo { name, dimensions, tensor_type, start, values });
    }
    Ok(tensors)
}

/// The number of a tensor's values; none where its rows are not whole blocks.
fn value_count(dimensions: &[u64], tensor_type: TensorType) -> Option<u64> {
    let row = *dimensions.first()?;
    let whole = tensor_type.block().is_none_or(|block| row.is_multiple_of(block.values));
    let values = dimensions.iter().try_fold(1u64, |product, size| product.checked_mul(*size))?;
    (whole && values > 0).then_some(values)
}

fn alignment(metadata: &[(String, Value)]) -> Result<u64, OpenError> {
    let Some((_, value)) = metadata.iter().find(|(key, _)| key == "general.alignment") else {
        return Ok(32);
    };
    let usable = |alignment: &u64| alignment.is_power_of_two() && *alignment <= MAX_ALIGNMENT;
    value.as_u64().filter(usable).ok_or(OpenError::Alignment)
}
