//! Data on standard output; everything else goes to standard error, through [`note`].
//!
//! Output of sandboxed programs does not pass through here.

use std::io::{self, Write};

pub(crate) use startup::note;
use trajectory::escape_hidden;

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
pub(crate) struct OutputError(#[source] io::Error);

impl OutputError {
    /// Whether the reader closed the pipe.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Writes one or more lines to standard output, for people: what is hidden becomes visible, see [`startup::sanitize`].
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    print_raw(&startup::sanitize(text))
}

/// Writes one or more lines to standard output as they are: for programs, and for text that was sanitized before it was
/// colored.
pub(crate) fn print_raw(text: &str) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    out.write_all(text.trim_end_matches('\n').as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .map_err(OutputError)
}

/// Writes a value to standard output as one JSON document. Hidden characters are escaped.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), OutputError> {
    let text = serde_json::to_string_pretty(value).map_err(|e| OutputError(e.into()))?;
    print_raw(&escape_hidden(&text))
}

/// Writes an event to standard error as one line of JSON. Hidden characters are escaped; a closed standard error is
/// ignored.
pub(crate) fn note_json(event: &serde_json::Value) {
    let _ = writeln!(io::stderr(), "{}", escape_hidden(&event.to_string()));
}

/// A word as a shell reads it, quoted where needed: for commands that users may copy.
pub(crate) fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,+=@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Aligns columns, separated by two spaces; the first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_quoted("/a/b-c_1.x:2"), "/a/b-c_1.x:2");
        assert_eq!(shell_quoted("/my runs/it's $(x)"), r"'/my runs/it'\''s $(x)'");
        assert_eq!(shell_quoted(""), "''");
    }

    #[test]
    fn columns_line_up() {
        let rows = [["NAME", "SIZE"], ["größer", "1"], ["x", "22"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "NAME    SIZE\ngrößer  1\nx       22");
    }
}
