//! Methods of Python's strings used by the constraints. Lengths and positions are in characters, as in Python.

use std::borrow::Cow;

use super::chars::{ascii_of, is_space, is_title, is_word, same_ignoring_case};
pub(crate) use crate::python::strip;

/// `string.punctuation`.
pub(crate) const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// `len`.
pub(crate) fn len(text: &str) -> usize {
    text.chars().count()
}

/// `str.split` without an argument.
pub(crate) fn split(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

/// `str.rstrip` without an argument.
pub(crate) fn strip_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// `str.strip` of punctuation and plain spaces.
pub(crate) fn strip_marks(text: &str) -> &str {
    text.trim_matches(is_mark)
}

/// `str.lstrip` of punctuation and plain spaces.
pub(crate) fn strip_marks_start(text: &str) -> &str {
    text.trim_start_matches(is_mark)
}

/// `str.rstrip` of punctuation and plain spaces.
pub(crate) fn strip_marks_end(text: &str) -> &str {
    text.trim_end_matches(is_mark)
}

/// The text without ASCII punctuation.
pub(crate) fn without_punctuation(text: &str) -> Cow<'_, str> {
    if text.contains(|char: char| char.is_ascii_punctuation()) {
        Cow::Owned(text.chars().filter(|char| !char.is_ascii_punctuation()).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// `str.lower`.
pub(crate) fn lower(text: &str) -> String {
    text.to_lowercase()
}

/// `str.islower`: some letter is lower, none upper or title.
pub(crate) fn is_lower(text: &str) -> bool {
    !text.chars().any(|char| char.is_uppercase() || is_title(char))
        && text.chars().any(char::is_lowercase)
}

/// `str.isupper`: some letter is upper, none lower or title.
pub(crate) fn is_upper(text: &str) -> bool {
    !text.chars().any(|char| char.is_lowercase() || is_title(char))
        && text.chars().any(char::is_uppercase)
}

/// `str.count`: occurrences that do not overlap; the empty text occurs around every character.
pub(crate) fn count(text: &str, part: &str) -> usize {
    if part.is_empty() { len(text) + 1 } else { text.matches(part).count() }
}

/// The text in compatibility decomposition, encoded as ASCII, dropping other characters.
pub(crate) fn to_ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_ascii() {
            ascii.push(char);
        } else {
            ascii.push_str(ascii_of(char));
        }
    }
    ascii
}

/// Whether `\bWORD\b` of `re` is found in the text, with case ignored.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let word: Vec<char> = word.chars().collect();
    let (Some(first), Some(last)) = (word.first(), word.last()) else { return false };
    let same = |one: char, other: char| one == other || same_ignoring_case(one, other);
    let mut before = None;
    for (at, char) in text.char_indices() {
        let begins = before.is_some_and(is_word) != is_word(*first);
        before = Some(char);
        if !begins || !same(char, *first) {
            continue;
        }
        let mut rest = text[at..].chars();
        if word.iter().all(|char| rest.next().is_some_and(|found| same(found, *char)))
            && rest.next().is_some_and(is_word) != is_word(*last)
        {
            return true;
        }
    }
    false
}

fn is_mark(char: char) -> bool {
    char.is_ascii_punctuation() || char == ' '
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctuation_is_that_of_ascii() {
        assert!(
            (0..128u8)
                .map(char::from)
                .all(|char| PUNCTUATION.contains(char) == char.is_ascii_punctuation())
        );
        assert_eq!(without_punctuation("a-b, “c”!"), "ab “c”");
        assert_eq!(strip_marks(" *a b.*\t"), "a b.*\t");
    }

    #[test]
    fn words_are_parted_by_any_space() {
        assert_eq!(
            split("\u{1c}a\u{a0}b\u{3000}\n c\u{200b}d ").collect::<Vec<_>>(),
            ["a", "b", "c\u{200b}d"]
        );
    }

    #[test]
    fn case_needs_a_letter() {
        assert!(is_lower("ab1") && !is_lower("1") && !is_lower("aB") && !is_lower("aǅ"));
        assert!(is_upper("AB-") && !is_upper("") && !is_upper("Ab"));
    }

    #[test]
    fn words_are_found_at_their_edges() {
        assert!(has_word("A Cat.", "cat") && !has_word("cats", "cat") && !has_word("cat_", "cat"));
        assert!(has_word("cats cat", "cat") && has_word("a-cat", "cat"));
        assert!(has_word("x.b", ".b") && !has_word(" .b", ".b") && has_word("THIſ", "this"));
        assert!(!has_word("a", ""));
    }

    #[test]
    fn the_empty_text_is_everywhere() {
        assert_eq!((count("aé", ""), count("aaaa", "aa"), count("", "a")), (3, 2, 0));
    }
}
