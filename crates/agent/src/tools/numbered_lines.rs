//! Shows lines of a file with their numbers: of any bytes, within a number of characters.
//!
//! Works on bytes in memory. Knows no paths.

use std::{borrow::Cow, fmt::Write as _, ops::RangeInclusive};

use super::text_edit::{count_lines, line_of, lines};

/// Lines shown before and after an edit.
const CONTEXT: usize = 4;
/// The most characters of a snippet.
const MAX_SNIPPET: usize = 4000;

/// Lines of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumberedLines {
    /// The numbered lines.
    pub(crate) text: String,
    /// The last line shown.
    pub(crate) last: usize,
    /// What is shown differently from the file.
    pub(crate) altered: Altered,
}

/// Counts of what is shown differently from the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Altered {
    /// Lines that are truncated.
    pub(crate) long: usize,
    /// Bytes that are not UTF-8.
    pub(crate) invalid: usize,
    /// Control characters.
    pub(crate) controls: usize,
}

impl Altered {
    /// Notes about it for the model.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.invalid > 0 {
            notes.push(format!("{} not UTF-8, shown as \u{fffd}", counted(self.invalid, "byte")));
        }
        if self.controls > 0 {
            let controls = counted(self.controls, "control character");
            notes.push(format!("{controls} shown as symbols"));
        }
        if self.long > 0 {
            notes.push(format!("{} cut (read them with cut -c)", counted(self.long, "long line")));
        }
        notes
    }
}

/// The lines of a range, counted from 1, as many as fit into `room` characters; at least one.
pub(crate) fn number_lines(
    file: &[u8],
    range: RangeInclusive<usize>,
    room: usize,
) -> NumberedLines {
    let (first, to) = (*range.start().max(&1), *range.end());
    let mut page =
        NumberedLines { text: String::new(), last: first - 1, altered: Altered::default() };
    let longest = (room / 2).max(200);
    let mut left = room;
    let wanted = lines(file).skip(first - 1).take((to + 1).saturating_sub(first));
    for line in wanted {
        let mut altered = page.altered;
        let shown = shortened(line, longest, &mut altered);
        let cost = shown.chars().count() + 8;
        if cost > left && page.last >= first {
            break;
        }
        left = left.saturating_sub(cost);
        page.last += 1;
        page.altered = altered;
        // Writing to a string cannot fail.
        let _ = writeln!(page.text, "{:>6}\t{shown}", page.last);
    }
    page
}

/// The numbered lines around the bytes `new` of a file. A long range is shown by its two ends.
pub(crate) fn snippet(file: &[u8], new: std::ops::Range<usize>) -> String {
    let first = line_of(file, new.start).saturating_sub(CONTEXT).max(1);
    let end = new.end.saturating_sub(usize::from(new.end > new.start));
    let last = (line_of(file, end) + CONTEXT).min(count_lines(file));
    let head = number_lines(file, first..=last, MAX_SNIPPET);
    if head.last >= last {
        return head.text;
    }
    let top = number_lines(file, first..=last, MAX_SNIPPET / 2);
    let bottom = number_lines(
        file,
        last.saturating_sub(2 * CONTEXT).max(top.last + 1)..=last,
        MAX_SNIPPET / 2,
    );
    format!("{}   ...\n{}", top.text, bottom.text)
}

/// A line as text, without its middle where it is too long.
fn shortened(line: &[u8], longest: usize, altered: &mut Altered) -> String {
    // Characters have four bytes at most, so that no more than this is needed of either end.
    let (head, tail) = match line.len() > longest * 8 {
        true => line.split_at(longest * 4),
        false => (line, &line[line.len()..]),
    };
    let tail = &tail[tail.len().saturating_sub(longest * 4)..];
    let head = visible(head, altered);
    let count = head.chars().count();
    if tail.is_empty() && count <= longest {
        return head.into_owned();
    }
    altered.long += 1;
    let half = longest / 2;
    let end = |text: &str| text.chars().rev().take(half).collect::<Vec<_>>();
    let rest = if tail.is_empty() { end(&head) } else { end(&visible(tail, altered)) };
    let start: String = head.chars().take(half).collect();
    let finish: String = rest.into_iter().rev().collect();
    format!("{start} [... of {} bytes in this line ...] {finish}", line.len())
}

