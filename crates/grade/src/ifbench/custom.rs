//! `custom:` constraints: each for one question, whose answer is partly known.

use super::{args::Raised, count::digit_runs};
use crate::text::{
    chars::{decimal_value, is_decimal, is_space, is_word},
    csv,
    punkt::sentences,
    strings::{len, lower, split, strip, strip_marks, to_ascii, without_punctuation},
};

const CAPITALS: [&str; 27] = [
    "Reykjavik",
    "Helsinki",
    "Oslo",
    "Tallinn",
    "Stockholm",
    "Riga",
    "Moscow",
    "Copenhagen",
    "Vilnius",
    "Minsk",
    "Dublin",
    "Berlin",
    "Amsterdam",
    "Warsaw",
    "London",
    "Brussels",
    "Prague",
    "Luxembourg",
    "Paris",
    "Vienna",
    "Bratislava",
    "Budapest",
    "Vaduz",
    "Chisinau",
    "Bern",
    "Ljubljana",
    "Zagreb",
];

pub(super) fn multiples(text: &str) -> Result<bool, Raised> {
    Ok(digit_runs(text).eq(["14", "21", "28", "35", "42", "49"]))
}

pub(super) fn mcq_count_length(text: &str) -> Result<bool, Raised> {
    if !text.starts_with("Question") {
        return Ok(false);
    }
    let questions: Vec<&str> =
        questions(text).into_iter().map(strip).filter(|question| !question.is_empty()).collect();
    let lengths: Option<Vec<usize>> = questions.into_iter().map(question_length).collect();
    Ok(lengths
        .is_some_and(|lengths| lengths.len() == 4 && lengths.is_sorted_by(|one, next| one < next)))
}

/// The texts between the labels `Question 1.`, which include surrounding line breaks and spaces.
fn questions(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, label) in text.match_indices("Question ") {
        let after = &text[at + label.len()..];
        let rest = after.trim_start_matches(is_decimal);
        if rest.len() == after.len() {
            continue;
        }
        let rest = rest
            .strip_prefix(['.', '|', ')', ':', ';'])
            .unwrap_or(rest)
            .trim_start_matches(is_space);
        found.push(text[start..at].trim_end_matches('\n'));
        start = text.len() - rest.len();
    }
    found.push(&text[start..]);
    found
}

/// The length of a question that has five options.
fn question_length(question: &str) -> Option<usize> {
    let (mut options, mut wording) = (0, String::new());
    for line in question.split('\n').map(strip) {
        if is_option(line) {
            options += 1;
        } else if options == 0 {
            wording.push(' ');
            wording.push_str(line);
        }
    }
    (options == 5).then(|| len(strip(&wording)))
}

fn is_option(line: &str) -> bool {
    let rest = line.strip_prefix(|char| matches!(char, 'A'..='E' | 'a'..='e'));
    let rest = rest.and_then(|rest| rest.strip_prefix(['.', '|', ')']));
    rest.is_some_and(|rest| rest.trim_start_matches(is_space).starts_with(is_word))
}

pub(super) fn reverse_newline(text: &str) -> Result<bool, Raised> {
    let lines = text.split('\n').map(strip_marks).filter(|line| !line.is_empty());
    let countries: Vec<String> =
        lines.skip_while(|line| !line.contains("Zimbabwe")).map(to_ascii).collect();
    Ok(countries.len() >= 52 && countries.is_sorted_by(|one, next| one >= next))
}

pub(super) fn word_reverse(text: &str) -> Result<bool, Raised> {
    let text = lower(text);
    let text = split(&without_punctuation(&text)).rev().collect::<Vec<_>>().join(" ");
    Ok(text.contains("bald eagle") && sentences(&text).contains(&text.as_str()))
}

pub(super) fn character_reverse(text: &str) -> Result<bool, Raised> {
    Ok(lower(text).contains("elgae dlab"))
}

pub(super) fn sentence_alphabet(text: &str) -> Result<bool, Raised> {
    let sentences = sentences(text);
    let begins = |(letter, sentence): (char, &&str)| {
        split(sentence).next().is_some_and(|word| lower(word).starts_with(letter))
    };
    Ok(sentences.len() == 26 && ('a'..='z').zip(&sentences).all(begins))
}

