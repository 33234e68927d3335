//! Text utilities: normal forms for comparison, digests, splitting into parts.

use sha2::{Digest, Sha256};

/// Lower-case letters and digits with single spaces between words, so that punctuation and layout do not count. A text
/// without any is returned trimmed.
pub(crate) fn normal(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        if !normal.is_empty() {
            normal.push(' ');
        }
        normal.extend(word.chars().flat_map(char::to_lowercase));
    }
    if normal.is_empty() { text.trim().to_owned() } else { normal }
}

/// Lower case with single spaces. Punctuation is kept: it may be the only difference of two texts.
pub(crate) fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The SHA-256 of some bytes, in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A short digest of several texts, which depends on their boundaries.
pub(crate) fn short_digest(texts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    hex(&digest.finalize()[..6])
}

/// Splits a text longer than `max` bytes into parts of about `goal` bytes, at the ends of paragraphs where possible, else
/// of lines, words or characters. The concatenated parts are the text.
pub(crate) fn parts(text: &str, max: usize, goal: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while rest.len() > max {
        let (part, more) = rest.split_at(boundary(rest, goal));
        parts.push(part);
        rest = more;
    }
    parts.push(rest);
    parts
}

/// The best position to split, between half of `goal` bytes and one and a half times as many.
fn boundary(text: &str, goal: usize) -> usize {
    let (low, high) = (text.floor_char_boundary(goal / 2), text.floor_char_boundary(goal * 3 / 2));
    let middle = text.floor_char_boundary(goal);
    for mark in ["\n\n", "\n", " "] {
        let before = text[low..middle].rfind(mark).map(|at| low + at + mark.len());
        let after = text[middle..high].find(mark).map(|at| middle + at + mark.len());
        if let Some(at) = before.or(after) {
            return at;
        }
    }
    match middle {
        0 => text.chars().next().map_or(0, char::len_utf8),
        middle => middle,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spelling_and_layout_do_not_count() {
        assert_eq!(normal("  What is\tTHIS,\n\nthen? "), "what is this then");
        assert_eq!(normal("Größe"), "größe");
        assert_eq!(normal(" ?! "), "?!");
        assert_eq!(folded("  What is\n6  - 7? "), "what is 6 - 7?");
        assert_ne!(short_digest(&["a", "bc"]), short_digest(&["ab", "c"]));
    }

    #[test]
    fn long_texts_are_cut_at_paragraphs() {
        let text = format!("{}\n\n{}\n\n{}", "a ".repeat(40), "b ".repeat(40), "c ".repeat(40));
        let cut = parts(&text, 100, 90);
        assert_eq!(cut.len(), 3);
        assert!(cut[1].starts_with('b') && cut[1].ends_with("\n\n"), "{cut:?}");
        assert_eq!(parts("short", 100, 90), ["short"]);
    }

    proptest! {
        #[test]
        fn parts_are_the_text(text in "[a-cé\\n ]{0,400}", goal in 8_usize..60) {
            let cut = parts(&text, goal * 3 / 2, goal);
            prop_assert_eq!(&cut.concat(), &text);
            prop_assert!(cut.iter().all(|part| part.len() <= goal * 3 / 2));
        }
    }
}
