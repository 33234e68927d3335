//! Escapes texts for the page. Characters that hide or reorder text are spelled out, in italics.

use std::fmt::Write;

use trajectory::is_hidden;

/// Escapes a text.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    push(&mut out, text);
    out
}

/// Escapes a text in which natural writing direction must not reorder what is around it.
pub(super) fn isolated(text: &str) -> String {
    if text.is_ascii() { escaped(text) } else { format!("<bdi>{}</bdi>", escaped(text)) }
}

/// Appends an escaped text.
pub(super) fn push(out: &mut String, text: &str) {
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Line ends of Windows.
            '\r' if rest.peek() == Some(&'\n') => {}
            c if is_spelled_out(c) => {
                let _ = match c {
                    '\r' => write!(out, "<i>\\r</i>"),
                    c if c.is_ascii() => write!(out, "<i>\\x{:02x}</i>", u32::from(c)),
                    c => write!(out, "<i>\\u{{{:x}}}</i>", u32::from(c)),
                };
            }
            c => out.push(c),
        }
    }
}

/// The most bytes a character takes on the page.
pub(super) fn width(c: char) -> usize {
    match c {
        '&' | '\'' => 5,
        '<' | '>' => 4,
        '"' => 6,
        c if is_spelled_out(c) => 18,
        c => c.len_utf8(),
    }
}

fn is_spelled_out(c: char) -> bool {
    !matches!(c, '\n' | '\t') && (is_hidden(c) || matches!(c, '\u{fffe}' | '\u{ffff}'))
}

/// A whole number of milliseconds as people read it: `340 ms`, `1.5 s`, `12 s`, `1 min 5 s`, `2 h 3 min`.
pub(super) fn time(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis} ms"),
        1..10 => format!("{:.1} s", millis as f64 / 1000.0),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Bytes as people read them: `812 B`, `1.2 kB`, `3.4 MB`.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        ..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Such as `1 line`, `2,000 lines`.
pub(super) fn counted(number: usize, word: &str) -> String {
    format!("{} {word}{}", plot::count(number as f64), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_spelled_out() {
        assert_eq!(escaped("a\u{202e}b\x1b[0m\r\n\tc\rd"), {
            "a<i>\\u{202e}</i>b<i>\\x1b</i>[0m\n\tc<i>\\r</i>d"
        });
        assert_eq!(escaped("<!--\0--></script>'\""), {
            "&lt;!--<i>\\x00</i>--&gt;&lt;/script&gt;&#39;&quot;"
        });
        assert_eq!(isolated("שלום"), "<bdi>שלום</bdi>");
    }

    #[test]
    fn no_character_is_wider_than_announced() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            let shown = escaped(c.encode_utf8(&mut [0; 4]));
            assert!(shown.len() <= width(c) && c.len_utf8() <= width(c), "{c:?}: {shown}");
        }
    }

    #[test]
    fn amounts_are_short() {
        let times = [0, 340, 12_000, 65_000, 7_380_000].map(time);
        assert_eq!(times, ["0 ms", "340 ms", "12 s", "1 min 5 s", "2 h 3 min"]);
        assert_eq!([812, 1200, 3_400_000].map(size), ["812 B", "1.2 kB", "3.4 MB"]);
        assert_eq!([counted(1, "line"), counted(2000, "line")], ["1 line", "2,000 lines"]);
    }
}
