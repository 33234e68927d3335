//! The header of a file, item by item: integers, strings, arrays. Never allocates more than the rest of the file could
//! fill. Does not know what the items mean.

use std::io::{self, Read};

use crate::file::OpenError;
use crate::value::{Array, Value};

/// The longest string, in bytes.
const MAX_STRING: u64 = 64 << 20;
/// The longest key, in bytes.
const MAX_KEY: u64 = 64 << 10;
/// The most items of an array.
const MAX_ARRAY: u64 = 1 << 24;

/// A reader that tracks its position and the end of the file.
pub(crate) struct HeaderReader<R> {
    inner: R,
    position: u64,
    end: u64,
}

impl<R: Read> HeaderReader<R> {
    pub(crate) fn new(inner: R, end: u64) -> Self {
        Self { inner, position: 0, end }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], OpenError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, OpenError> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, OpenError> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// A count of items that each take at least `least` bytes.
    pub(crate) fn count(
        &mut self,
        what: &'static str,
        most: u64,
        least: u64,
    ) -> Result<u64, OpenError> {
        let count = self.u64()?;
        if count > most || count.saturating_mul(least) > self.end - self.position {
            return Err(OpenError::Count { what, count });
        }
        Ok(count)
    }

    pub(crate) fn key(&mut self) -> Result<String, OpenError> {
        self.string_up_to("bytes of a name", MAX_KEY)
    }

    pub(crate) fn value(&mut self) -> Result<Value, OpenError> {
        Ok(match self.u32()? {
            0 => Value::U8(u8::from_le_bytes(self.bytes()?)),
            1 => Value::I8(i8::from_le_bytes(self.bytes()?)),
            2 => Value::U16(u16::from_le_bytes(self.bytes()?)),
            3 => Value::I16(i16::from_le_bytes(self.bytes()?)),
            4 => Value::U32(self.u32()?),
            5 => Value::I32(i32::from_le_bytes(self.bytes()?)),
            6 => Value::F32(f32::from_le_bytes(self.bytes()?)),
            7 => Value::Bool(to_bool(self.bytes()?)),
            8 => Value::String(self.string()?),
            9 => Value::Array(self.array()?),
            10 => Value::U64(self.u64()?),
            11 => Value::I64(i64::from_le_bytes(self.bytes()?)),
            12 => Value::F64(f64::from_le_bytes(self.bytes()?)),
            code => return Err(OpenError::ValueType(code)),
        })
    }

    fn array(&mut self) -> Result<Array, OpenError> {
        Ok(match self.u32()? {
            0 => Array::U8(self.items(u8::from_le_bytes)?),
            1 => Array::I8(self.items(i8::from_le_bytes)?),
            2 => Array::U16(self.items(u16::from_le_bytes)?),
            3 => Array::I16(self.items(i16::from_le_bytes)?),
            4 => Array::U32(self.items(u32::from_le_bytes)?),
            5 => Array::I32(self.items(i32::from_le_bytes)?),
            6 => Array::F32(self.items(f32::from_le_bytes)?),
            7 => Array::Bool(self.items(to_bool)?),
            8 => Array::String(self.strings()?),
            10 => Array::U64(self.items(u64::from_le_bytes)?),
            11 => Array::I64(self.items(i64::from_le_bytes)?),
            12 => Array::F64(self.items(f64::from_le_bytes)?),
            code => return Err(OpenError::ValueType(code)),
        })
    }

    fn items<T, const N: usize>(&mut self, item: fn([u8; N]) -> T) -> Result<Vec<T>, OpenError> {
        let count = self.count("items of an array", MAX_ARRAY, N as u64)?;
        (0..count).map(|_| self.bytes().map(item)).collect()
    }

    fn strings(&mut self) -> Result<Vec<String>, OpenError> {
        let count = self.count("strings of an array", MAX_ARRAY, 8)?;
        (0..count).map(|_| self.string()).collect()
    }

    fn string(&mut self) -> Result<String, OpenError> {
        self.string_up_to("bytes of a string", MAX_STRING)
    }

    fn string_up_to(&mut self, what: &'static str, most: u64) -> Result<String, OpenError> {
        let length = self.count(what, most, 1)?;
        let mut bytes = vec![0; length as usize];
        let at = self.position;
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| OpenError::Text { at })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), OpenError> {
        match self.inner.read_exact(bytes) {
            Ok(()) => self.position += bytes.len() as u64,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(OpenError::Truncated { at: self.position });
            }
            Err(error) => return Err(OpenError::Io(error)),
        }
        // A file that grows while it is read must not invalidate the bounds above.
        if self.position > self.end { Err(OpenError::Truncated { at: self.end }) } else { Ok(()) }
    }
}

fn to_bool(byte: [u8; 1]) -> bool {
    byte != [0]
}
