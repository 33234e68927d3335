//! Reads JSON lines: one object per line. Blank lines are ignored.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use super::{LARGEST_ROW, Reading, RowsError};

pub(super) fn read(path: &Path, reading: &mut Reading<'_>) -> Result<(), RowsError> {
    let failed = |source| RowsError::Io { path: path.to_owned(), source };
    let mut file = BufReader::with_capacity(1 << 16, File::open(path).map_err(failed)?);
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        let read = (&mut file).take(LARGEST_ROW as u64 + 1).read_until(b'\n', &mut line);
        if read.map_err(failed)? == 0 {
            return Ok(());
        }
        number += 1;
        reading.bytes(&line);
        if line.len() > LARGEST_ROW && !line.ends_with(b"\n") {
            skip_line(&mut file, reading).map_err(failed)?;
            reading.bad(number, format!("the row is longer than {LARGEST_ROW} bytes"));
            continue;
        }
        read_line(reading, number, &line);
    }
}

fn read_line(reading: &mut Reading<'_>, number: u64, line: &[u8]) {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if line.trim_ascii().is_empty() {
        return;
    }
    match serde_json::from_slice(line) {
        Ok(value) => reading.row(number, value),
        Err(error) => reading.bad(number, format!("not valid JSON: {error}")),
    }
}

fn skip_line(file: &mut impl BufRead, reading: &mut Reading<'_>) -> io::Result<()> {
    loop {
        let buffer = file.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |at| at + 1);
        reading.bytes(&buffer[..used]);
        file.consume(used);
        if end.is_some() || used == 0 {
            return Ok(());
        }
    }
}
