//! Typed access to the fields of a JSON object; every error names its field.
//!
//! A null field counts as absent. Knows no field by name.

use serde_json::{Map, Value};

use crate::ApiError;

/// An object and its path.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: &'a str,
}

impl<'a> Fields<'a> {
    /// The object at this path; empty for the body itself.
    pub fn of(value: &'a Value, path: &'a str) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { map, path }),
            _ if path.is_empty() => Err(ApiError::request("must be an object")),
            _ => Err(wrong(path, "an object", value)),
        }
    }

    /// The names of its fields, null ones included.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    /// The full name of a field.
    pub fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// An error of a field.
    pub fn error(&self, key: &str, why: impl std::fmt::Display) -> ApiError {
        ApiError::field(self.name(key), why)
    }

    /// A field, unless it is absent.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// A field that must be there.
    pub fn need(&self, key: &str) -> Result<&'a Value, ApiError> {
        self.get(key).ok_or_else(|| self.error(key, "is missing"))
    }

    /// A string.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, ApiError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A string that must be there.
    pub fn needed_text(&self, key: &str) -> Result<&'a str, ApiError> {
        self.need(key)?;
        Ok(self.text(key)?.unwrap_or_default())
    }

    /// A flag; false where it is absent.
    pub fn flag(&self, key: &str) -> Result<bool, ApiError> {
        Ok(self.typed(key, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    /// A list; empty where it is absent.
    pub fn list(&self, key: &str) -> Result<&'a [Value], ApiError> {
        let list = self.typed(key, "a list", Value::as_array)?;
        Ok(list.map_or(&[], Vec::as_slice))
    }

    /// A number in a range.
    pub fn number(&self, key: &str, least: f64, most: f64) -> Result<Option<f64>, ApiError> {
        let Some(number) = self.typed(key, "a number", Value::as_f64)? else { return Ok(None) };
        if !(least..=most).contains(&number) {
            return Err(self.error(key, format_args!("must be between {least} and {most}")));
        }
        Ok(Some(number))
    }

    /// An integer.
    pub fn integer(&self, key: &str) -> Result<Option<i128>, ApiError> {
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
pub fn wrong(name: &str, expected: &str, value: &Value) -> ApiError {
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
