//! Extracts the content of `\boxed{...}`: the last balanced box of an answer, or all boxes of a text joined by commas.
//!
//! Counts braces; knows no other LaTeX.

/// Which boxes of a text count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boxes {
    /// All of them.
    All,
    /// The last, and those before it that belong to the same list.
    Last,
}

/// The content of the last `\boxed{` whose braces balance before the text ends.
pub(super) fn last_balanced(text: &str) -> Option<&str> {
    let start = text.rfind("\\boxed{")? + "\\boxed{".len();
    let end = closing(text.as_bytes(), start - 1, text.len())?;
    text.get(start..end)
}

/// The contents of the boxes in `text`, joined by commas; the text itself without boxes.
pub(super) fn contents(text: &str, boxes: Boxes) -> String {
    let mut found: Vec<&str> = Vec::new();
    let mut limit = text.len();
    let mut later_start = None;
    // Hostile texts may contain thousands of unclosed boxes; the first unclosed one ends the search.
    let mut commands = Commands { text, boxed: text.rfind("\\boxed"), fbox: text.rfind("\\fbox") };
    while let Some((start, command_end)) = commands.last_before(limit) {
        let after = text[command_end..limit].trim_start_matches(super::is_space);
        let open = limit - after.len();
        if after.is_empty() {
            break;
        }
        if !after.starts_with('{') {
            if found.is_empty() {
                found.push(&text[open..]);
            }
            break;
        }
        let Some(close) = closing(text.as_bytes(), open, limit) else {
            if found.is_empty() {
                found.push(&text[open..]);
            }
            break;
        };
        let content = text[open + 1..close].trim_matches(super::is_space);
        if let (Boxes::Last, Some(later)) = (boxes, later_start)
            && !same_list(
                &text[close + 1..later],
                content,
                found.last().copied().unwrap_or_default(),
            )
        {
            break;
        }
        if found.last() != Some(&content) {
            found.push(content);
        }
        later_start = Some(start);
        limit = start;
    }
    if found.is_empty() {
        return text.to_owned();
    }
    found.reverse();
    found.join(",")
}

/// Iterates over the box commands of a text from its end.
struct Commands<'t> {
    text: &'t str,
    boxed: Option<usize>,
    fbox: Option<usize>,
}

impl Commands<'_> {
    fn last_before(&mut self, limit: usize) -> Option<(usize, usize)> {
        // A command that the limit cuts short does not count.
        if self.boxed.is_some_and(|start| start + 6 > limit) {
            self.boxed = self.text[..limit].rfind("\\boxed");
        }
        if self.fbox.is_some_and(|start| start + 5 > limit) {
            self.fbox = self.text[..limit].rfind("\\fbox");
        }
        self.boxed.map(|start| (start, start + 6)).max(self.fbox.map(|start| (start, start + 5)))
    }
}

/// Where the brace opened at `open` closes, before `limit`.
fn closing(bytes: &[u8], open: usize, limit: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in bytes.iter().enumerate().take(limit).skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether two boxes with `between` between them are items of one list.
fn same_list(between: &str, content: &str, later: &str) -> bool {
    let length = between.chars().take(70).count();
    length < 10 || (later != content && length < 70 && has_separator(between))
}

fn has_separator(text: &str) -> bool {
    text.contains([',', ';'])
        || text
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .any(|word| word == "and" || word == "or")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_box_wins_unless_boxes_form_a_list() {
        assert_eq!(last_balanced(r"a \boxed{1} b \boxed{\frac{2}{3}}."), Some(r"\frac{2}{3}"));
        assert_eq!(last_balanced(r"\boxed{1"), None);
        assert_eq!(contents(r"\boxed{1}, \boxed{2}", Boxes::Last), "1,2");
        assert_eq!(
            contents(r"\boxed{1} which is not the final result \boxed{2}", Boxes::Last),
            "2"
        );
        assert_eq!(contents(r"\boxed{\boxed{3}", Boxes::Last), "3");
        assert_eq!(contents("plain", Boxes::All), "plain");
    }
}
