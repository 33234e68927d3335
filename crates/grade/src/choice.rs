//! Multiple choice: extracts the letter of an answer and compares it with the expected one.
//!
//! The options of the question are unknown here: any letter may be right, and texts without a letter are wrong.

use crate::python::{is_alpha, is_space, is_word, strip};

/// 1 if the answer, or the letter extracted from it, equals the expected one up to case and outer space; else 0.
pub fn score(answer: &str, ground_truth: &str) -> f64 {
    let wanted = strip(ground_truth).to_uppercase();
    let matches = |text: &str| strip(text).to_uppercase() == wanted;
    f64::from(u8::from(matches(answer) || matches(&letter(answer))))
}

/// The letter of an answer, in upper case; empty without one.
///
/// Tried in this order: the value of a JSON key `answer`; `answer: X`; `answer is X` or `choice is X`; how the
/// last `\boxed{}` starts; the last single letter; how the text starts. The last three may yield
/// letters of any script.
pub fn letter(answer: &str) -> String {
    let chars: Vec<char> = answer.chars().collect();
    let stated = quoted(&chars).or_else(|| after_colon(&chars)).or_else(|| after_is(&chars));
    if let Some(letter) = stated {
        return letter.to_uppercase().collect();
    }
    boxed(answer)
        .and_then(first_letter)
        .or_else(|| last_alone(answer))
        .or_else(|| first_letter(answer))
        .unwrap_or_default()
}

/// `"answer": "X"`.
fn quoted(text: &[char]) -> Option<char> {
    (0..text.len()).find_map(|at| {
        let rest = literal(&text[at..], "\"answer\"")?;
        let rest = spaces(rest).strip_prefix(&[':'])?;
        match spaces(rest) {
            ['"', letter, '"', ..] => Some(*letter).filter(|letter| is_option(*letter)),
            _ => None,
        }
    })
}

/// `answer: X`, the colon of either width, `X` a whole word.
fn after_colon(text: &[char]) -> Option<char> {
    (0..text.len()).find_map(|at| {
        let rest = spaces(literal(&text[at..], "answer")?);
        match rest {
            [':' | '：', rest @ ..] => option_word(spaces(rest)),
            _ => None,
        }
    })
}

/// `answer is X` or `choice is X`, `X` a whole word.
fn after_is(text: &[char]) -> Option<char> {
    (0..text.len()).find_map(|at| {
        let rest = &text[at..];
        let rest = literal(rest, "answer").or_else(|| literal(rest, "choice"))?;
        let rest = literal(some_spaces(rest)?, "is")?;
        option_word(some_spaces(rest)?)
    })
}

/// Content of the last `\boxed{`, trimmed, where its braces balance.
fn boxed(text: &str) -> Option<&str> {
    let (_, inside) = text.rsplit_once("\\boxed{")?;
    let mut depth = 1_usize;
    let end = inside.bytes().position(|byte| {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    Some(strip(&inside[..end]))
}

/// The first character in upper case, where that consists of letters.
fn first_letter(text: &str) -> Option<String> {
    let upper: String = strip(text).chars().next()?.to_uppercase().collect();
    upper.chars().all(is_alpha).then_some(upper)
}

/// The last single letter A to Z between word boundaries, in the text's upper case.
fn last_alone(text: &str) -> Option<String> {
    // Expanded forms matter: the upper case of one character may be a letter and a mark, which ends the word.
    let upper: Vec<char> = text.chars().flat_map(char::to_uppercase).collect();
    let word =
        |at: Option<usize>| at.and_then(|at| upper.get(at)).is_some_and(|char| is_word(*char));
    let at = (0..upper.len()).rfind(|&at| {
        upper[at].is_ascii_uppercase() && !word(at.checked_sub(1)) && !word(Some(at + 1))
    })?;
    Some(upper[at].to_string())
}

/// Strips a literal prefix, ignoring case.
fn literal<'a>(text: &'a [char], literal: &str) -> Option<&'a [char]> {
    let mut rest = text;
    for wanted in literal.chars() {
        let (char, after) = rest.split_first()?;
        if !same_letter(*char, wanted) {
            return None;
        }
        rest = after;
    }
    Some(rest)
}

/// Case-insensitive equality with a lower-case letter or sign, including what `re.IGNORECASE` folds to i and s.
fn same_letter(char: char, wanted: char) -> bool {
    match wanted {
        'i' => matches!(char, 'i' | 'I' | 'İ' | 'ı'),
        's' => matches!(char, 's' | 'S' | 'ſ'),
        _ => char.to_ascii_lowercase() == wanted,
    }
}

/// `[A-Z]` under `re.IGNORECASE`: the last is the sign of the unit kelvin.
fn is_option(char: char) -> bool {
    char.is_ascii_alphabetic() || matches!(char, 'İ' | 'ı' | 'ſ' | '\u{212a}')
}

fn option_word(text: &[char]) -> Option<char> {
    let (letter, rest) = text.split_first()?;
    let ends = rest.first().is_none_or(|next| !is_word(*next));
    (is_option(*letter) && ends).then_some(*letter)
}

fn spaces(text: &[char]) -> &[char] {
    let end = text.iter().position(|char| !is_space(*char)).unwrap_or(text.len());
    &text[end..]
}

fn some_spaces(text: &[char]) -> Option<&[char]> {
    let rest = spaces(text);
    (rest.len() < text.len()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_extracted_by_priority() {
        for (text, expected) in [
            ("", ""),
            ("3", ""),
            ("c", "C"),
            ("Sodium", "S"),
            ("A or C", "C"),
            ("C is right; answer: B", "B"),
            ("answer：d\nA", "D"),
            ("Answer: Bob has a dog", "A"),
            ("{\"Answer\" :\n\"j\"} answer: B", "J"),
            ("my choice  is f.", "F"),
            ("choiceis f a", "A"),
            ("\\boxed{A} then \\boxed{ {b} }", "B"),
            ("\\boxed{A} then \\boxed{\\text{B}}", "B"),
            ("B \\boxed{C", "C"),
            ("x \\boxed{C} A", "C"),
            ("É C", "C"),
            ("答案是B", "答"),
            ("A_ 1", "A"),
        ] {
            assert_eq!(letter(text), expected, "{text:?}");
        }
    }

    #[test]
    fn foreign_cases_follow_the_pattern_engine() {
        assert_eq!(letter("anſwer: x"), "X");
        assert_eq!(letter("answer İſ ı"), "I");
        assert_eq!(letter("answer: \u{212a}"), "\u{212a}");
        assert_eq!(letter("ǰ"), "J");
        assert_eq!(letter("ßx"), "SS");
        assert_eq!(letter("answer: A\u{301}"), "A");
    }

    #[test]
    fn scores_ignore_case_and_outer_space() {
        assert_eq!(score(" b\n", "B"), 1.0);
        assert_eq!(score("The answer is b", " b "), 1.0);
        assert_eq!(score("A", "B"), 0.0);
        assert_eq!(score("two words", "TWO WORDS"), 1.0);
        assert_eq!(score("3", ""), 1.0);
    }
}
