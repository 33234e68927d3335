//! A GGUF file: opening it checks the whole head; numbers are read tensor by tensor when they are asked for.
//! Refuses to know what any tensor is for.

use std::collections::HashSet;
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::blocks;
use crate::kind::Kind;
use crate::read::Head;
use crate::value::Value;

/// The most entries of metadata, and the most tensors.
const MOST_ENTRIES: u64 = 1 << 16;
/// The largest alignment; the usual one is 32.
const LARGEST_ALIGNMENT: u64 = 1 << 20;

/// A GGUF file whose head has been read.
#[derive(Debug)]
pub struct File {
    file: std::fs::File,
    metadata: Vec<(String, Value)>,
    tensors: Vec<TensorInfo>,
}

/// What the table says of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its dimensions, the one that is contiguous first (the reverse of most libraries).
    pub dimensions: Vec<u64>,
    /// How its numbers are stored.
    pub kind: Kind,
    /// Where its bytes begin in the file.
    start: u64,
    /// How many numbers it has.
    numbers: u64,
}

/// Why a file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum OpenError {
    #[error("the file cannot be read")]
    Io(#[source] io::Error),
    #[error("this is no GGUF file")]
    NotGguf,
    #[error("version {0} of GGUF is not known, only 2 and 3 (in little-endian order)")]
    Version(u32),
    #[error("the file ends at byte {at}, within its head: it was cut off")]
    Truncated { at: u64 },
    #[error("{count} {what} are more than the file can hold or more than is accepted")]
    Count { what: &'static str, count: u64 },
    #[error("the text at byte {at} is not UTF-8")]
    Text { at: u64 },
    #[error("values of type {0} are not known, or not allowed there")]
    ValueType(u32),
    #[error("{0:?} appears twice")]
    Twice(String),
    #[error("an alignment that is no power of two up to {LARGEST_ALIGNMENT}")]
    Alignment,
    #[error("tensor {name:?} has dimensions {dimensions:?}, which no tensor of its kind has")]
    Dimensions { name: String, dimensions: Vec<u64> },
    #[error("tensor {name:?} does not lie within the file: it was cut off or is damaged")]
    Outside { name: String },
}

/// Why the numbers of a tensor cannot be had.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ReadError {
    #[error("there is no tensor {0:?}")]
    Missing(String),
    #[error("tensor {name:?} is stored as {kind:?}, which cannot be turned into numbers here")]
    Kind { name: String, kind: Kind },
    #[error("tensor {name:?} cannot be read")]
    Io {
        name: String,
        #[source]
        source: io::Error,
    },
}

impl File {
    /// Opens a file and checks its head: every text, every count, the place of every tensor.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let file = std::fs::File::open(path).map_err(OpenError::Io)?;
        let length = file.metadata().map_err(OpenError::Io)?.len();
        let mut head = Head::new(BufReader::new(&file), length);
        let (entries, tensors) = counts(&mut head)?;
        let metadata = metadata(&mut head, entries)?;
        let mut tensors = table(&mut head, tensors)?;
        let alignment = alignment(&metadata)?;
        let data = head.at().next_multiple_of(alignment);
        for tensor in &mut tensors {
            tensor.place(data, alignment, length)?;
        }
        drop(head);
        Ok(Self { file, metadata, tensors })
    }

    /// A value of metadata.
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

    /// What the table says of one tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// The numbers of a tensor, dequantised.
    pub fn numbers(&self, name: &str) -> Result<Vec<f32>, ReadError> {
        let tensor = self.tensor(name).ok_or_else(|| ReadError::Missing(name.to_owned()))?;
        let unknown = || ReadError::Kind { name: name.to_owned(), kind: tensor.kind };
        let block = tensor.kind.block().ok_or_else(unknown)?;
        let mut bytes = vec![0; (tensor.numbers / block.numbers * block.bytes) as usize];
        let failed = |source| ReadError::Io { name: name.to_owned(), source };
        self.file.read_exact_at(&mut bytes, tensor.start).map_err(failed)?;
        blocks::numbers(tensor.kind, &bytes).ok_or_else(unknown)
    }
}

