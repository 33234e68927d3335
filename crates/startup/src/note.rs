//! Lines on standard error.

use std::{
    io::{self, Write},
    sync::OnceLock,
};

use crate::{sanitize, terminal};

/// Longer lines are cut, in characters.
const MAX_LENGTH: usize = 4000;

static PROGRAM: OnceLock<&str> = OnceLock::new();

pub(crate) fn set_program(name: &'static str) {
    // A second call, as in tests, changes nothing.
    let _ = PROGRAM.set(name);
}

/// Writes `NAME: text` to standard error as one line. Control characters are escaped; a line longer than 4000
/// characters is cut. A closed standard error is ignored.
pub fn note(text: &str) {
    // A raw terminal does not return to the start of the line by itself.
    let end = if terminal::is_raw() { "\r\n" } else { "\n" };
    let program = PROGRAM.get().copied().unwrap_or("llm-in-sandbox");
    let _ = write!(io::stderr(), "{program}: {}{end}", one_line(text));
}

fn one_line(text: &str) -> String {
    let mut line = sanitize(text).replace('\n', "\\n");
    if let Some((end, _)) = line.char_indices().nth(MAX_LENGTH) {
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_one_line_of_bounded_length() {
        assert_eq!(one_line("a\nb\x1b[0m"), "a\\nb\\x1b[0m");
        assert_eq!(one_line(&"é".repeat(5000)).chars().count(), MAX_LENGTH + 1);
    }
}
