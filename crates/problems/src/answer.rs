//! Where a model's answer is, its text as a grader gets it, and the right one.

use crate::{Grader, Problem, Task};

/// Where a model's answer is after an episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerLocation {
    /// In this file of the output directory; read it with [`clean_answer`].
    File(String),
    /// In the changes to a repository: run [`Task::diff_command`](crate::Task::diff_command), then read
    /// [`DIFF_FILE`](crate::swe::DIFF_FILE). If that is not UTF-8, run it again for ASCII: a patch with a replaced byte
    /// does not apply.
    Diff,
}

impl Task {
    /// An answer that has to get the full score: the reference answer, or the reference patch of a repository. `None` where
    /// there is no such answer, as for constraints on a text.
    pub fn right_answer(&self, problem: &Problem) -> Option<String> {
        match &self.grader {
            Grader::Ifbench => None,
            Grader::Tests => problem.field("patch").map(str::to_owned),
            _ => Some(problem.ground_truth.clone()).filter(|truth| !truth.trim().is_empty()),
        }
    }
}

/// The text of an answer file, read as the reference implementation reads it: invalid UTF-8 replaced, color codes
/// and carriage returns removed, white space trimmed.
pub fn clean_answer(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(at) = rest.find(['\u{1b}', '\r']) {
        clean.push_str(&rest[..at]);
        rest = &rest[at..];
        let skipped = color_code(rest).unwrap_or(1);
        if skipped == 1 && rest.starts_with('\u{1b}') {
            clean.push('\u{1b}');
        }
        rest = &rest[skipped..];
    }
    clean.push_str(rest);
    clean.trim_matches(is_space).to_owned()
}

/// The length of the color code the text starts with.
fn color_code(text: &str) -> Option<usize> {
    let inside = text.strip_prefix("\u{1b}[")?;
    let end = inside.find(|char: char| !(char.is_ascii_digit() || char == ';'))?;
    inside[end..].starts_with('m').then_some(2 + end + 1)
}

/// White space as Python defines it.
fn is_space(char: char) -> bool {
    char.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_cleaned_as_the_reference_does() {
        for (bytes, expected) in [
            (&b""[..], ""),
            (b" 42\r\n", "42"),
            (b"\x1b[1;32mgreen\x1b[0m", "green"),
            (b"\x1b[mx", "x"),
            (b"\x1b[2Jx\x1b[", "\u{1b}[2Jx\u{1b}["),
            (b"\x1b", "\u{1b}"),
            (b"a\rb\r\r", "ab"),
            (b"\x1b\r[0mx", "\u{1b}[0mx"),
            (b"\x1c\x1fz\xc2\xa0", "z"),
            (b"\xff\xfe", "\u{fffd}\u{fffd}"),
            ("\\boxed{é}\n".as_bytes(), "\\boxed{é}"),
        ] {
            assert_eq!(clean_answer(bytes), expected, "{bytes:?}");
        }
        let many = b"\x1b[0".repeat(100_000);
        assert_eq!(clean_answer(&many).len(), many.len());
    }
}
