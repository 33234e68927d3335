//! Bounds the number of values in a JSON text before it is parsed.
//!
//! A value takes two bytes on the wire and fifty times as much in memory. Counting them first is cheap.

use crate::ApiError;

/// How many more values a request may contain.
#[derive(Debug)]
pub struct ValueBudget {
    most: usize,
    left: usize,
}

/// Maximum values of a request; long conversations have some ten thousand.
const MAX_VALUES: usize = 100_000;

impl Default for ValueBudget {
    /// The budget of a request.
    fn default() -> Self {
        Self::of(MAX_VALUES)
    }
}

impl ValueBudget {
    /// A budget of this many values.
    pub fn of(most: usize) -> Self {
        Self { most, left: most }
    }

    /// Deducts the values of a text.
    pub fn spend(&mut self, text: &[u8]) -> Result<(), ApiError> {
        match self.left.checked_sub(count(text)) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(ApiError::request(format_args!(
                "must not contain more than {} values",
                self.most
            ))),
        }
    }
}

/// An upper bound: each value but the first follows an opening bracket or a comma. For text that is not JSON the count
/// is irrelevant, since parsing fails.
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
        let mut values = ValueBudget::default();
        let half = format!("[{}1]", "1,".repeat(MAX_VALUES / 2));
        assert!(values.spend(half.as_bytes()).is_ok());
        assert!(values.spend(half.as_bytes()).is_err());
        assert!(values.spend(b"[1, 2]").is_ok());
    }
}
