//! Writing GGUF files of version 3 with tensors in single or half precision: enough for adapters. Does not quantize.

use std::io::{self, Write};

use half::f16;

use crate::tensor_type::TensorType;
use crate::value::{Array, Value};

const ALIGNMENT: u64 = 32;

/// A tensor to write.
#[derive(Debug, Clone)]
pub struct NewTensor {
    /// Its name.
    pub name: String,
    /// Its dimensions, the contiguous one first.
    pub dimensions: Vec<u64>,
    /// Its values.
    pub data: TensorData,
}

/// Values in the precision they are stored in.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorData {
    /// Single precision.
    F32(Vec<f32>),
    /// Half precision.
    F16(Vec<f16>),
}

impl TensorData {
    fn count(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
        }
    }

    fn tensor_type(&self) -> TensorType {
        match self {
            Self::F32(_) => TensorType::F32,
            Self::F16(_) => TensorType::F16,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::F32(values) => bytes(values, f32::to_le_bytes),
            Self::F16(values) => bytes(values, f16::to_le_bytes),
        }
    }

    /// Their size in bytes.
    fn size(&self) -> u64 {
        match self {
            Self::F32(values) => values.len() as u64 * 4,
            Self::F16(values) => values.len() as u64 * 2,
        }
    }
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The number of values does not match the dimensions.
    #[error(
        "tensor {name:?} has {values} values, which do not match its dimensions {dimensions:?}"
    )]
    Length {
        /// The tensor.
        name: String,
        /// Its dimensions.
        dimensions: Vec<u64>,
        /// The number of its values.
        values: usize,
    },
    /// Writing failed.
    #[error("cannot write the file")]
    Io(#[from] io::Error),
}

/// Writes a whole file.
pub fn write(
    sink: &mut impl Write,
    metadata: &[(String, Value)],
    tensors: &[NewTensor],
) -> Result<(), WriteError> {
    for tensor in tensors {
        let expected =
            tensor.dimensions.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
        if expected != Some(tensor.data.count() as u64)
            || !(1..=4).contains(&tensor.dimensions.len())
        {
            let (name, dimensions) = (tensor.name.clone(), tensor.dimensions.clone());
            return Err(WriteError::Length { name, dimensions, values: tensor.data.count() });
        }
    }
    let header = header(metadata, tensors);
    sink.write_all(&header)?;
    pad(sink, header.len() as u64)?;
    for tensor in tensors {
        let bytes = tensor.data.bytes();
        sink.write_all(&bytes)?;
        pad(sink, bytes.len() as u64)?;
    }
    Ok(())
}

fn header(metadata: &[(String, Value)], tensors: &[NewTensor]) -> Vec<u8> {
    let mut header = Vec::from(*b"GGUF");
    header.extend(3u32.to_le_bytes());
    header.extend((tensors.len() as u64).to_le_bytes());
    header.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_string(&mut header, key);
        put_value(&mut header, value);
    }
    let mut offset = 0u64;
    for tensor in tensors {
        put_string(&mut header, &tensor.name);
        header.extend((tensor.dimensions.len() as u32).to_le_bytes());
        header.extend(tensor.dimensions.iter().flat_map(|size| size.to_le_bytes()));
        header.extend(tensor.data.tensor_type().code().to_le_bytes());
        header.extend(offset.to_le_bytes());
        offset += tensor.data.size().next_multiple_of(ALIGNMENT);
    }
    header
}

fn pad(sink: &mut impl Write, written: u64) -> io::Result<()> {
    let zeros = [0; ALIGNMENT as usize];
    sink.write_all(&zeros[..(written.next_multiple_of(ALIGNMENT) - written) as usize])
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let mut put = |code: u32, bytes: &[u8]| {
        out.extend(code.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U8(value) => put(0, &value.to_le_bytes()),
        Value::I8(value) => put(1, &value.to_le_bytes()),
        Value::U16(value) => put(2, &value.to_le_bytes()),
        Value::I16(value) => put(3, &value.to_le_bytes()),
        Value::U32(value) => put(4, &value.to_le_bytes()),
        Value::I32(value) => put(5, &value.to_le_bytes()),
        Value::F32(value) => put(6, &value.to_le_bytes()),
        Value::Bool(value) => put(7, &[u8::from(*value)]),
        Value::U64(value) => put(10, &value.to_le_bytes()),
        Value::I64(value) => put(11, &value.to_le_bytes()),
        Value::F64(value) => put(12, &value.to_le_bytes()),
        Value::String(text) => {
            put(8, &[]);
            put_string(out, text);
        }
        Value::Array(array) => {
            put(9, &[]);
            put_array(out, array);
        }
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    let mut put = |code: u32, count: usize, bytes: Vec<u8>| {
        out.extend(code.to_le_bytes());
        out.extend((count as u64).to_le_bytes());
        out.extend(bytes);
    };
    match array {
        Array::U8(items) => put(0, items.len(), items.clone()),
        Array::I8(items) => put(1, items.len(), bytes(items, |item| item.to_le_bytes())),
        Array::U16(items) => put(2, items.len(), bytes(items, |item| item.to_le_bytes())),
        Array::I16(items) => put(3, items.len(), bytes(items, |item| item.to_le_bytes())),
        Array::U32(items) => put(4, items.len(), bytes(items, |item| item.to_le_bytes())),
        Array::I32(items) => put(5, items.len(), bytes(items, |item| item.to_le_bytes())),
        Array::F32(items) => put(6, items.len(), bytes(items, |item| item.to_le_bytes())),
        Array::Bool(items) => put(7, items.len(), bytes(items, |item| [u8::from(item)])),
        Array::U64(items) => put(10, items.len(), bytes(items, |item| item.to_le_bytes())),
        Array::I64(items) => put(11, items.len(), bytes(items, |item| item.to_le_bytes())),
        Array::F64(items) => put(12, items.len(), bytes(items, |item| item.to_le_bytes())),
        Array::String(texts) => {
            put(8, texts.len(), Vec::new());
            texts.iter().for_each(|text| put_string(out, text));
        }
    }
}

fn bytes<T: Copy, const N: usize>(items: &[T], of: fn(T) -> [u8; N]) -> Vec<u8> {
    items.iter().flat_map(|item| of(*item)).collect()
}