impl TensorInfo {
    /// Turns the offset of the table into a place in the file, and checks it.
    fn place(&mut self, data: u64, alignment: u64, length: u64) -> Result<(), OpenError> {
        let outside = || OpenError::Outside { name: self.name.clone() };
        if !self.start.is_multiple_of(alignment) {
            return Err(outside());
        }
        let start = data.checked_add(self.start).ok_or_else(outside)?;
        // What is stored in an unknown way is as long as it is; nobody can read it anyway.
        let bytes = self
            .kind
            .block()
            .map_or(Some(0), |block| (self.numbers / block.numbers).checked_mul(block.bytes));
        let end = bytes.and_then(|bytes| start.checked_add(bytes)).ok_or_else(outside)?;
        if end > length {
            return Err(outside());
        }
        self.start = start;
        Ok(())
    }
}

fn counts<R: io::Read>(head: &mut Head<R>) -> Result<(u64, u64), OpenError> {
    match head.bytes() {
        Ok(magic) if magic == *b"GGUF" => {}
        Ok(_) | Err(OpenError::Truncated { .. }) => return Err(OpenError::NotGguf),
        Err(error) => return Err(error),
    }
    let version = head.u32()?;
    if !(2..=3).contains(&version) {
        return Err(OpenError::Version(version));
    }
    let tensors = head.count("tensors", MOST_ENTRIES, 1)?;
    let entries = head.count("entries of metadata", MOST_ENTRIES, 1)?;
    Ok((entries, tensors))
}

fn metadata<R: io::Read>(
    head: &mut Head<R>,
    count: u64,
) -> Result<Vec<(String, Value)>, OpenError> {
    let mut known = HashSet::new();
    let mut entries = Vec::new();
    for _ in 0..count {
        let key = head.key()?;
        if !known.insert(key.clone()) {
            return Err(OpenError::Twice(key));
        }
        entries.push((key, head.value()?));
    }
    Ok(entries)
}

fn table<R: io::Read>(head: &mut Head<R>, count: u64) -> Result<Vec<TensorInfo>, OpenError> {
    let mut known = HashSet::new();
    let mut tensors = Vec::new();
    for _ in 0..count {
        let name = head.key()?;
        if !known.insert(name.clone()) {
            return Err(OpenError::Twice(name));
        }
        let rank = head.u32()?;
        if !(1..=4).contains(&rank) {
            return Err(OpenError::Count { what: "dimensions of a tensor", count: rank.into() });
        }
        let dimensions = (0..rank).map(|_| head.u64()).collect::<Result<Vec<_>, _>>()?;
        let kind = Kind::from_code(head.u32()?);
        let start = head.u64()?;
        let numbers = match numbers_of(&dimensions, kind) {
            Some(numbers) => numbers,
            None => return Err(OpenError::Dimensions { name, dimensions }),
        };
        tensors.push(TensorInfo { name, dimensions, kind, start, numbers });
    }
    Ok(tensors)
}

/// How many numbers a tensor has; none where its rows are not whole blocks.
fn numbers_of(dimensions: &[u64], kind: Kind) -> Option<u64> {
    let row = *dimensions.first()?;
    let whole = kind.block().is_none_or(|block| row.is_multiple_of(block.numbers));
    let numbers = dimensions.iter().try_fold(1u64, |product, size| product.checked_mul(*size))?;
    (whole && numbers > 0).then_some(numbers)
}

fn alignment(metadata: &[(String, Value)]) -> Result<u64, OpenError> {
    let Some((_, value)) = metadata.iter().find(|(key, _)| key == "general.alignment") else {
        return Ok(32);
    };
    let usable = |alignment: &u64| alignment.is_power_of_two() && *alignment <= LARGEST_ALIGNMENT;
    value.as_u64().filter(usable).ok_or(OpenError::Alignment)
}
