//! Makes text of models and commands fit to be shown: what would steer the terminal, or hide or reorder
//! what people read, becomes a visible escape.
//!
//! Looks at one character at a time, so a text may arrive in any pieces.

use std::{borrow::Cow, fmt::Write};

use trajectory::is_hidden;

/// The text with nothing in it but what can be seen, line ends and tabs.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    let Some(first) = text.find(is_in_the_way) else { return Cow::Borrowed(text) };
    let (fine, rest) = text.split_at(first);
    let mut shown = String::with_capacity(text.len() + 16);
    shown.push_str(fine);
    for c in rest.chars() {
        match c {
            c if !is_in_the_way(c) => shown.push(c),
            '\r' => shown.push_str("\\r"),
            c if c.is_ascii() => {
                let _ = write!(shown, "\\x{:02x}", u32::from(c));
            }
            c => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
        }
    }
    Cow::Owned(shown)
}

/// Line ends and tabs are no secret.
fn is_in_the_way(c: char) -> bool {
    !matches!(c, '\n' | '\t') && is_hidden(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Said apart from `is_hidden`, in the words of the standard library where it has them.
    fn may_be_shown(c: char) -> bool {
        let directions = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}'];
        let reorders =
            ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c);
        let invisible = ['\u{ad}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}', '\u{feff}'];
        c == '\n'
            || c == '\t'
            || !(c.is_control() || reorders || directions.contains(&c) || invisible.contains(&c))
    }

    #[test]
    fn what_cannot_be_seen_is_spelled_out() {
        assert_eq!(sanitize("a\x1b[31mb\x07"), "a\\x1b[31mb\\x07");
        assert_eq!(sanitize("50%\r100%\n\tx\x7f\0"), "50%\\r100%\n\tx\\x7f\\x00");
        assert_eq!(sanitize("\u{9b}2J \u{85}"), "\\u{9b}2J \\u{85}");
        assert_eq!(
            sanitize("if \u{202e}x\u{2066}\u{2028}\u{200b}"),
            "if \\u{202e}x\\u{2066}\\u{2028}\\u{200b}"
        );
        assert_eq!(sanitize("\u{feff}\u{e0041}"), "\\u{feff}\\u{e0041}");
        let fine = "größer 日本語 🙂\u{fe0f} ── \\x1b";
        assert!(matches!(sanitize(fine), Cow::Borrowed(text) if text == fine));
    }

    #[test]
    fn every_control_character_is_caught() {
        for c in ('\0'..='\u{10ffff}').filter(|c| !may_be_shown(*c)) {
            let text = c.to_string();
            assert!(sanitize(&text).starts_with('\\'), "{c:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left_in_any_pieces(
            pieces in prop::collection::vec("[\\x00-\\u{a0}\\u{200b}-\\u{206f}🙂é]{0,8}", 0..8)
        ) {
            let joined: String = pieces.iter().map(|piece| sanitize(piece)).collect();
            prop_assert!(joined.chars().all(may_be_shown), "{joined:?}");
            let whole = pieces.concat();
            prop_assert_eq!(&joined, &sanitize(&whole));
            prop_assert_eq!(&joined, &sanitize(&joined));
        }
    }
}
