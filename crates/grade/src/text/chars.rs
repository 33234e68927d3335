//! Classes of single characters: those of Python's strings and `re`, those of the `regex` engine inside the
//! tokenizers where they differ, and emoji.

use std::{collections::HashMap, sync::LazyLock};

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory as _};

pub(crate) use crate::python::{is_alpha, is_space, is_word};

/// Characters other than decimal digits that `str.isdigit` accepts: superscripts, circled digits and the like.
const DIGITS: [(u32, u32); 20] = [
    (0xb2, 0xb3),
    (0xb9, 0xb9),
    (0x1369, 0x1371),
    (0x19da, 0x19da),
    (0x2070, 0x2070),
    (0x2074, 0x2079),
    (0x2080, 0x2089),
    (0x2460, 0x2468),
    (0x2474, 0x247c),
    (0x2488, 0x2490),
    (0x24ea, 0x24ea),
    (0x24f5, 0x24fd),
    (0x24ff, 0x24ff),
    (0x2776, 0x277e),
    (0x2780, 0x2788),
    (0x278a, 0x2792),
    (0x10a40, 0x10a43),
    (0x10e60, 0x10e68),
    (0x11052, 0x1105a),
    (0x1f100, 0x1f10a),
];

/// Lower-case letters that `re` takes for one another when case is ignored, beyond a common lower case.
const ALIKE: [&str; 24] = [
    "iı",
    "sſ",
    "µμ",
    "\u{345}ι\u{1fbe}",
    "\u{390}\u{1fd3}",
    "\u{3b0}\u{1fe3}",
    "βϐ",
    "εϵ",
    "θϑ",
    "κϰ",
    "πϖ",
    "ρϱ",
    "ςσ",
    "φϕ",
    "в\u{1c80}",
    "д\u{1c81}",
    "о\u{1c82}",
    "с\u{1c83}",
    "т\u{1c84}\u{1c85}",
    "ъ\u{1c86}",
    "ѣ\u{1c87}",
    "\u{a64b}\u{1c88}",
    "\u{1e61}\u{1e9b}",
    "\u{fb05}\u{fb06}",
];

static EMOJI: LazyLock<Vec<(u32, u32)>> = LazyLock::new(|| {
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let line = |line: &str| line.split_once(' ').and_then(|(a, b)| Some((number(a)?, number(b)?)));
    include_str!("../../data/emoji.txt").lines().filter_map(line).collect()
});

static ASCII: LazyLock<HashMap<char, &'static str>> = LazyLock::new(|| {
    let line = |line: &'static str| {
        let (point, left) = line.split_once(' ')?;
        Some((char::from_u32(u32::from_str_radix(point, 16).ok()?)?, left))
    };
    // Lines end with a line feed alone, and what is left of a character may itself be a space.
    include_str!("../../data/ascii.txt").split('\n').filter_map(line).collect()
});

/// The `\d` of `re`: a decimal digit of any script.
pub(crate) fn is_decimal(char: char) -> bool {
    if char.is_ascii() {
        return char.is_ascii_digit();
    }
    char.general_category() == GeneralCategory::DecimalNumber
}

/// The value of a decimal digit of any script.
pub(crate) fn decimal_value(char: char) -> Option<u32> {
    if !is_decimal(char) {
        return None;
    }
    // Every script's digits lie together from zero to nine; sets that touch begin ten further on.
    let before = (1..60).take_while(|back| {
        (u32::from(char)).checked_sub(*back).and_then(char::from_u32).is_some_and(is_decimal)
    });
    Some(before.count() as u32 % 10)
}

/// `str.isdigit` of one character.
pub(crate) fn is_digit(char: char) -> bool {
    is_decimal(char) || (!char.is_ascii() && in_runs(&DIGITS, char))
}

/// `str.isalnum` of one character.
pub(crate) fn is_alnum(char: char) -> bool {
    is_word(char) && char != '_'
}

