//! `format:` constraints: marks, lines, bullets, brackets and quotes.

use std::{
    collections::{HashMap, VecDeque},
    ops::ControlFlow,
};

use super::{
    args::{Args, Raised},
    rule::Rule,
};
use crate::text::{
    chars::{is_alpha, is_emoji, is_space, is_word},
    punkt::sentences,
    strings::{self, is_lower, is_upper, lower, split, strip, strip_marks, without_punctuation},
    treebank,
};

pub(super) fn parentheses(text: &str) -> bool {
    let mut open = Vec::new();
    let mut deepest = 0;
    for char in text.chars() {
        match char {
            '(' | '[' | '{' => {
                open.push(char);
                deepest = deepest.max(open.len());
            }
            ')' | ']' | '}' => {
                if matches!(
                    (open.pop(), char),
                    (Some('('), ')') | (Some('['), ']') | (Some('{'), '}')
                ) {
                    if deepest >= 5 {
                        return true;
                    }
                } else {
                    open.clear();
                    deepest = 0;
                }
            }
            _ => {}
        }
    }
    false
}

pub(super) fn quotes(text: &str) -> bool {
    let mut open = Vec::new();
    let mut deepest = 0;
    for char in text.chars() {
        if open.last() == Some(&char) {
            open.pop();
            if deepest >= open.len() + 3 {
                return true;
            }
        } else if matches!(char, '"' | '\'') {
            open.push(char);
            deepest = deepest.max(open.len());
        }
    }
    false
}

pub(super) fn options(args: &Args) -> Result<Rule, Raised> {
    let text = args.text("options")?;
    let separator =
        ["/", "or"].into_iter().find(|separator| text.contains(separator)).unwrap_or(",");
    let options: Vec<String> =
        text.split(separator).map(|option| strip(option).to_owned()).collect();
    if is_lettered(text) {
        return Ok(Box::new(move |text| Ok(options.iter().any(|option| option == text))));
    }
    let bare = |text: &str| lower(strip_marks(text));
    let options: Vec<String> = options.iter().map(|option| bare(option)).collect();
    Ok(Box::new(move |text| Ok(options.contains(&bare(text)))))
}

/// Whether the options are letters: a, b and c with at most marks and spaces between and before them.
fn is_lettered(options: &str) -> bool {
    let mut rest = options;
    ['a', 'b', 'c'].into_iter().all(|letter| {
        rest = rest.trim_start_matches(|char| !is_word(char));
        let found = rest.strip_prefix([letter, letter.to_ascii_uppercase()]);
        rest = found.unwrap_or(rest);
        found.is_some()
    })
}

pub(super) fn newline(text: &str) -> bool {
    let text = without_punctuation(text);
    let text = strip(&text);
    text.split('\n').filter(|line| !line.is_empty()).count() == split(text).count()
}

pub(super) fn emoji(text: &str) -> bool {
    let sentences = sentences(text);
    let bare = |sentence: &&str| without_punctuation(sentence).into_owned();
    sentences.iter().enumerate().all(|(index, sentence)| {
        let sentence = bare(sentence);
        let sentence = strip(&sentence);
        let next_begins = || {
            let next = sentences.get(index + 1).map(bare).unwrap_or_default();
            strip(&next).chars().next().is_some_and(is_emoji)
        };
        !sentence.is_empty() && (sentence.chars().rev().take(2).any(is_emoji) || next_begins())
    })
}

pub(super) fn line_indent(text: &str) -> bool {
    let indents = without_some_blanks(text);
    indents.is_sorted_by(|one, next| one < next)
}

/// The indents of the lines that remain when blank lines are removed from a list while it is walked: the line after
/// a removed one is skipped, and what is removed is the first line equal to the blank one.
fn without_some_blanks(text: &str) -> Vec<usize> {
    let mut lines = text.split('\n');
    let mut kept: Vec<Option<usize>> = Vec::new();
    let mut blanks: HashMap<&str, VecDeque<usize>> = HashMap::new();
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    while let Some(line) = lines.next() {
        if !strip(line).is_empty() {
            kept.push(Some(indent(line)));
            continue;
        }
        let same = blanks.entry(line).or_default();
        if let Some(first) = same.pop_front() {
            kept[first] = None;
            same.push_back(kept.len());
            kept.push(Some(indent(line)));
        }
        if let Some(skipped) = lines.next() {
            if strip(skipped).is_empty() {
                blanks.entry(skipped).or_default().push_back(kept.len());
            }
            kept.push(Some(indent(skipped)));
        }
    }
    kept.into_iter().flatten().collect()
}

