//! Makes texts of models, datasets and servers safe to show: bounded, on one line, without invisible characters.
//!
//! Escaping for an output format is left to its renderer.

use trajectory::is_hidden;

/// The beginning of a text, at most `most` characters: white space is collapsed, and invisible or reordering characters
/// are spelled out. Reads no more of the text than needed.
pub fn excerpt(text: &str, most: usize) -> String {
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
    fn texts_are_shortened_to_one_line() {
        assert_eq!(excerpt("  a\n\n b\tc  ", 10), "a b c");
        assert_eq!(excerpt("abcdef", 6), "abcdef");
        assert_eq!(excerpt("abcdefg", 6), "abcdef…");
        assert_eq!(excerpt("größer", 4), "größ…");
        assert_eq!(excerpt("", 3), "");
        assert_eq!(excerpt("x", 0), "…");
    }

    #[test]
    fn invisible_characters_are_spelled_out() {
        assert_eq!(excerpt("a\u{202e}b\x1b[31m\0", 80), "a\\u{202e}b\\u{1b}[31m\\u{0}");
        assert_eq!(excerpt("\u{200b}\u{e0041}e", 80), "\\u{200b}\\u{e0041}e");
        let fine = "日本語 🙂 é <b>";
        assert_eq!(excerpt(fine, 80), fine);
    }

    #[test]
    fn huge_texts_are_read_only_as_far_as_needed() {
        let text = "\u{1}".repeat(50 << 20);
        let begun = std::time::Instant::now();
        assert!(excerpt(&text, 200).len() < 220);
        assert!(begun.elapsed().as_millis() < 100);
    }
}
