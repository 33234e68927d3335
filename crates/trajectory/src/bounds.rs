//! How much JSON text may unfold to. A value takes many times the memory of its text: 256 MiB of `[0,0,...]` are 128 million
//! values, which take 4 GiB.

/// The most values of one file of an episode or a benchmark that is read. Ten thousand turns have half a million.
pub const MAX_FILE_VALUES: usize = 4 << 20;

/// The number of values that a JSON text has at most, counted up to one more than `most`: each but the first follows one of
/// these marks.
pub fn count_values(text: &[u8], most: usize) -> usize {
    let (mut values, mut quoted, mut escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' | b':' if !quoted => values += 1,
            _ => {}
        }
        if values > most {
            break;
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::count_values;

    #[test]
    fn values_are_counted_outside_strings() {
        for (text, expected) in
            [("1", 1), ("[1,2]", 3), (r#"{"a":[],"b":"x,y[{:\",\\"}"#, 6), (r#"["\\",1]"#, 3)]
        {
            assert_eq!(count_values(text.as_bytes(), 100), expected, "{text}");
        }
        assert_eq!(count_values("[".repeat(1 << 20).as_bytes(), 10), 11);
    }
}
