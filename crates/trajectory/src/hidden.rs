//! Recognizes invisible characters, and escapes them in JSON. Whoever displays a text decides how to show them.

use std::{borrow::Cow, fmt::Write};

/// JSON text with its hidden characters as escapes: whoever shows the text, on a terminal for example, shows nothing that
/// hides or reorders it, and whoever parses it gets the same value.
pub fn escape_hidden(json: &str) -> Cow<'_, str> {
    // Below these JSON itself requires an escape within strings, and allows line ends and tabs between values.
    let raw = |c: char| c >= '\x7f' && is_hidden(c);
    let Some(first) = json.find(raw) else { return Cow::Borrowed(json) };
    let mut escaped = String::with_capacity(json.len() + 64);
    let (fine, rest) = json.split_at(first);
    escaped.push_str(fine);
    for c in rest.chars() {
        if !raw(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    Cow::Owned(escaped)
}

/// Whether a character controls a terminal, or hides or reorders text: control characters, line and paragraph
/// separators, and Unicode format characters, such as direction marks, zero-width characters and tags.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\0'..='\x1f' | '\x7f'..='\u{9f}' => true,
        ' '..='~' => false,
        '\u{ad}'
        | '\u{600}'..='\u{605}'
        | '\u{61c}'
        | '\u{6dd}'
        | '\u{70f}'
        | '\u{890}'..='\u{891}'
        | '\u{8e2}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}'
        | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn every_hidden_character_is_escaped_and_comes_back() {
        for c in ('\0'..='\u{10ffff}').filter(|c| is_hidden(*c)) {
            let value = json!({ (format!("k{c}")): format!("a\\{c}\"b") });
            for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let escaped = escape_hidden(&json);
                assert!(escaped.chars().all(|c| c == '\n' || !is_hidden(c)), "{c:?}");
                assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value);
            }
        }
        let fine = json!(["größer 日本語 🙂", "\t\n"]).to_string();
        assert!(matches!(escape_hidden(&fine), Cow::Borrowed(text) if text == fine));
        assert_eq!(escape_hidden("\"\u{e0041}\u{85}\""), r#""\udb40\udc41\u0085""#);
    }

    proptest! {
        #[test]
        fn values_survive(text in "[\\x00-\u{a0}\\\\\"\u{200b}-\u{206f}🙂é]{0,40}") {
            let json = Value::from(text.clone()).to_string();
            let escaped = escape_hidden(&json);
            prop_assert!(!escaped.chars().any(is_hidden));
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }
    }
}
