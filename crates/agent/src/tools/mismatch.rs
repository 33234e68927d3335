//! Explains why the text of a `str_replace` is not in the file, with the nearest text that is.
//!
//! Guesses, in bounded time. The edit is refused either way.

use super::{
    numbered_lines::number_lines,
    text_edit::{count_lines, lines},
};

/// The most lines that are compared, whatever the file and the text.
const MAX_COMPARED: usize = 2_000_000;
/// The most characters of the file that are shown.
const SHOWN: usize = 1500;

/// An explanation for the model why `old` is not in the file.
pub(crate) fn explain_mismatch(file: &[u8], old: &str) -> String {
    let wanted: Vec<&str> = old.lines().map(|line| line.trim_end_matches('\r')).collect();
    if !wanted.is_empty() && wanted.iter().all(|line| is_numbered(line)) {
        return "Its lines begin with line numbers, which are not part of the file: leave them out.".into();
    }
    if old.contains("\r\n") && !file.windows(2).any(|pair| pair == b"\r\n") {
        return "It has CR LF line ends, but the file has LF.".into();
    }
    let there: Vec<String> = lines(file)
        .take(MAX_COMPARED)
        .map(|line| normalized(&String::from_utf8_lossy(line)))
        .collect();
    let normalized: Vec<String> = wanted.iter().map(|line| normalized(line)).collect();
    if let Some((first, count)) = same_but_white_space(&there, &normalized) {
        let difference = tab_difference(file, (first, count), old);
        return format!(
            "These lines of the file differ from it only in white space{difference}:\n{}",
            shown(file, first, count)
        );
    }
    if let Some((first, agreed)) = same_start(&there, &normalized) {
        let at = first + agreed;
        return format!(
            "Its start is at line {first}, but line {at} differs from its line {}:\n{}",
            agreed + 1,
            shown(file, first, agreed + 2)
        );
    }
    match closest(&there, &normalized) {
        Some(line) => format!("The closest line of the file is:\n{}", shown(file, line, 1)),
        None => format!(
            "Nothing like it is in the file, which has {} lines; view it first.",
            count_lines(file)
        ),
    }
}

/// Whether a line looks like one of a numbered listing.
fn is_numbered(line: &str) -> bool {
    let digits = line.trim_start_matches(' ').split_once('\t').map(|(number, _)| number);
    digits.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// A line with one blank for every run of white space, and none at its ends.
fn normalized(line: &str) -> String {
    let mut text = String::with_capacity(line.len().min(4096));
    for word in line.split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}

/// Where the file differs only in white space: the first line, from 1, and the number of lines.
fn same_but_white_space(there: &[String], wanted: &[String]) -> Option<(usize, usize)> {
    let start = wanted.iter().position(|line| !line.is_empty())?;
    let end = wanted.iter().rposition(|line| !line.is_empty())?;
    let wanted = &wanted[start..=end];
    if let [only] = wanted {
        return there.iter().position(|line| line.contains(only.as_str())).map(|at| (at + 1, 1));
    }
    let mut budget = MAX_COMPARED;
    let at = (0..there.len()).find(|at| {
        let agreed = equal_lines(&there[*at..], wanted, budget);
        budget = budget.saturating_sub(agreed + 1);
        agreed == wanted.len()
    })?;
    Some((at + 1, wanted.len()))
}

/// Where the file matches most of its first lines: the line, from 1, and the number of equal lines.
fn same_start(there: &[String], wanted: &[String]) -> Option<(usize, usize)> {
    let start = wanted.iter().position(|line| !line.is_empty())?;
    let wanted = &wanted[start..];
    let mut budget = MAX_COMPARED;
    let mut best: Option<(usize, usize)> = None;
    for at in 0..there.len() {
        let agreed = equal_lines(&there[at..], wanted, budget);
        budget = budget.saturating_sub(agreed + 1);
        if agreed > best.map_or(0, |(_, most)| most) {
            best = Some((at + 1, agreed));
        }
    }
    // A single bracket matches almost anywhere.
    best.filter(|(at, agreed)| *agreed > 1 || there[at - 1].len() > 3)
}

fn equal_lines(there: &[String], wanted: &[String], most: usize) -> usize {
    there.iter().zip(wanted).take(most).take_while(|(a, b)| a == b).count()
}

/// How the white space differs, if it is tabs against blanks.
fn tab_difference(file: &[u8], (first, count): (usize, usize), old: &str) -> &'static str {
    let tabs = lines(file).skip(first - 1).take(count).any(|line| line.contains(&b'\t'));
    match (tabs, old.contains('\t')) {
        (true, false) => " (the file has tabs there)",
        (false, true) => " (the file has no tabs there)",
        _ => "",
    }
}

/// The line most similar to the longest wanted line, if it is similar enough.
fn closest(there: &[String], wanted: &[String]) -> Option<usize> {
    let line = wanted.iter().max_by_key(|line| line.len())?;
    let pairs = pairs(line);
    let similarity = |other: &String| {
        let others = self::pairs(other);
        let common = common(&pairs, &others);
        (common * 200).checked_div(pairs.len() + others.len()).unwrap_or(0)
    };
    let (best, at) =
        there.iter().enumerate().map(|(at, other)| (similarity(other), at + 1)).max()?;
    (best >= 60).then_some(at)
}

/// The pairs of neighbouring bytes of a line, sorted; of a very long one, those of its start.
fn pairs(line: &str) -> Vec<(u8, u8)> {
    let bytes = &line.as_bytes()[..line.len().min(500)];
    let mut pairs: Vec<_> = bytes.windows(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.sort_unstable();
    pairs
}

/// The number of elements two sorted lists share.
fn common(a: &[(u8, u8)], b: &[(u8, u8)]) -> usize {
    let (mut i, mut j, mut count) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        match x.cmp(y) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                count += 1;
                i += 1;
                j += 1;
            }
        }
    }
    count
}

fn shown(file: &[u8], first: usize, count: usize) -> String {
    number_lines(file, first..=first.saturating_add(count - 1), SHOWN).text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"def one():\n\treturn 1\n\n\ndef two():\n\tvalue = 2\n\treturn value\n";

    #[test]
    fn the_difference_is_explained() {
        let cases = [
            ("def one():\n    return 1", "only in white space (the file has tabs there)"),
            ("    return 1", "only in white space"),
            ("     1\tdef one():\n     2\t\treturn 1", "line numbers"),
            ("def one():\r\n\treturn 1", "the file has LF"),
            ("def two():\n\tvalue = 3\n", "line 6 differs from its line 2"),
            ("\tvalue = 4", "closest line of the file is:\n     6\t\tvalue = 2"),
            ("something else entirely 12345", "which has 7 lines"),
            ("\n\n\n\n\n\n", "which has 7 lines"),
            (" ", "which has 7 lines"),
        ];
        for (old, expected) in cases {
            let hint = explain_mismatch(FILE, old);
            assert!(hint.contains(expected), "{old:?}: {hint}");
        }
        assert!(explain_mismatch(b"", "x").contains("0 lines"));
    }

    #[test]
    fn long_texts_are_fast() {
        let begun = std::time::Instant::now();
        let same = b"a b\n".repeat(1 << 18);
        assert!(!explain_mismatch(&same, &("a b\n".repeat(5000) + "c")).is_empty());
        let long = vec![b'x'; 2 << 20];
        assert!(!explain_mismatch(&long, &("y".repeat(1 << 20) + "\r\nz")).is_empty());
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    }
}
