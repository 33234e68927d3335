//! Texts of models, made short.

use trajectory::is_hidden;

/// The beginning of a text on one line, at most `most` characters. Invisible characters are spelled out.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    report::excerpt(text, most)
}

/// The end of the part of a text with at most `most` bytes, between characters.
pub(crate) fn floor(text: &str, most: usize) -> usize {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

/// The start of the part of a text with at most `most` bytes at its end, between characters.
pub(crate) fn ceil(text: &str, most: usize) -> usize {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    start
}

/// A file name from any text: letters, digits, `-`, `_` and `.`; never empty, never hidden.
pub(crate) fn file_name(text: &str, most: usize) -> String {
    let mut name: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
        .filter(|c| !is_hidden(*c))
        .take(most)
        .collect();
    name = name.trim_matches(['.', '-']).to_owned();
    if name.is_empty() { "run".to_owned() } else { name }
}

/// A text as one word of a shell command.
pub(crate) fn shell_quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,:@%+=".contains(&byte);
    match !text.is_empty() && text.bytes().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
