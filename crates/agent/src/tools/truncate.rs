//! Truncates a text that is too long: its head and its tail remain, as whole lines where lines are not very long.
//!
//! Knows neither where the whole text is saved nor how the cut is announced; both are in `bash.rs`.

/// A text after truncation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truncated<'a> {
    /// The text was short enough.
    Whole(&'a str),
    /// Only its two ends remain.
    Cut(Cut<'a>),
}

/// The two ends of a text, and what is between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut<'a> {
    /// The start. It ends with a newline, or inside a line.
    pub(crate) head: &'a str,
    /// What is left out.
    pub(crate) between: &'a str,
    /// The end. It starts with a line, or inside one.
    pub(crate) tail: &'a str,
}

impl Cut<'_> {
    /// The first line that is not shown in full, from 1.
    pub(crate) fn first_line(&self) -> usize {
        self.head.matches('\n').count() + 1
    }

    /// The last line that is not shown in full.
    pub(crate) fn last_line(&self) -> usize {
        let ends = self.between.matches('\n').count();
        self.first_line() + ends - usize::from(self.between.ends_with('\n'))
    }

    /// Whether a line is cut at one of the ends.
    pub(crate) fn inside_a_line(&self) -> bool {
        !(self.head.is_empty() || self.head.ends_with('\n')) || !self.between.ends_with('\n')
    }
}

/// At most `shown` characters of a text, half from its start and half from its end.
///
/// Cuts are between lines, unless whole lines would leave more than half of the room unused.
pub(crate) fn truncate(text: &str, shown: usize) -> Truncated<'_> {
    // Bytes are never fewer than characters.
    if text.len() <= shown || text.chars().nth(shown).is_none() {
        return Truncated::Whole(text);
    }
    let room = shown.div_ceil(2);
    let head = head(text, room);
    let tail = tail(&text[head.len()..], shown - room);
    let between = &text[head.len()..text.len() - tail.len()];
    Truncated::Cut(Cut { head, between, tail })
}

/// The first lines of a text, as many as fit into `room` characters.
pub(crate) fn head(text: &str, room: usize) -> &str {
    let Some((most, _)) = text.char_indices().nth(room) else { return text };
    let fits = &text[..most];
    let lines = fits.rfind('\n').map_or(0, |end| end + 1);
    if lines * 2 >= most { &fits[..lines] } else { fits }
}

/// The last lines of a text, as many as fit.
fn tail(text: &str, room: usize) -> &str {
    let Some(before) = room.checked_sub(1) else { return "" };
    let Some((start, _)) = text.char_indices().rev().nth(before) else { return text };
    let fits = &text[start..];
    // The line that starts here is complete.
    if start == 0 || text.as_bytes()[start - 1] == b'\n' {
        return fits;
    }
    match fits.find('\n') {
        Some(end) if (fits.len() - end - 1) * 2 >= fits.len() => &fits[end + 1..],
        _ => fits,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(text: &str, shown: usize) -> Cut<'_> {
        match truncate(text, shown) {
            Truncated::Cut(cut) => cut,
            Truncated::Whole(_) => panic!("{text:?} was not cut at {shown}"),
        }
    }

    #[test]
    fn both_ends_are_whole_lines() {
        let text = (1..=100).map(|n| format!("line {n}\n")).collect::<String>();
        let cut = cut(&text, 50);
        assert_eq!(cut.head, "line 1\nline 2\nline 3\n");
        assert_eq!(cut.tail, "line 98\nline 99\nline 100\n");
        assert_eq!((cut.first_line(), cut.last_line()), (4, 97));
        assert!(!cut.inside_a_line());
    }

    #[test]
    fn a_very_long_line_is_cut_inside() {
        let text = format!("short\n{}\nend\n", "ü".repeat(1000));
        let cut = cut(&text, 40);
        assert_eq!(cut.head, format!("short\n{}", "ü".repeat(14)));
        assert_eq!(cut.tail, format!("{}\nend\n", "ü".repeat(15)));
        assert_eq!((cut.first_line(), cut.last_line()), (2, 2));
        assert!(cut.inside_a_line());
    }

    #[test]
    fn short_text_stays_whole() {
        assert_eq!(truncate("üüü", 3), Truncated::Whole("üüü"));
        assert_eq!(truncate("", 0), Truncated::Whole(""));
        assert_eq!(cut("abc", 1), Cut { head: "a", between: "bc", tail: "" });
        assert_eq!(cut("abc", 0), Cut { head: "", between: "abc", tail: "" });
    }

    #[test]
    fn long_texts_are_fast() {
        for piece in ["x", "x\n", "\n", "ü\n"] {
            let text = piece.repeat((4 << 20) / piece.len());
            let begun = std::time::Instant::now();
            let cut = cut(&text, 12_000);
            assert!(cut.last_line() >= cut.first_line());
            assert!(begun.elapsed().as_secs() < 20, "{piece:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_the_limit_holds(
            text in "([a-zü😀]{0,12}\n?){0,30}",
            shown in 0usize..120,
        ) {
            match truncate(&text, shown) {
                Truncated::Whole(whole) => {
                    prop_assert_eq!(whole, text.as_str());
                    prop_assert!(text.chars().count() <= shown);
                }
                Truncated::Cut(cut) => {
                    prop_assert_eq!([cut.head, cut.between, cut.tail].concat(), text.clone());
                    prop_assert!(!cut.between.is_empty());
                    prop_assert!(cut.head.chars().count() + cut.tail.chars().count() <= shown);
                }
            }
        }

        #[test]
        fn ordinary_lines_are_never_split(
            lines in prop::collection::vec("[a-z]{0,8}\n", 20..60),
            shown in 40usize..120,
        ) {
            let text = lines.concat();
            if let Truncated::Cut(cut) = truncate(&text, shown) {
                prop_assert!(!cut.inside_a_line(), "{:?}", cut);
                let out = &text.lines().collect::<Vec<_>>()[cut.first_line() - 1..cut.last_line()];
                prop_assert_eq!(out.join("\n") + "\n", cut.between);
            }
        }
    }
}
