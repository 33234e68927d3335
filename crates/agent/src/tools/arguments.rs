//! Reads the arguments of a tool call. Errors are written for the model.

use serde_json::{Map, Value};

/// The arguments of a call to one tool.
#[derive(Clone, Copy)]
pub(crate) struct ToolArguments<'a> {
    /// The tool, for error messages.
    pub(crate) tool: &'a str,
    /// The arguments.
    pub(crate) map: &'a Map<String, Value>,
}

impl<'a> ToolArguments<'a> {
    /// A required string.
    pub(crate) fn text(&self, name: &str) -> Result<&'a str, String> {
        self.optional_text(name)?.ok_or_else(|| self.missing(name))
    }

    /// An optional string.
    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a string", other)),
        }
    }

    /// A required integer.
    pub(crate) fn integer(&self, name: &str) -> Result<i64, String> {
        let value = self.get(name).ok_or_else(|| self.missing(name))?;
        integer(value).ok_or_else(|| self.wrong(name, "an integer", value))
    }

    /// An optional array of two integers; an empty array is none.
    pub(crate) fn optional_range(&self, name: &str) -> Result<Option<(i64, i64)>, String> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let wrong = || self.wrong(name, "an array of two integers, such as [11, 20]", value);
        match value.as_array().ok_or_else(wrong)?.as_slice() {
            [] => Ok(None),
            [first, last] => integer(first).zip(integer(last)).map(Some).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }

    /// Models write `null` for arguments they leave out.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn missing(&self, name: &str) -> String {
        let given =
            self.map.keys().map(|key| short_name(key)).take(10).collect::<Vec<_>>().join(", ");
        let given = if given.is_empty() { "none".into() } else { given };
        format!("{}: the argument `{name}` is missing (given: {given})", self.tool)
    }

    fn wrong(&self, name: &str, wanted: &str, got: &Value) -> String {
        let got = match got {
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
            Value::Null => "null",
        };
        format!("{}: the argument `{name}` must be {wanted}, not {got}", self.tool)
    }
}

/// The start of a name the model made up: at most 60 characters, none of them control characters.
pub(crate) fn short_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}

/// An integer, also one written as 3.0.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0)?;
        (float.abs() < 9e15).then_some(float as i64)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check<T>(
        map: Value,
        take: impl Fn(ToolArguments<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let map = map.as_object().expect("an object").clone();
        take(ToolArguments { tool: "tool", map: &map })
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = |map| check(map, |given| given.text("path").map(str::to_owned));
        assert_eq!(text(json!({"path": "a"})), Ok("a".into()));
        let missing = "tool: the argument `path` is missing (given: file, x)";
        assert_eq!(text(json!({"file": 1, "x": 2})), Err(missing.into()));
        let missing = "tool: the argument `path` is missing (given: path)";
        assert_eq!(text(json!({"path": null})), Err(missing.into()));
        let wrong = "tool: the argument `path` must be a string, not an array";
        assert_eq!(text(json!({"path": ["a"]})), Err(wrong.into()));
    }

    #[test]
    fn numbers_are_whole() {
        let line = |map| check(map, |given| given.integer("line"));
        assert_eq!(line(json!({"line": 3})), Ok(3));
        assert_eq!(line(json!({"line": -1.0})), Ok(-1));
        assert!(line(json!({"line": 1.5})).is_err());
        assert!(line(json!({"line": 1e300})).is_err());
        let range = |map| check(map, |given| given.optional_range("r"));
        assert_eq!(range(json!({"r": [1, -1]})), Ok(Some((1, -1))));
        assert_eq!(range(json!({"r": []})), Ok(None));
        assert_eq!(range(json!({})), Ok(None));
        for bad in [json!([1]), json!([1, 2, 3]), json!(["a", "b"]), json!("1,2"), json!(4)] {
            assert!(range(json!({"r": bad.clone()})).is_err(), "{bad}");
        }
    }
}
