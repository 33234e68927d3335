//! Edits of a file's bytes. What lies outside an edit is never touched, whatever its encoding or line ends.
//!
//! Knows neither paths nor sandboxes, and says nothing to the model.

use std::{borrow::Cow, ops::Range};

use memchr::{memchr, memchr_iter, memmem};

/// So many places a text is looked for; more are not told apart.
pub(crate) const MOST_MATCHES: usize = 20;

/// A file after an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// All its bytes.
    pub(crate) bytes: Vec<u8>,
    /// The bytes that are new.
    pub(crate) new: Range<usize>,
    /// Whether line ends were adapted.
    pub(crate) ends: Ends,
}

/// What became of the line ends of a text that the model gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// They are as given.
    AsGiven,
    /// They became CR LF, like the file's.
    MadeCrlf,
}

/// Why a text cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoChange {
    /// It is nowhere in the file.
    Absent,
    /// It is in several places: their lines, from 1, at most [`MOST_MATCHES`] of them.
    Ambiguous(Vec<usize>),
}

/// Replaces the one occurrence of `old`.
///
/// Where a file has CR LF and `old` has LF, it is found all the same, and `new` gets CR LF too.
pub(crate) fn replace(file: &[u8], old: &str, new: &str) -> Result<Changed, NoChange> {
    let mut exact = places(file, old.as_bytes());
    // A match that begins between CR and LF would tear a line end apart.
    exact.retain(|at| !(old.starts_with('\n') && file[..*at].ends_with(b"\r")));
    let (old, exact) = if exact.is_empty() && has_bare_lf(old) {
        let crlf = with_crlf(old);
        let found = places(file, crlf.as_bytes());
        (crlf, found)
    } else {
        (Cow::Borrowed(old), exact)
    };
    let at = match exact.as_slice() {
        [] => return Err(NoChange::Absent),
        [at] => *at,
        _ => return Err(NoChange::Ambiguous(lines_of(file, &exact))),
    };
    // Text that names its own line ends is taken at its word; a piece of a line follows its surroundings.
    let crlf = if old.contains('\n') { !has_bare_lf(&old) } else { crlf_at(file, at) };
    let (new, ends) = adapted(new, crlf);
    Ok(spliced(file, at..at + old.len(), new.as_bytes(), ends))
}

/// Inserts `new` as lines of its own after line `after`, 0 being the top. `None` when there is no such line.
pub(crate) fn insert(file: &[u8], after: usize, new: &str) -> Option<Changed> {
    let at = end_of_line(file, after)?;
    let crlf = crlf_at(file, at.saturating_sub(1));
    let (new, ends) = adapted(new, crlf);
    let newline = if crlf { "\r\n" } else { "\n" };
    let unfinished = at > 0 && file[at - 1] != b'\n';
    let mut text = String::with_capacity(new.len() + 2);
    if unfinished {
        text.push_str(newline);
    }
    text.push_str(&new);
    // A file that lacked its last line end goes on lacking it.
    if !unfinished && !new.ends_with('\n') {
        text.push_str(newline);
    }
    let mut changed = spliced(file, at..at, text.as_bytes(), ends);
    if unfinished {
        changed.new.start += newline.len();
    }
    Some(changed)
}

/// How many lines there are. The last one need not have an end.
pub(crate) fn count_lines(file: &[u8]) -> usize {
    let ends = memchr_iter(b'\n', file).count();
    ends + usize::from(file.last().is_some_and(|byte| *byte != b'\n'))
}

/// The line of an offset, from 1.
pub(crate) fn line_of(file: &[u8], at: usize) -> usize {
    memchr_iter(b'\n', &file[..at.min(file.len())]).count() + 1
}

/// The lines, without their ends.
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

fn places(file: &[u8], text: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    if text.is_empty() {
        return found;
    }
    let finder = memmem::Finder::new(text);
    let mut from = 0;
    while found.len() < MOST_MATCHES {
        let Some(next) = file.get(from..).and_then(|rest| finder.find(rest)) else { break };
        found.push(from + next);
        // Occurrences may overlap: each is one too many.
        from += next + 1;
    }
    found
}

fn lines_of(file: &[u8], places: &[usize]) -> Vec<usize> {
    let (mut line, mut from) = (1, 0);
    let mut lines = Vec::new();
    for at in places {
        line += memchr_iter(b'\n', &file[from..*at]).count();
        from = *at;
        lines.push(line);
    }
    lines
}

/// Where line `number` ends, its line end included.
fn end_of_line(file: &[u8], number: usize) -> Option<usize> {
    if number == 0 {
        return Some(0);
    }
    match memchr_iter(b'\n', file).nth(number - 1) {
        Some(end) => Some(end + 1),
        None => (number == count_lines(file)).then_some(file.len()),
    }
}

/// Whether the line at an offset ends with CR LF; for a last line without an end, whether most do.
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

fn adapted(text: &str, crlf: bool) -> (Cow<'_, str>, Ends) {
    if crlf && has_bare_lf(text) {
        (with_crlf(text), Ends::MadeCrlf)
    } else {
        (Cow::Borrowed(text), Ends::AsGiven)
    }
}

fn spliced(file: &[u8], old: Range<usize>, new: &[u8], ends: Ends) -> Changed {
    let bytes = [&file[..old.start], new, &file[old.end..]].concat();
    Changed { bytes, new: old.start..old.start + new.len(), ends }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