pub(super) fn quote_unquote(text: &str) -> bool {
    let text: String = text.replace("'\"'", "").split(is_space).collect();
    let is_end = |char: char| char.is_ascii_digit() || (char.is_ascii_punctuation() && char != '"');
    !text.contains("\"\"") && !text.trim_end_matches(is_end).ends_with('"')
}

pub(super) fn list(args: &Args) -> Result<Rule, Raised> {
    let separator = args.text("sep")?.to_owned();
    Ok(Box::new(move |text| Ok(strings::count(text, &separator) >= 2)))
}

pub(super) fn thesis(text: &str) -> bool {
    let Some(start) = text.find("<i>").or_else(|| text.find("<em>")) else { return false };
    let text = &text[start..];
    let Some(end) = text.find("</i>").or_else(|| text.find("</em>")) else { return false };
    // The official code strips the shorter tag's length, so a bracket of the longer one remains.
    !strip(&text[3..end]).is_empty() && !strip(&text[end + 4..]).is_empty()
}

pub(super) fn sub_bullets(text: &str) -> bool {
    text.split('*').skip(1).all(|bullet| bullet.contains('-'))
}

pub(super) fn no_bullets_bullets(text: &str) -> bool {
    let (mut before, mut bullets) = (0, 0);
    // A blank line ends the sentences as a bullet does.
    let mut in_sentences = true;
    for line in text.split('\n').map(strip) {
        if line.starts_with('*') {
            if before < 2 {
                return false;
            }
            in_sentences = false;
            bullets += 1;
        } else if in_sentences {
            let found = sentences(line).len();
            in_sentences = found > 0;
            before += found;
        } else {
            return false;
        }
    }
    bullets >= 2
}

pub(super) fn title_case(text: &str) -> bool {
    let found = treebank::visit_words(text, |word| {
        let mut chars = word.chars();
        let first = chars.next().filter(|first| is_alpha(*first) && first.is_lowercase());
        let rest = chars.as_str();
        if first.is_some() && (rest.is_empty() || is_lower(rest) || is_upper(rest)) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found.is_continue()
}

pub(super) fn output_template(text: &str) -> bool {
    ["My Answer:", "My Conclusion:", "Future Outlook:"]
        .into_iter()
        .all(|label| text.contains(label))
}

pub(super) fn no_whitespace(text: &str) -> bool {
    !text.contains(is_space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_are_removed_as_from_a_walked_list() {
        let naive = |text: &str| {
            let mut lines: Vec<&str> = text.split('\n').collect();
            let mut at = 0;
            while at < lines.len() {
                if strip(lines[at]).is_empty()
                    && let Some(first) = lines.iter().position(|line| *line == lines[at])
                {
                    lines.remove(first);
                }
                at += 1;
            }
            lines
                .iter()
                .map(|line| line.len() - line.trim_start_matches(' ').len())
                .collect::<Vec<_>>()
        };
        let pieces = ["", " ", "a", "  b", "\t"];
        for mut number in 0..5_usize.pow(7) {
            let lines: Vec<&str> = (0..7)
                .map(|_| {
                    let piece = pieces[number % 5];
                    number /= 5;
                    piece
                })
                .collect();
            let text = lines.join("\n");
            assert_eq!(without_some_blanks(&text), naive(&text), "{text:?}");
        }
    }

    #[test]
    fn letters_are_told_from_words() {
        assert!(is_lettered("a), b), c), d)") && is_lettered("A/B/C") && is_lettered("abcd"));
        assert!(!is_lettered("yes/no") && !is_lettered("a or b") && !is_lettered("xa,b,c"));
    }

    #[test]
    fn brackets_and_quotes_nest() {
        assert!(parentheses("([{(((x)") && !parentheses("((((x))))") && !parentheses("((((]((x))"));
        assert!(quotes("\"a 'b \"c\" d' e\"") && !quotes("\"a 'b' c\""));
    }
}
