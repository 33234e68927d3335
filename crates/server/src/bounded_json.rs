//! JSON of clients, parsed within bounds: a value takes many times the memory of its text.

use serde::de::DeserializeOwned;
use trajectory::count_values;

use crate::error::{ApiError, Code};

/// Most values of one body or message.
pub(crate) const MAX_VALUES: usize = 100_000;

/// Parses a text of at most [`MAX_VALUES`] values; an empty one stands for an empty object. `what` is what an error calls it.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, ApiError> {
    parse_at_most(bytes, what, MAX_VALUES)
}

/// The same with another bound.
pub(crate) fn parse_at_most<T: DeserializeOwned>(
    bytes: &[u8],
    what: &str,
    most: usize,
) -> Result<T, ApiError> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    if count_values(bytes, most) > most {
        let message = format!("bad {what}: it has more than {most} values");
        return Err(ApiError::new(Code::TooLarge, message));
    }
    serde_json::from_slice(bytes).map_err(|error| ApiError::invalid(format!("bad {what}: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_text_of_many_values_is_refused_before_it_is_parsed() {
        assert_eq!(parse::<Value>(b"", "body").unwrap(), json!({}));
        let zeros = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        // The array is a value too.
        assert!(parse::<Value>(zeros(MAX_VALUES - 1).as_bytes(), "body").is_ok());
        let refused = parse::<Value>(zeros(MAX_VALUES).as_bytes(), "body").unwrap_err();
        assert_eq!(refused.code.status(), 413);
        assert!(
            parse_at_most::<Value>(zeros(MAX_VALUES).as_bytes(), "body", 2 * MAX_VALUES).is_ok()
        );
        // Not what is in a string.
        let text = json!([",[{:".repeat(MAX_VALUES)]).to_string();
        assert!(parse::<Value>(text.as_bytes(), "body").is_ok());
        assert_eq!(parse::<Value>(b"{", "body").unwrap_err().code.status(), 400);
    }
}
