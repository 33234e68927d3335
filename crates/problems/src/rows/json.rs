//! Reads JSON: a list of rows, an object with such a list under `data`, or an object of columns of equal length. A
//! file that contains JSON lines in spite of its name is read as such.
//!
//! Lists are read row by row, so that only the problems have to fit into memory.

use std::{
    cell::Cell,
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    mem,
    path::Path,
};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use super::{Digested, LARGEST_ROW, Reading, RowsError, lines};

/// How many bytes a file may make us keep.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Of one row.
    pub(super) row: usize,
    /// Of all columns together, which are read into memory.
    pub(super) columns: usize,
}

const BOUNDS: Bounds = Bounds { row: LARGEST_ROW, columns: 512 << 20 };
/// How many bytes of a file tell its format.
const PEEKED: usize = 1 << 18;

pub(super) fn read(path: &Path, reading: &mut Reading<'_>) -> Result<(), RowsError> {
    read_within(path, reading, BOUNDS)
}

/// Reads a file.
pub(super) fn read_within(
    path: &Path,
    reading: &mut Reading<'_>,
    bounds: Bounds,
) -> Result<(), RowsError> {
    let failed = |source| RowsError::Io { path: path.to_owned(), source };
    if are_lines(File::open(path).map_err(failed)?).map_err(failed)? {
        return lines::read(path, reading);
    }
    let mut digest = mem::take(&mut reading.digest);
    let digested = Digested { inner: File::open(path).map_err(failed)?, digest: &mut digest };
    let mut file = BufReader::with_capacity(PEEKED, digested);
    if file.fill_buf().map_err(failed)?.starts_with(b"\xef\xbb\xbf") {
        file.consume(3);
    }
    let left = Cell::new(bounds.row);
    let mut reader = serde_json::Deserializer::from_reader(Bounded { inner: file, left: &left });
    let whole = Whole { reading, left: &left, bounds };
    let result = (&mut reader).deserialize_any(whole).and_then(|()| reader.end());
    drop(reader);
    reading.digest = digest;
    result.map_err(|source| RowsError::Json { path: path.to_owned(), source })
}

/// Whether the first line is an object and the second begins another. A file whose first line is longer than
/// [`PEEKED`] has to be named `.jsonl`.
fn are_lines(file: File) -> io::Result<bool> {
    let mut start = Vec::new();
    file.take(PEEKED as u64).read_to_end(&mut start)?;
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&start);
    let mut lines = start.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else { return Ok(false) };
    let object = serde_json::from_slice::<Map<String, Value>>(first).is_ok();
    Ok(object && second.trim_ascii_start().starts_with(b"{"))
}

/// A reader that fails on a row that is too long.
struct Bounded<'a, R> {
    inner: R,
    left: &'a Cell<usize>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        match self.left.get().checked_sub(read) {
            Some(left) => self.left.set(left),
            None => return Err(io::Error::other("a row is too long")),
        }
        Ok(read)
    }
}

/// The whole JSON document.
struct Whole<'a, 'b, 'c> {
    reading: &'a mut Reading<'c>,
    left: &'b Cell<usize>,
    bounds: Bounds,
}

impl<'de> Visitor<'de> for Whole<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rows, or an object with one under `data`, or an object of columns")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        let mut number = 0;
        while let Some(row) = rows.next_element::<Value>()? {
            number += 1;
            self.left.set(self.bounds.row);
            self.reading.row(number, row);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { reading, left, bounds } = self;
        let mut columns = Map::new();
        let mut found = false;
        left.set(bounds.columns);
        while let Some(key) = map.next_key::<String>()? {
            if key == "data" {
                map.next_value_seed(Whole { reading: &mut *reading, left, bounds })?;
                found = true;
            } else {
                columns.insert(key, map.next_value()?);
            }
        }
        if found {
            return Ok(());
        }
        rows_of(columns, reading).map_err(A::Error::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Whole<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

/// Turns columns into rows.
fn rows_of(columns: Map<String, Value>, reading: &mut Reading<'_>) -> Result<(), String> {
    let mut lists = Vec::new();
    for (name, column) in columns {
        let Value::Array(values) = column else {
            return Err(
                "the document is one object: neither a list of rows nor columns of values".into()
            );
        };
        lists.push((name, values.into_iter()));
    }
    let length = lists.first().map_or(0, |(_, values)| values.len());
    if let Some((name, values)) = lists.iter().find(|(_, values)| values.len() != length) {
        return Err(format!(
            "column `{name}` has {} values, the first column {length}",
            values.len()
        ));
    }
    for number in 1..=length {
        let fields = lists.iter_mut().map(|(name, values)| (name.clone(), values.next().into()));
        reading.row(number as u64, Value::Object(fields.collect()));
    }
    Ok(())
}
