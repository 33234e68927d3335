//! Typed access to the fields of a JSON object; every error names its field.
//!
//! A null field counts as absent. Knows no field by name.

use serde_json::{Map, Value};

use crate::api_error::ApiError;

/// An object and its path.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: &'a str,
}

impl<'a> Fields<'a> {
    /// The object at this path; empty for the body itself.
    pub(crate) fn of(value: &'a Value, path: &'a str) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { map, path }),
            _ if path.is_empty() => Err(ApiError::request("must be an object")),
            _ => Err(wrong(path, "an object", value)),
        }
    }

    /// The full name of a field.
    pub(crate) fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// An error of a field.
    pub(crate) fn error(&self, key: &str, why: impl std::fmt::Display) -> ApiError {
        ApiError::field(self.name(key), why)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn need(&self, key: &str) -> Result<&'a Value, ApiError> {
        self.get(key).ok_or_else(|| self.error(key, "is missing"))
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, ApiError> {
        self.typed(key, "a string", Value::as_str)
    }

    pub(crate) fn needed_text(&self, key: &str) -> Result<&'a str, ApiError> {
        self.need(key)?;
        Ok(self.text(key)?.unwrap_or_default())
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool, ApiError> {
        Ok(self.typed(key, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    pub(crate) fn list(&self, key: &str) -> Result<&'a [Value], ApiError> {
        let list = self.typed(key, "a list", Value::as_array)?;
        Ok(list.map_or(&[], Vec::as_slice))
    }

    /// A number in a range.
    pub(crate) fn number(&self, key: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
        let Some(number) = self.typed(key, "a number", Value::as_f64)? else { return Ok(None) };
        if !(least..=most).contains(&number) {
            return Err(self.error(key, format_args!("must be between {least} and {most}")));
        }
        Ok(Some(number))
    }

    /// An integer.
    pub(crate) fn integer(&self, key: &str) -> Result<Option<i128>, ApiError> {
        let integer = |value: &Value| {
            let small = value.as_i64().map(i128::from);
            small.or_else(|| value.as_u64().map(i128::from))
        };
        self.typed(key, "an integer", integer)
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong(&self.name(key), expected, value))
    }
}

/// A value of the wrong type.
pub(crate) fn wrong(name: &str, expected: &str, value: &Value) -> ApiError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ApiError::field(name, format_args!("must be {expected}, not {found}"))
}
