//! Long texts: cut to a size, and folded so that their first and last lines are visible.

use std::fmt::Write;

use super::text::{counted, push, width};

/// Lines and bytes visible at the start and at the end of a folded text.
const HEAD: (usize, usize) = (12, 1200);
const TAIL: (usize, usize) = (5, 500);
/// Lines and bytes that are not worth folding.
const SHORT: (usize, usize) = (22, 2400);

/// How a text looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Look {
    /// Prose of the model.
    Prose,
    /// Program text.
    Code,
    /// What a tool returned.
    Output,
    /// A command.
    Command,
    /// Lines of a difference: in both texts, only in the new one, only in the old one. Around them is an element `diff`.
    Kept,
    Added,
    Removed,
}

impl Look {
    /// What is around the parts of a text.
    fn frame(self) -> (&'static str, &'static str) {
        match self {
            Self::Prose => ("<div class=\"block block-prose\">", "</div>"),
            Self::Code => ("<div class=\"block block-code\">", "</div>"),
            Self::Output => ("<div class=\"block block-output\">", "</div>"),
            Self::Command => ("<div class=\"block block-code prompted\">", "</div>"),
            Self::Kept | Self::Added | Self::Removed => ("", ""),
        }
    }

    /// The start of a part.
    fn tag(self) -> &'static str {
        match self {
            Self::Added => "<pre class=\"diff-new\">",
            Self::Removed => "<pre class=\"diff-old\">",
            _ => "<pre>",
        }
    }
}

/// Room for texts of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room<'a> {
    /// Bytes of one text on the page.
    pub(super) most: usize,
    /// Where the whole text is.
    pub(super) source: &'a str,
}

/// The start and the end of a text, and the number of characters between them that are not shown.
#[derive(Debug, PartialEq)]
struct Cut<'a> {
    head: &'a str,
    omitted: usize,
    tail: &'a str,
}

/// The bytes a text takes on the page, counted up to `most`.
pub(super) fn weight(text: &str, most: usize) -> usize {
    // No character takes fewer bytes on the page than in the text.
    if text.len() >= most {
        return most;
    }
    let mut sum = 0;
    for c in text.chars() {
        sum += width(c);
        if sum >= most {
            return most;
        }
    }
    sum
}

/// Writes a text, folded if it is long and cut if it is very long. Nothing is written for an empty text.
pub(super) fn write(out: &mut String, look: Look, text: &str, room: Room<'_>) {
    let text = text.trim_end();
    if text.is_empty() {
        return;
    }
    let (start, end) = look.frame();
    out.push_str(start);
    parts(out, look, text, room);
    out.push_str(end);
}

fn parts(out: &mut String, look: Look, text: &str, room: Room<'_>) {
    let Cut { head, omitted, tail } = cut(text, room.most);
    if omitted == 0 && head.len() <= SHORT.1 && head.lines().count() <= SHORT.0 {
        return part(out, look, head);
    }
    let first = head_end(head, HEAD);
    let (visible, rest) = head.split_at(first);
    let last = if omitted == 0 { rest } else { tail };
    let (before, end) = last.split_at(tail_start(last, TAIL));
    part(out, look, visible);
    let hidden = match omitted {
        0 => before.lines().count(),
        _ => rest.lines().count() + before.lines().count(),
    };
    let summary = match (look, omitted) {
        (_, 1..) => format!("{} (cut)", counted(hidden, "more line")),
        (Look::Prose, 0) => counted(before.chars().count(), "more character"),
        (_, 0) => counted(hidden, "more line"),
    };
    let _ = write!(out, "<details><summary>{summary}</summary>");
    if omitted > 0 {
        part(out, look, rest);
        cut_note(out, omitted, room.source);
    }
    part(out, look, before);
    out.push_str("</details>");
    part(out, look, end);
}

fn cut_note(out: &mut String, omitted: usize, source: &str) {
    let _ = write!(out, "<p class=\"cut\">{} not shown", counted(omitted, "character"));
    if !source.is_empty() {
        out.push_str("; all of it is in ");
        push(out, source);
    }
    out.push_str("</p>");
}

fn part(out: &mut String, look: Look, text: &str) {
    let text = text.strip_suffix('\n').unwrap_or(text);
    if text.is_empty() {
        return;
    }
    out.push_str(look.tag());
    // A line end right after the tag would not be shown.
    if text.starts_with('\n') {
        out.push('\n');
    }
    push(out, text);
    out.push_str("</pre>");
}

