//! Command output as a terminal would finally show it: escape sequences removed, progress bars collapsed.
//!
//! Cursor movement is emulated within a line. Sequences that move between lines are removed, not followed.

use std::{iter::Peekable, str::Chars};

/// The most blanks that are added to a text where the cursor moves past the end of a line. A few bytes can request
/// any number of them.
const MAX_BLANKS: usize = 1 << 20;

/// The text without control characters other than line feeds and tabs. The number of lines does not change.
pub(crate) fn sanitize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut blanks = MAX_BLANKS;
    for line in text.split_inclusive('\n') {
        let body = line.strip_suffix('\n').unwrap_or(line).trim_end_matches('\r');
        if body.bytes().any(may_be_control) {
            Row::new(&mut blanks).draw(body).append_to(&mut out);
        } else {
            out.push_str(body);
        }
        if line.ends_with('\n') {
            out.push('\n');
        }
    }
    out
}

/// Whether bytes are binary data rather than text in some encoding.
pub(crate) fn looks_binary(bytes: &[u8]) -> bool {
    let sample = &bytes[..bytes.len().min(64 << 10)];
    if sample.contains(&0) {
        return true;
    }
    let bad: usize = sample.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    bad * 4 > sample.len() && sample.len() > 16
}

/// Whether a byte is a control character or the first byte of one in UTF-8.
fn may_be_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7F || byte == 0xC2
}

/// One line of the emulated terminal.
struct Row<'a> {
    cells: Vec<char>,
    cursor: usize,
    /// How many blanks may still be added.
    blanks: &'a mut usize,
    /// Whether the cursor moved back: blanks at the end are then erased text.
    redrawn: bool,
}

impl<'a> Row<'a> {
    fn new(blanks: &'a mut usize) -> Self {
        Self { cells: Vec::new(), cursor: 0, blanks, redrawn: false }
    }

    fn draw(mut self, line: &str) -> Self {
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\r' => self.move_to(0),
                '\u{8}' => self.move_to(self.cursor.saturating_sub(1)),
                '\u{1b}' => self.escape(&mut chars),
                '\u{9b}' => self.control(&mut chars),
                '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut chars),
                '\t' => self.put(c),
                c if c.is_control() => {}
                c => self.put(c),
            }
        }
        self
    }

    fn append_to(self, out: &mut String) {
        let start = out.len();
        out.extend(self.cells);
        if self.redrawn {
            let kept = out[start..].trim_end_matches(' ').len();
            out.truncate(start + kept);
        }
    }

    fn put(&mut self, c: char) {
        if self.cursor >= self.cells.len() {
            match self.blanks.checked_sub(self.cursor - self.cells.len()) {
                Some(left) => *self.blanks = left,
                None => self.cursor = self.cells.len(),
            }
            self.cells.resize(self.cursor, ' ');
            self.cells.push(c);
        } else {
            self.cells[self.cursor] = c;
        }
        self.cursor += 1;
    }

    fn move_to(&mut self, column: usize) {
        self.redrawn |= column < self.cursor;
        self.cursor = column;
    }

    /// Handles what follows an escape character.
    fn escape(&mut self, chars: &mut Peekable<Chars<'_>>) {
        match chars.peek() {
            Some('[') => {
                chars.next();
                self.control(chars);
            }
            Some(']' | 'P' | 'X' | '^' | '_') => {
                chars.next();
                skip_string(chars);
            }
            _ => {
                while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
                chars.next_if(|c| ('0'..='~').contains(c));
            }
        }
    }

    /// Handles a control sequence: parameters, then a letter for the command.
    fn control(&mut self, chars: &mut Peekable<Chars<'_>>) {
        let (mut first, mut past_first) = (0usize, false);
        while let Some(c) = chars.next_if(|c| ('0'..='?').contains(c)) {
            past_first |= !c.is_ascii_digit();
            if let (Some(digit), false) = (c.to_digit(10), past_first) {
                first = first.saturating_mul(10).saturating_add(digit as usize);
            }
        }
        while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
        match chars.next_if(|c| ('@'..='~').contains(c)) {
            Some('C') => self.move_to(self.cursor.saturating_add(first.max(1))),
            Some('D') => self.move_to(self.cursor.saturating_sub(first.max(1))),
            Some('G') => self.move_to(first.saturating_sub(1)),
            Some('K') => self.erase(first),
            _ => {}
        }
    }

    /// Erases to the end of the line (0) or all of it (2). Erasing from the start is rare, and repeated on a long line
    /// it would take quadratic time.
    fn erase(&mut self, which: usize) {
        match which {
            0 => self.cells.truncate(self.cursor),
            2 => self.cells.clear(),
            _ => {}
        }
        self.redrawn = true;
    }
}

