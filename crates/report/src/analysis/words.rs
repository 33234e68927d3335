//! Whole-word search: `cat` is not in `category`, `open(` is not in `reopen(`.

/// Whether a pattern occurs as whole words. A blank in the pattern matches any run of blanks and continued lines.
pub(super) fn has(text: &str, pattern: &str) -> bool {
    positions(text, pattern).next().is_some()
}

/// Whether one of several patterns occurs.
pub(super) fn has_any(text: &str, patterns: &[&str]) -> bool {
    patterns.iter().any(|pattern| has(text, pattern))
}

/// Byte ranges where a pattern occurs as whole words.
pub(super) fn positions<'a>(
    text: &'a str,
    pattern: &'a str,
) -> impl Iterator<Item = (usize, usize)> + 'a {
    let (first, rest) = pattern.split_once(' ').unwrap_or((pattern, ""));
    text.match_indices(first).filter_map(move |(start, _)| {
        let end = follow(text, start + first.len(), rest)?;
        is_whole(text, start, end).then_some((start, end))
    })
}

/// Whether a character may be part of a word.
pub(super) fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// End of the remaining words of a pattern.
fn follow(text: &str, mut end: usize, rest: &str) -> Option<usize> {
    for word in rest.split(' ').filter(|word| !word.is_empty()) {
        let after = text.get(end..)?;
        let blank = after.trim_start_matches([' ', '\t', '\\', '\r', '\n']);
        if blank.len() == after.len() || !blank.starts_with(word) {
            return None;
        }
        end += after.len() - blank.len() + word.len();
    }
    Some(end)
}

fn is_whole(text: &str, start: usize, end: usize) -> bool {
    let inner = text.get(start..end).unwrap_or_default();
    let opens = !inner.starts_with(is_word) || !text[..start].ends_with(is_word);
    let closes = !inner.ends_with(is_word) || !text[end..].starts_with(is_word);
    opens && closes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole() {
        for (text, pattern, expected) in [
            ("cat a", "cat", true),
            ("category", "cat", false),
            ("concat", "cat", false),
            ("cat_a", "cat", false),
            ("écat", "cat", false),
            ("a;cat", "cat", true),
            ("open('a')", "open(", true),
            ("reopen('a')", "open(", false),
            ("np.load(x)", "np.load", true),
            ("np.loadtxt(x)", "np.load", false),
            ("json.loads(x)", "json.load", false),
            ("np.arange(3)", "range(", false),
            ("globals()", "glob", false),
            ("pip install x", "pip install", true),
            ("pip  \\\n install x", "pip install", true),
            ("pipinstall", "pip install", false),
            ("pip installed", "pip install", false),
            ("xpip install", "pip install", false),
            ("", "cat", false),
        ] {
            assert_eq!(has(text, pattern), expected, "{pattern} in {text}");
        }
    }
}