pub(super) fn european_capitals_sort(text: &str) -> Result<bool, Raised> {
    let text = to_ascii(text);
    Ok(text.split(',').map(strip).filter(|name| !name.is_empty()).eq(CAPITALS))
}

pub(super) fn csv_city(text: &str) -> Result<bool, Raised> {
    let rows = rows(text, ',')?;
    Ok(rows.len() == 8
        && rows[0] == ["ID", "Country", "City", "Year", "Count"]
        && rows.iter().all(|row| row.len() == 5))
}

pub(super) fn csv_special_character(text: &str) -> Result<bool, Raised> {
    if !has_header(text, ["ProductID", "Category", "Brand", "Price", "Stock"], ',', &[' ', '\t']) {
        return Ok(false);
    }
    let rows = rows(&text.replace('"', "\"\"\""), ',')?;
    if rows.len() != 15 {
        return Ok(false);
    }
    let is_found = |row: &Vec<String>| row.iter().any(|field| has_special_character(field));
    // Rows after the deciding one are not checked.
    let deciding = rows[1..].iter().find(|row| row.len() != 5 || is_found(row));
    Ok(deciding.is_some_and(|row| row.len() == 5))
}

/// Whether a field begins with a quoted part, on one line, with a character that is neither a word character nor a space.
fn has_special_character(field: &str) -> bool {
    let line = field.split('\n').next().unwrap_or_default();
    let inside = line.strip_prefix('"').and_then(|rest| rest.rsplit_once('"'));
    inside.is_some_and(|(inside, _)| inside.contains(|char| !is_word(char) && !is_space(char)))
}

pub(super) fn csv_quotes(text: &str) -> Result<bool, Raised> {
    if !has_header(text, ["StudentID", "Subject", "Grade", "Semester", "Score"], '\t', &[' ']) {
        return Ok(false);
    }
    let rows = rows(&text.replace('"', "\"\"\""), '\t')?;
    if rows.len() != 4 {
        return Ok(false);
    }
    for row in rows {
        if row.len() != 5 {
            return Ok(false);
        }
        for field in &row {
            let field = strip(field);
            if field.is_empty() {
                return Err(Raised::index("string"));
            }
            if !field.starts_with('"') || !field.ends_with('"') {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Whether the first line is these names, quoted or not, separated by the delimiter and blanks.
fn has_header(text: &str, names: [&str; 5], delimiter: char, blanks: &[char]) -> bool {
    let mut rest = strip(text.split('\n').next().unwrap_or_default());
    for (index, name) in names.into_iter().enumerate() {
        if index > 0 {
            let Some(after) = rest.strip_prefix(delimiter) else { return false };
            rest = after.trim_start_matches(blanks);
        }
        let bare = rest.strip_prefix('"').unwrap_or(rest);
        let Some(after) = bare.strip_prefix(name) else { return false };
        let closed = if bare.len() < rest.len() { after.strip_prefix('"') } else { Some(after) };
        let Some(after) = closed else { return false };
        rest = after;
    }
    rest.is_empty()
}

fn rows(text: &str, delimiter: char) -> Result<Vec<Vec<String>>, Raised> {
    csv::rows(text, delimiter).map_err(|error| Raised::new("Error", error))
}

pub(super) fn date_format_list(text: &str) -> Result<bool, Raised> {
    Ok(strip(text).split(',').map(strip).all(|date| parse_date(date).is_some_and(is_napoleonic)))
}

/// Year, month and day of four, two and two digits of any script.
fn parse_date(date: &str) -> Option<[u32; 3]> {
    let number = |digits: &str, length: usize| {
        let digits: Option<Vec<u32>> = digits.chars().map(decimal_value).collect();
        let digits = digits.filter(|digits| digits.len() == length)?;
        Some(digits.into_iter().fold(0, |number, digit| 10 * number + digit))
    };
    let mut parts = date.split('-');
    let [year, month, day] = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(())?;
    Some([number(year, 4)?, number(month, 2)?, number(day, 2)?])
}

/// Within his life and within the month; month and day zero pass.
fn is_napoleonic([year, month, day]: [u32; 3]) -> bool {
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 29,
        _ => 99,
    };
    (1769..=1821).contains(&year) && month <= 12 && day <= last
}