/// Cuts out the middle of a text that takes more than `most` bytes on the page.
fn cut(text: &str, most: usize) -> Cut<'_> {
    if weight(text, most + 1) <= most {
        return Cut { head: text, omitted: 0, tail: "" };
    }
    let head = fitting(text.char_indices().map(|(at, c)| (at + c.len_utf8(), c)), most / 4 * 3);
    let (head, rest) = text.split_at(head.unwrap_or(0));
    let tail = fitting(rest.char_indices().rev(), most / 4);
    let (middle, tail) = rest.split_at(tail.unwrap_or(rest.len()));
    Cut { head, omitted: middle.chars().count(), tail }
}

/// The last position whose characters so far fit.
fn fitting(positions: impl Iterator<Item = (usize, char)>, most: usize) -> Option<usize> {
    let mut sum = 0;
    let fits = positions.take_while(|(_, c)| {
        sum += width(*c);
        sum <= most
    });
    fits.last().map(|(at, _)| at)
}

/// The end of the first lines of a text.
fn head_end(text: &str, (lines, bytes): (usize, usize)) -> usize {
    let line = text.match_indices('\n').nth(lines - 1).map_or(text.len(), |(at, _)| at + 1);
    if line <= bytes {
        return line;
    }
    let within = text.floor_char_boundary(bytes);
    text[..within].rfind('\n').map_or(within, |at| at + 1)
}

/// The start of the last lines of a text. None is visible if the last one is long.
fn tail_start(text: &str, (lines, bytes): (usize, usize)) -> usize {
    let line = text.rmatch_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1);
    if text.len() - line <= bytes {
        return line;
    }
    let within = text.ceil_char_boundary(text.len() - bytes);
    text[within..].find('\n').map_or(text.len(), |at| within + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room<'_> = Room { most: 10_000, source: "events.jsonl" };

    fn shown(text: &str) -> String {
        let mut out = String::new();
        write(&mut out, Look::Kept, text, ROOM);
        out
    }

    #[test]
    fn short_texts_are_shown_whole() {
        assert_eq!(shown("a\nb\n"), "<pre>a\nb</pre>");
        assert_eq!(shown("\n\na"), "<pre>\n\n\na</pre>");
        assert_eq!(shown(" \n"), "");
        let mut out = String::new();
        write(&mut out, Look::Output, "a", ROOM);
        assert_eq!(out, "<div class=\"block block-output\"><pre>a</pre></div>");
    }

    #[test]
    fn the_middle_of_a_long_text_is_folded() {
        let text: String = (1..=100).map(|n| format!("{n}\n")).collect();
        let shown = shown(&text);
        assert!(shown.starts_with("<pre>1\n2\n") && shown.contains("\n12</pre><details>"));
        assert!(shown.contains("<summary>83 more lines</summary><pre>13\n"));
        assert!(shown.ends_with("</details><pre>96\n97\n98\n99\n100</pre>"), "{shown}");
    }

    #[test]
    fn no_character_of_a_folded_text_is_lost() {
        for text in ["é".repeat(3000), "ab\n".repeat(2000), format!("{}\nx", "y".repeat(5000))] {
            let shown = shown(&text);
            let tags = ["<pre>", "</pre>", "</details>"];
            let bare = tags.iter().fold(shown.clone(), |text, tag| text.replace(tag, "\n"));
            let (before, after) = bare.split_once("<details>").unwrap();
            let after = after.split_once("</summary>").unwrap().1;
            let letters = |text: &str| text.chars().filter(|c| *c != '\n').count();
            assert_eq!(letters(before) + letters(after), letters(&text));
        }
    }

    #[test]
    fn very_long_texts_are_cut_and_say_so() {
        for text in ["\"".repeat(1 << 20), "\u{202e}".repeat(1 << 20), "a\n".repeat(1 << 20)] {
            let shown = shown(&text);
            assert!(shown.len() < ROOM.most + 1000, "{}", shown.len());
            assert!(shown.contains("not shown; all of it is in events.jsonl"), "{shown}");
        }
        let Cut { head, omitted, tail } = cut("0123456789", 8);
        assert_eq!((head, omitted, tail), ("012345", 2, "89"));
        assert_eq!(cut("0123", 4), Cut { head: "0123", omitted: 0, tail: "" });
    }
}
