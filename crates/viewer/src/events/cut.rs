//! Shortens the long texts of an event, so that a page of events stays small.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::text::{ceil, floor};

/// Longer texts are cut, in bytes.
const LONGEST: usize = 32 << 10;
/// Images up to this size are kept whole, in bytes of base64.
const LONGEST_IMAGE: usize = 2_800_000;
/// Texts that are listed as cut.
const MOST_CUT: usize = 1000;

/// Cuts the texts of a value; returns the JSON pointers of those that were cut, with their sizes.
pub(crate) fn cut(value: &mut Value) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    walk(value, &mut String::new(), &mut found, LONGEST);
    found
}

/// The beginning and the end of a text that is too long; none where it is not.
pub(crate) fn cut_text(text: &str, longest: usize) -> Option<String> {
    if text.len() <= longest {
        return None;
    }
    let kept = longest / 2;
    let (head, tail) = (&text[..floor(text, kept)], &text[ceil(text, kept)..]);
    Some(format!("{head}\n…\n{tail}"))
}

fn walk(
    value: &mut Value,
    pointer: &mut String,
    found: &mut BTreeMap<String, usize>,
    longest: usize,
) {
    let length = pointer.len();
    match value {
        Value::String(text) => {
            if let Some(short) = cut_text(text, longest) {
                if found.len() < MOST_CUT {
                    found.insert(pointer.clone(), text.len());
                }
                *text = short;
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                pointer.push_str(&format!("/{at}"));
                walk(item, pointer, found, LONGEST);
                pointer.truncate(length);
            }
        }
        Value::Object(fields) => {
            let is_image = fields.get("type").is_some_and(|kind| kind == "image");
            for (name, item) in fields {
                let longest = if is_image && name == "data" { LONGEST_IMAGE } else { LONGEST };
                pointer.push('/');
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                walk(item, pointer, found, longest);
                pointer.truncate(length);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_texts_keep_both_ends() {
        let text = format!("a{}z", "é".repeat(LONGEST));
        let mut value = json!({"a/b": [1, {"t": text}], "short": "x"});
        let found = cut(&mut value);
        assert_eq!(found, BTreeMap::from([("/a~1b/1/t".to_owned(), text.len())]));
        let kept = value.pointer("/a~1b/1/t").and_then(Value::as_str).unwrap();
        assert!(kept.starts_with('a') && kept.ends_with('z'));
        assert!(kept.len() <= LONGEST + 8, "{}", kept.len());
    }

    #[test]
    fn images_stay_whole() {
        let mut value = json!({"type": "image", "data": "A".repeat(100_000)});
        assert!(cut(&mut value).is_empty());
        let mut value = json!({"type": "image", "data": "A".repeat(LONGEST_IMAGE + 1)});
        assert_eq!(cut(&mut value).len(), 1);
    }
}
