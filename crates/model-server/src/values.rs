//! How many values a JSON text holds, known before it is read.
//!
//! A value takes two bytes on the wire and fifty times as much in memory. Counting them first costs little.

use crate::failure::Failure;

/// How many values a request may hold.
#[derive(Debug)]
pub(crate) struct Values {
    left: usize,
}

/// Long conversations have some ten thousand.
const MOST: usize = 100_000;

impl Values {
    pub(crate) fn new() -> Self {
        Self { left: MOST }
    }

    /// Takes those of a text from what is left.
    pub(crate) fn spend(&mut self, text: &[u8]) -> Result<(), Failure> {
        match self.left.checked_sub(count(text)) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Failure::request(format_args!("must not hold more than {MOST} values"))),
        }
    }
}

/// No fewer than there are: each but the first stands behind an opening bracket or a comma. What is no JSON
/// does not matter, for nobody keeps it.
fn count(text: &[u8]) -> usize {
    let mut count = 1;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b',' | b'[' | b'{' => count += 1,
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    count
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn real(value: &Value) -> usize {
        1 + match value {
            Value::Array(items) => items.iter().map(real).sum(),
            Value::Object(map) => map.values().map(real).sum(),
            _ => 0,
        }
    }

    #[test]
    fn no_value_is_overlooked() {
        for (text, counted) in [
            ("7", 1),
            (r#"{"a": [1, 2, {"b": null}], "c, [{": "d\", [["}"#, 7),
            (r#"[[[[]]]]"#, 5),
            (r#"["\\", "\\\"", ","]"#, 4),
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert!(real(&value) <= count(text.as_bytes()), "{text}");
            assert_eq!(count(text.as_bytes()), counted, "{text}");
        }
        for broken in ["\"", "\"\\", "\"abc", "[", ""] {
            count(broken.as_bytes());
        }
    }

    #[test]
    fn the_budget_is_shared() {
        let mut values = Values::new();
        let half = format!("[{}1]", "1,".repeat(MOST / 2));
        assert!(values.spend(half.as_bytes()).is_ok());
        assert!(values.spend(half.as_bytes()).is_err());
        assert!(values.spend(b"[1, 2]").is_ok());
    }
}