/// Bytes as text, with symbols for control characters.
fn visible<'a>(line: &'a [u8], altered: &mut Altered) -> Cow<'a, str> {
    let plain = |byte: &u8| (0x20..0x7F).contains(byte) || *byte == b'\t';
    if line.iter().all(plain) {
        return String::from_utf8_lossy(line);
    }
    let mut text = String::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        for c in chunk.valid().chars() {
            let shown = symbol(c);
            altered.controls += usize::from(shown != c);
            text.push(shown);
        }
        if !chunk.invalid().is_empty() {
            altered.invalid += chunk.invalid().len();
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    Cow::Owned(text)
}

/// The symbol for a control character; any other character unchanged.
fn symbol(c: char) -> char {
    match c {
        '\t' => c,
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(c),
        '\x7f' => '\u{2421}',
        '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => '\u{2426}',
        _ => c,
    }
}

/// A name or a path as one line without control characters.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c == '\t' { '\u{2409}' } else { symbol(c) }).collect()
}

/// A number with its noun, such as `1 line` or `2 lines`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A number of bytes with its unit.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".into(),
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_numbered() {
        let page = number_lines(b"one\r\n\ttwo\nthr\xe9e\nlast", 2..=3, 1000);
        assert_eq!(page.text, "     2\t\ttwo\n     3\tthr\u{fffd}e\n");
        assert_eq!((page.last, page.altered.invalid), (3, 1));
    }

    #[test]
    fn the_listing_ends_between_lines() {
        let file = b"0123456789\n".repeat(100);
        let page = number_lines(&file, 1..=100, 100);
        assert_eq!(page.last, 5);
        assert_eq!(page.text.lines().count(), 5);
        assert_eq!(number_lines(&file, 7..=100, 1).last, 7);
        assert_eq!(number_lines(&file, 200..=300, 100).text, "");
        assert_eq!(number_lines(&file, 1..=usize::MAX - 1, 10_000).last, 100);
    }

    #[test]
    fn long_lines_lose_their_middle() {
        let file = "ü".repeat(100_000);
        let page = number_lines(file.as_bytes(), 1..=1, 1000);
        assert!(page.text.chars().count() < 600, "{}", page.text);
        assert!(page.text.contains("of 200000 bytes"), "{}", page.text);
        assert_eq!(page.altered.long, 1);
    }

    #[test]
    fn control_characters_are_visible() {
        let page = number_lines(b"a\x1b[31m\x00\x7f\xc2\x9b\rb", 1..=1, 100);
        assert_eq!(page.text, "     1\ta\u{241b}[31m\u{2400}\u{2421}\u{2426}\u{240d}b\n");
        assert_eq!(page.altered.notes(), ["5 control characters shown as symbols"]);
        assert_eq!(one_line("a\nb\tc"), "a\u{240a}b\u{2409}c");
    }

    #[test]
    fn an_edit_is_shown_with_context() {
        let file = (1..=20).map(|n| format!("{n}\n")).collect::<String>();
        let at = file.find("10\n").expect("there");
        let shown = snippet(file.as_bytes(), at..at + 3);
        let numbers: Vec<&str> = shown.lines().filter_map(|line| line.split('\t').nth(1)).collect();
        assert_eq!(numbers, ["6", "7", "8", "9", "10", "11", "12", "13", "14"]);
        assert_eq!(snippet(b"a", 0..1), "     1\ta\n");
        assert_eq!(snippet(b"", 0..0), "");
        let long = "some text\n".repeat(5000);
        let shown = snippet(long.as_bytes(), 0..long.len());
        assert!(shown.contains("   ...\n") && shown.contains("  5000\t"), "{shown}");
        assert!(shown.len() < 2 * MAX_SNIPPET);
    }

    proptest! {
        #[test]
        fn any_bytes_fit(
            file in prop::collection::vec(prop_oneof![3 => Just(b'\n'), 10 => any::<u8>()], 0..400),
            from in 0usize..20,
            to in 0usize..20,
            room in 0usize..300,
        ) {
            let page = number_lines(&file, from..=to, room);
            prop_assert!(page.text.chars().count() <= room.max(200) + 300);
            prop_assert!(page.text.lines().count() <= (to + 1).saturating_sub(from.max(1)));
            prop_assert!(!page.text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}
