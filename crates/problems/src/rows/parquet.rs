//! Reads Parquet row by row. Supports no compression, Snappy, gzip and LZ4; not Zstandard and Brotli, whose libraries
//! are large or not in Rust.
//!
//! The library may panic on a damaged file, so it runs on a thread of its own.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use parquet::{
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
    record::{Field, Row},
};
use serde_json::Value;

use super::{Digested, LARGEST_FILE, LARGEST_ROW, Reading, RowsError};

pub(super) fn read(path: &Path, reading: &mut Reading<'_>) -> Result<(), RowsError> {
    read_at_most(path, reading, LARGEST_FILE)
}

/// Reads a file whose rows have at most `most` bytes together. The size a file states is not a bound: with dictionary
/// encoding, a string stored once may be in any number of rows.
pub(super) fn read_at_most(
    path: &Path,
    reading: &mut Reading<'_>,
    most: u64,
) -> Result<(), RowsError> {
    digest(path, reading).map_err(|source| RowsError::Io { path: path.to_owned(), source })?;
    let (sender, rows) = sync_channel(4);
    let file = path.to_owned();
    let worker = thread::Builder::new().name("parquet".into()).spawn(move || send(&file, &sender));
    let worker = worker.map_err(|source| RowsError::Io { path: path.to_owned(), source })?;
    let received = receive(rows, reading, most);
    let result = worker.join().unwrap_or_else(|_| Err("its parts are inconsistent".into()));
    result.and(received).map_err(|why| RowsError::Parquet { path: path.to_owned(), why })
}

fn digest(path: &Path, reading: &mut Reading<'_>) -> io::Result<()> {
    let mut file = Digested { inner: File::open(path)?, digest: &mut reading.digest };
    let mut buffer = vec![0; 1 << 16];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Takes the receiver by value, so that the sender ends when this function returns.
fn receive(rows: Receiver<Value>, reading: &mut Reading<'_>, most: u64) -> Result<(), String> {
    let mut left = most;
    for (row, number) in rows.into_iter().zip(1..) {
        let length = length(&row);
        // A row without fields costs time as well.
        let Some(rest) = left.checked_sub(length as u64 + 1) else {
            return Err(format!("its rows have more than {most} bytes together"));
        };
        left = rest;
        match length {
            ..=LARGEST_ROW => reading.row(number, row),
            _ => reading.bad(number, format!("the row is longer than {LARGEST_ROW} bytes")),
        }
    }
    Ok(())
}

fn send(path: &PathBuf, rows: &SyncSender<Value>) -> Result<(), String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let reader = SerializedFileReader::new(file).map_err(|error| describe(&error))?;
    let groups = reader.metadata().row_groups();
    let size = groups.iter().fold(0_i64, |sum, group| sum.saturating_add(group.total_byte_size()));
    if !(0..=LARGEST_FILE as i64).contains(&size) {
        return Err(format!("it states a size of {size} bytes"));
    }
    for row in reader.get_row_iter(None).map_err(|error| describe(&error))? {
        // The receiver is gone when it has failed.
        if rows.send(object(&row.map_err(|error| describe(&error))?)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn object(row: &Row) -> Value {
    let fields = row.get_column_iter();
    Value::Object(fields.map(|(name, field)| (name.clone(), json(field))).collect())
}

/// A field as JSON. Older writers do not mark strings, so bytes that are UTF-8 are strings; others are null.
fn json(field: &Field) -> Value {
    match field {
        Field::Bytes(bytes) => bytes.as_utf8().map_or(Value::Null, Value::from),
        Field::Group(row) => object(row),
        Field::ListInternal(list) => list.elements().iter().map(json).collect(),
        Field::MapInternal(map) => {
            let entries = map.entries().iter().map(|(key, value)| (json(key), json(value)));
            let named = entries.map(|(key, value)| match key {
                Value::String(key) => (key, value),
                key => (key.to_string(), value),
            });
            Value::Object(named.collect())
        }
        plain => plain.to_json_value(),
    }
}

fn describe(error: &ParquetError) -> String {
    let text: String = error.to_string().chars().take(300).collect();
    match text.contains("isabled feature") {
        true => format!("{text}; convert it to Snappy, gzip, LZ4 or no compression"),
        false => text,
    }
}

/// The approximate length of a value as JSON.
fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(values) => values.iter().map(|value| length(value) + 1).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + 4 + length(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
    }
}
