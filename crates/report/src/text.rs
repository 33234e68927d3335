//! Text of models, rows and servers made fit to be shown: bounded, on one line, nothing hidden in it.
//!
//! Whoever renders escapes for its own format besides; this module knows none.

use trajectory::is_hidden;

/// The beginning of a text: at most this many characters, white space run together, and what would hide or
/// reorder what people read spelled out. Looks no further into the text than it has to.
pub(crate) fn excerpt(text: &str, most: usize) -> String {
    let mut shown = String::new();
    let mut room = most;
    let mut gap = false;
    for c in text.trim_start().chars() {
        if c.is_whitespace() {
            gap = true;
            continue;
        }
        let piece = if is_hidden(c) { format!("\\u{{{:x}}}", u32::from(c)) } else { c.to_string() };
        let taken = piece.chars().count() + usize::from(gap);
        if taken > room {
            shown.push('…');
            return shown;
        }
        if gap {
            shown.push(' ');
            gap = false;
        }
        shown.push_str(&piece);
        room -= taken;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_one_short_line() {
        assert_eq!(excerpt("  a\n\n b\tc  ", 10), "a b c");
        assert_eq!(excerpt("abcdef", 6), "abcdef");
        assert_eq!(excerpt("abcdefg", 6), "abcdef…");
        assert_eq!(excerpt("größer", 4), "größ…");
        assert_eq!(excerpt("", 3), "");
        assert_eq!(excerpt("x", 0), "…");
    }

    #[test]
    fn nothing_hidden_passes() {
        assert_eq!(excerpt("a\u{202e}b\x1b[31m\0", 80), "a\\u{202e}b\\u{1b}[31m\\u{0}");
        assert_eq!(excerpt("\u{200b}\u{e0041}e", 80), "\\u{200b}\\u{e0041}e");
        let fine = "日本語 🙂 é <b>";
        assert_eq!(excerpt(fine, 80), fine);
    }

    #[test]
    fn a_huge_text_costs_no_more_than_its_beginning() {
        let text = "\u{1}".repeat(50 << 20);
        let begun = std::time::Instant::now();
        assert!(excerpt(&text, 200).len() < 220);
        assert!(begun.elapsed().as_millis() < 100);
    }
}