/// The `\w` of the `regex` engine: unlike `re`, it counts marks and joiners in, and fractions out.
pub(crate) fn is_token_word(char: char) -> bool {
    if char.is_ascii() {
        return char.is_ascii_alphanumeric() || char == '_';
    }
    if char.is_alphabetic() || matches!(char, '\u{200c}' | '\u{200d}') {
        return true;
    }
    let category = char.general_category();
    matches!(category, GeneralCategory::DecimalNumber | GeneralCategory::ConnectorPunctuation)
        || char.general_category_group() == GeneralCategoryGroup::Mark
}

/// The `\s` of the `regex` engine: unlike `re`, it leaves the four control separators out.
pub(crate) fn is_token_space(char: char) -> bool {
    char.is_whitespace()
}

/// `emoji.is_emoji` of one character.
pub(crate) fn is_emoji(char: char) -> bool {
    in_runs(&EMOJI, char)
}

/// The ASCII part of a character's compatibility decomposition.
pub(crate) fn ascii_of(char: char) -> &'static str {
    ASCII.get(&char).copied().unwrap_or_default()
}

/// A letter in title case, which is neither upper nor lower.
pub(crate) fn is_title(char: char) -> bool {
    !char.is_ascii() && char.general_category() == GeneralCategory::TitlecaseLetter
}

/// Whether `re` takes two characters for the same when case is ignored.
pub(crate) fn same_ignoring_case(one: char, other: char) -> bool {
    let (one, other) = (simple_lower(one), simple_lower(other));
    one == other || ALIKE.iter().any(|alike| alike.contains(one) && alike.contains(other))
}

fn simple_lower(char: char) -> char {
    // Only the dotted capital I has a longer lower case, and its first character is the simple one.
    char.to_lowercase().next().unwrap_or(char)
}

fn in_runs(runs: &[(u32, u32)], char: char) -> bool {
    let point = u32::from(char);
    let after = runs.partition_point(|(first, _)| *first <= point);
    after.checked_sub(1).is_some_and(|index| point <= runs[index].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_all_scripts_have_values() {
        let text: Vec<_> = "0٣९۷𝟠𝟘𝟿x½²".chars().map(decimal_value).collect();
        let values = [0, 3, 9, 7, 8, 0, 9].map(Some);
        assert_eq!(text[..7], values);
        assert_eq!(text[7..], [None; 3]);
        assert!(
            is_digit('²') && is_digit('٣') && is_digit('①') && !is_digit('½') && !is_digit('x')
        );
    }

    #[test]
    fn the_two_engines_differ_on_marks_and_fractions() {
        assert!(is_token_word('\u{301}') && !is_word('\u{301}'));
        assert!(is_token_word('\u{fe0f}') && !is_word('\u{fe0f}'));
        assert!(!is_token_word('½') && is_word('½'));
        assert!(!is_token_space('\u{1c}') && is_space('\u{1c}'));
    }

    #[test]
    fn emoji_are_single_code_points() {
        for char in ['😀', '❤', '©', '🇫', '🏽'] {
            assert!(is_emoji(char) || char == '🇫', "{char}");
        }
        assert!(!is_emoji('a') && !is_emoji('\u{fe0f}') && !is_emoji('☐'));
    }

    #[test]
    fn ascii_is_what_remains_of_a_decomposition() {
        let left: String = "ãéﬁ½ⅣΩ\u{a0}".chars().map(ascii_of).collect();
        assert_eq!(left, "aefi12IV ");
    }

    #[test]
    fn case_is_ignored_as_re_does() {
        for (one, other) in [('k', 'K'), ('ſ', 'S'), ('İ', 'i'), ('ı', 'I'), ('Σ', 'ς')] {
            assert!(same_ignoring_case(one, other), "{one} {other}");
        }
        assert!(!same_ignoring_case('ß', 's') && !same_ignoring_case('a', 'b'));
    }
}
