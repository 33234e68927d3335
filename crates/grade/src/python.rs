//! Python's character classes and `str.strip`; the official graders are defined in their terms.
//!
//! Uses the Unicode version it was built with, which may be newer than a given Python's.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory as _};

/// `str.isspace` of one character, which is also the `\s` of `re`.
pub(crate) fn is_space(char: char) -> bool {
    char.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&char)
}

/// `str.isalpha` of one character: a letter, not a mark or letter-like number.
pub(crate) fn is_alpha(char: char) -> bool {
    if char.is_ascii() {
        return char.is_ascii_alphabetic();
    }
    char.general_category_group() == GeneralCategoryGroup::Letter
}

/// The `\w` of `re`: letters, numbers of any kind and the underscore, without combining marks.
pub(crate) fn is_word(char: char) -> bool {
    if char.is_ascii() {
        return char.is_ascii_alphanumeric() || char == '_';
    }
    let group = char.general_category_group();
    matches!(group, GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number)
}

/// `str.strip` without an argument.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_space() {
        assert_eq!(strip("\u{1c} \u{a0}a b\u{3000}\u{1f}\n"), "a b");
        assert_eq!(strip("\u{200b}a\u{feff}"), "\u{200b}a\u{feff}");
        assert_eq!(strip(" \t"), "");
    }

    #[test]
    fn marks_and_circled_letters_are_not_word_characters() {
        for char in ['\u{301}', 'Ⓐ', '\u{93f}', '-', '：', '\u{200d}'] {
            assert!(!is_word(char) && !is_alpha(char), "{char:?}");
        }
        for char in ['é', '答', 'ʼ', 'ª', 'ß'] {
            assert!(is_word(char) && is_alpha(char), "{char:?}");
        }
        for char in ['_', '7', '²', 'Ⅳ', '½', '٣'] {
            assert!(is_word(char) && !is_alpha(char), "{char:?}");
        }
    }
}
