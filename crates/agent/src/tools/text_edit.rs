//! Replaces and inserts text in the bytes of a file. Bytes outside the edit never change, whatever their encoding or
//! line endings.
//!
//! Knows neither paths nor sandboxes, and writes no text for the model.

use std::{borrow::Cow, ops::Range};

use memchr::{memchr, memchr_iter, memmem};

/// The most matches of a text that are searched for.
pub(crate) const MAX_MATCHES: usize = 20;

/// A file after an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edited {
    /// The whole file.
    pub(crate) bytes: Vec<u8>,
    /// The range of the new bytes.
    pub(crate) new: Range<usize>,
    /// Whether line endings were converted.
    pub(crate) line_endings: LineEndings,
}

/// What happened to the line endings of the new text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEndings {
    /// They are unchanged.
    AsGiven,
    /// They were converted to CR LF, like those of the file.
    ConvertedToCrlf,
}

/// Why a text is not replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EditError {
    /// The file does not contain it.
    Absent,
    /// The file contains it several times: the lines of the matches, from 1, at most [`MAX_MATCHES`] of them.
    Ambiguous(Vec<usize>),
}

/// Replaces the one occurrence of `old`.
///
/// Where the file has CR LF and `old` has LF, it matches all the same, and `new` gets CR LF too.
pub(crate) fn replace(file: &[u8], old: &str, new: &str) -> Result<Edited, EditError> {
    let mut exact = matches(file, old.as_bytes());
    // A match that begins between CR and LF would split a line ending.
    exact.retain(|at| !(old.starts_with('\n') && file[..*at].ends_with(b"\r")));
    let (old, exact) = if exact.is_empty() && has_bare_lf(old) {
        let crlf = with_crlf(old);
        let found = matches(file, crlf.as_bytes());
        (crlf, found)
    } else {
        (Cow::Borrowed(old), exact)
    };
    let at = match exact.as_slice() {
        [] => return Err(EditError::Absent),
        [at] => *at,
        _ => return Err(EditError::Ambiguous(lines_of(file, &exact))),
    };
    // Text with line endings decides for itself; a part of a line follows the line it is in.
    let crlf = if old.contains('\n') { !has_bare_lf(&old) } else { crlf_at(file, at) };
    let (new, line_endings) = adapted(new, crlf);
    Ok(spliced(file, at..at + old.len(), new.as_bytes(), line_endings))
}

/// Inserts `new` as separate lines after line `after`; 0 is the top. `None` if there is no such line.
pub(crate) fn insert(file: &[u8], after: usize, new: &str) -> Option<Edited> {
    let at = end_of_line(file, after)?;
    let crlf = crlf_at(file, at.saturating_sub(1));
    let (new, line_endings) = adapted(new, crlf);
    let newline = if crlf { "\r\n" } else { "\n" };
    let unfinished = at > 0 && file[at - 1] != b'\n';
    let mut text = String::with_capacity(new.len() + 2);
    if unfinished {
        text.push_str(newline);
    }
    text.push_str(&new);
    // A file without a final newline stays without it.
    if !unfinished && !new.ends_with('\n') {
        text.push_str(newline);
    }
    let mut changed = spliced(file, at..at, text.as_bytes(), line_endings);
    if unfinished {
        changed.new.start += newline.len();
    }
    Some(changed)
}

/// The number of lines. The last one may lack a newline.
pub(crate) fn count_lines(file: &[u8]) -> usize {
    let ends = memchr_iter(b'\n', file).count();
    ends + usize::from(file.last().is_some_and(|byte| *byte != b'\n'))
}

/// The line of an offset, from 1.
pub(crate) fn line_of(file: &[u8], at: usize) -> usize {
    memchr_iter(b'\n', &file[..at.min(file.len())]).count() + 1
}

/// The lines, without their line endings.
pub(crate) fn lines(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = file;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (line, after) = match memchr(b'\n', rest) {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &rest[rest.len()..]),
        };
        rest = after;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    })
}

/// Whether most lines end with CR LF.
pub(crate) fn mostly_crlf(file: &[u8]) -> bool {
    let (mut crlf, mut all) = (0usize, 0usize);
    for end in memchr_iter(b'\n', file) {
        all += 1;
        crlf += usize::from(end > 0 && file[end - 1] == b'\r');
    }
    crlf * 2 > all
}

fn matches(file: &[u8], text: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    if text.is_empty() {
        return found;
    }
    let finder = memmem::Finder::new(text);
    let mut from = 0;
    while found.len() < MAX_MATCHES {
        let Some(next) = file.get(from..).and_then(|rest| finder.find(rest)) else { break };
        found.push(from + next);
        // Overlapping matches are ambiguous as well.
        from += next + 1;
    }
    found
}

fn lines_of(file: &[u8], offsets: &[usize]) -> Vec<usize> {
    let (mut line, mut from) = (1, 0);
    let mut lines = Vec::new();
    for at in offsets {
        line += memchr_iter(b'\n', &file[from..*at]).count();
        from = *at;
        lines.push(line);
    }
    lines
}

/// The offset after line `number` and its newline.
fn end_of_line(file: &[u8], number: usize) -> Option<usize> {
    if number == 0 {
        return Some(0);
    }
    match memchr_iter(b'\n', file).nth(number - 1) {
        Some(end) => Some(end + 1),
        None => (number == count_lines(file)).then_some(file.len()),
    }
}

/// Whether the line at an offset ends with CR LF; for a last line without a newline, whether most lines do.
fn crlf_at(file: &[u8], at: usize) -> bool {
    let at = at.min(file.len());
    match memchr(b'\n', &file[at..]) {
        Some(0) if at == 0 => false,
        Some(end) => file[at + end - 1] == b'\r',
        None => mostly_crlf(file),
    }
}

fn has_bare_lf(text: &str) -> bool {
    let bytes = text.as_bytes();
    memchr_iter(b'\n', bytes).any(|at| at == 0 || bytes[at - 1] != b'\r')
}

fn with_crlf(text: &str) -> Cow<'_, str> {
    if !has_bare_lf(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    let mut last = '\0';
    for c in text.chars() {
        if c == '\n' && last != '\r' {
            out.push('\r');
        }
        out.push(c);
        last = c;
    }
    Cow::Owned(out)
}

fn adapted(text: &str, crlf: bool) -> (Cow<'_, str>, LineEndings) {
    if crlf && has_bare_lf(text) {
        (with_crlf(text), LineEndings::ConvertedToCrlf)
    } else {
        (Cow::Borrowed(text), LineEndings::AsGiven)
    }
}

fn spliced(file: &[u8], old: Range<usize>, new: &[u8], line_endings: LineEndings) -> Edited {
    let bytes = [&file[..old.start], new, &file[old.end..]].concat();
    Edited { bytes, new: old.start..old.start + new.len(), line_endings }
}

#[cfg(test)]
#[path = "text_edit_tests.rs"]
mod tests;