/// Skips the text of a title, a link or a device command, which ends at the latest with its line.
fn skip_string(chars: &mut Peekable<Chars<'_>>) {
    while let Some(c) = chars.next() {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' if chars.next_if_eq(&'\\').is_some() => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shows_what_a_terminal_shows() {
        let cases = [
            ("plain\n\ttext ü\n", "plain\n\ttext ü\n"),
            ("\u{1b}[1;31mred\u{1b}[0m and \u{1b}[38;5;12mblue\u{1b}[m", "red and blue"),
            ("dos\r\nends\r\n", "dos\nends\n"),
            ("10%\r 50%\r100%\n", "100%\n"),
            ("long line\rshort", "shortline"),
            ("long line\r\u{1b}[Kshort", "short"),
            ("done\r\u{1b}[2K\n", "\n"),
            ("working\r       \r\n", "\n"),
            ("abc\u{8}\u{8}XY\n", "aXY\n"),
            ("\u{8}\u{8}x", "x"),
            ("o\u{8}oo\u{8}o bold\n", "oo bold\n"),
            ("\u{1b}]0;a title\u{7}text", "text"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\ after", "link after"),
            ("\u{1b}]0;no end\nnext line\n", "\nnext line\n"),
            ("\u{1b}Pdevice\u{1b}\\x\u{1b}(By\u{1b}7z\u{1b}=!", "xyz!"),
            ("a\u{9b}31mb\u{9d}title\u{9c}c", "abc"),
            ("nul\0bell\u{7}del\u{7f}end", "nulbelldelend"),
            ("cut \u{1b}[31", "cut "),
            ("cut \u{1b}", "cut "),
            ("\u{1b}[5Gcol", "    col"),
            ("ab\u{1b}[2Dc", "cb"),
            ("a\u{1b}[3Cb", "a   b"),
            ("no break\u{a0}space", "no break\u{a0}space"),
        ];
        for (raw, shown) in cases {
            assert_eq!(sanitize(raw), shown, "{raw:?}");
        }
    }

    #[test]
    fn a_far_cursor_needs_no_memory() {
        assert_eq!(sanitize("\u{1b}[4000000000Cx"), "x");
        assert_eq!(sanitize(&format!("\u{1b}[{}Cx", "9".repeat(500))), "x");
        let many = sanitize(&"\u{1b}[999Cx\n".repeat(100_000));
        assert!(many.len() <= MAX_BLANKS + 200_000, "{}", many.len());
    }

    #[test]
    fn binary_data_is_detected() {
        assert!(looks_binary(b"\x7fELF\x02\x01\x01\0\0"));
        assert!(looks_binary(&(128..=255).collect::<Vec<u8>>()));
        assert!(!looks_binary("grüße".as_bytes()));
        assert!(!looks_binary(b"gr\xfc\xdfe aus Latin-1, mostly letters"));
        assert!(!looks_binary(b""));
    }

    #[test]
    fn long_texts_are_fast() {
        let long = "x".repeat(2 << 20);
        for piece in ["\u{1b}[31mx\r", "\u{1b}]", "x\u{8}", "\u{1b}[2Kx", "\r\u{1b}[1K"] {
            let begun = std::time::Instant::now();
            let shown = sanitize(&(long.clone() + &piece.repeat((2 << 20) / piece.len())));
            assert!(begun.elapsed().as_secs() < 30, "{piece:?}: {} bytes", shown.len());
        }
    }

    proptest! {
        #[test]
        fn lines_stay_and_controls_go(text in "(\\PC|[\\x00-\\x1f\\x7f\u{80}-\u{9f}]|\\[|[0-9;]|K|\n){0,200}") {
            let shown = sanitize(&text);
            prop_assert_eq!(shown.matches('\n').count(), text.matches('\n').count());
            prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            prop_assert_eq!(sanitize(&shown), shown.clone());
        }

        #[test]
        fn text_without_controls_is_left_alone(text in "(\\PC|\n|\t){0,200}") {
            prop_assert_eq!(sanitize(&text), text);
        }
    }
}
