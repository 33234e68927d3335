//! TensorBoard event files with scalar summaries.
//!
//! The records (length, masked CRC-32C, payload, masked CRC-32C) and the few protobuf fields are encoded by hand. A
//! resumed run starts a new file, whose first event voids the later steps of older files.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::crc::masked;

/// An event file being written.
#[derive(Debug)]
pub(crate) struct EventFile {
    file: File,
}

impl EventFile {
    /// Creates a file in a directory; steps after `step` in older files become void.
    pub(crate) fn create(dir: &Path, step: u64) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let now = seconds();
        let mut number = 0;
        let file = loop {
            let name = format!("events.out.tfevents.{:010}.{number}.train", now as u64);
            match OpenOptions::new().write(true).create_new(true).open(dir.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                opened => break opened?,
            }
        };
        let mut events = Self { file };
        events.record(&version(now))?;
        if step > 0 {
            events.record(&restarted(now, step + 1))?;
        }
        Ok(events)
    }

    /// Adds the values of a step; non-finite ones are omitted.
    pub(crate) fn add(&mut self, step: u64, numbers: &[(String, f64)]) -> io::Result<()> {
        self.record(&scalars(seconds(), step, numbers))?;
        self.file.flush()
    }

    fn record(&mut self, event: &[u8]) -> io::Result<()> {
        let length = (event.len() as u64).to_le_bytes();
        let mut bytes = Vec::with_capacity(event.len() + 16);
        bytes.extend(length);
        bytes.extend(masked(&length).to_le_bytes());
        bytes.extend(event);
        bytes.extend(masked(event).to_le_bytes());
        self.file.write_all(&bytes)
    }
}

fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}

/// The wire types of protobuf fields in use.
const VARINT: u64 = 0;
const DOUBLE: u64 = 1;
const BYTES: u64 = 2;
const FLOAT: u64 = 5;

/// `Event { wall_time: 1, step: 2, file_version: 3, summary: 5, session_log: 7 }`
fn event(time: f64, step: u64) -> Vec<u8> {
    let mut event = Vec::new();
    varint(1 << 3 | DOUBLE, &mut event);
    event.extend(time.to_le_bytes());
    varint(2 << 3 | VARINT, &mut event);
    varint(step, &mut event);
    event
}

fn version(time: f64) -> Vec<u8> {
    let mut version = event(time, 0);
    bytes(3, b"brain.Event:2", &mut version);
    version
}

/// `SessionLog { status: 1 = START }`: later steps of older files are void.
fn restarted(time: f64, step: u64) -> Vec<u8> {
    let mut restarted = event(time, step);
    bytes(7, &[(1 << 3 | VARINT) as u8, 1], &mut restarted);
    restarted
}

/// `Summary { value: 1 = [Value { tag: 1, simple_value: 2 }] }`
fn scalars(time: f64, step: u64, numbers: &[(String, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (name, number) in numbers.iter().filter(|(_, number)| number.is_finite()) {
        let mut value = Vec::new();
        bytes(1, name.as_bytes(), &mut value);
        varint(2 << 3 | FLOAT, &mut value);
        value.extend((*number as f32).to_le_bytes());
        bytes(1, &value, &mut summary);
    }
    let mut scalars = event(time, step);
    bytes(5, &summary, &mut scalars);
    scalars
}

fn bytes(field: u64, content: &[u8], out: &mut Vec<u8>) {
    varint(field << 3 | BYTES, out);
    varint(content.len() as u64, out);
    out.extend(content);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records of a file, their checksums tested.
    fn records(bytes: &[u8]) -> Vec<&[u8]> {
        let mut rest = bytes;
        let mut records = Vec::new();
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap());
            assert_eq!(u32::from_le_bytes(rest[8..12].try_into().unwrap()), masked(&rest[..8]));
            let end = 12 + length as usize;
            assert_eq!(
                u32::from_le_bytes(rest[end..end + 4].try_into().unwrap()),
                masked(&rest[12..end])
            );
            records.push(&rest[12..end]);
            rest = &rest[end + 4..];
        }
        records
    }

    #[test]
    fn records_hold_what_tensorboard_expects() {
        let dir = tempfile::tempdir().unwrap();
        let mut events = EventFile::create(dir.path(), 0).unwrap();
        events.add(300, &[("a/b".into(), 0.5), ("none".into(), f64::NAN)]).unwrap();
        let path = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        let written = fs::read(path).unwrap();
        let records = records(&written);
        assert_eq!(records.len(), 2);
        assert_eq!(records[0][9..], *b"\x10\x00\x1a\x0dbrain.Event:2");
        // Step 300; a summary of ten and two bytes: tag "a/b", value 0.5.
        assert_eq!(
            records[1][9..],
            *b"\x10\xac\x02\x2a\x0c\x0a\x0a\x0a\x03a/b\x15\x00\x00\x00\x3f"
        );
    }

    #[test]
    fn resuming_voids_later_steps_in_a_new_file() {
        let dir = tempfile::tempdir().unwrap();
        EventFile::create(dir.path(), 0).unwrap();
        EventFile::create(dir.path(), 7).unwrap();
        let mut paths: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert_eq!(paths.len(), 2);
        let written = fs::read(&paths[1]).unwrap();
        assert_eq!(records(&written)[1][9..], *b"\x10\x08\x3a\x02\x08\x01");
    }
}
