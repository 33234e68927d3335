//! Typed looks into a JSON object, each failure with the name of its field.
//!
//! A field that is null is as good as absent. Knows no field by name.

use serde_json::{Map, Value};

use crate::failure::Failure;

/// An object and how to get there.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: &'a str,
}

impl<'a> Fields<'a> {
    /// The object at this path; empty for the body itself.
    pub(crate) fn of(value: &'a Value, path: &'a str) -> Result<Self, Failure> {
        match value {
            Value::Object(map) => Ok(Self { map, path }),
            _ if path.is_empty() => Err(Failure::request("must be an object")),
            _ => Err(wrong(path, "an object", value)),
        }
    }

    /// The full name of a field.
    pub(crate) fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// A fault of a field.
    pub(crate) fn fault(&self, key: &str, why: impl std::fmt::Display) -> Failure {
        Failure::field(self.name(key), why)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn need(&self, key: &str) -> Result<&'a Value, Failure> {
        self.get(key).ok_or_else(|| self.fault(key, "is missing"))
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, Failure> {
        self.typed(key, "a string", Value::as_str)
    }

    pub(crate) fn needed_text(&self, key: &str) -> Result<&'a str, Failure> {
        self.need(key)?;
        Ok(self.text(key)?.unwrap_or_default())
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool, Failure> {
        Ok(self.typed(key, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    pub(crate) fn list(&self, key: &str) -> Result<&'a [Value], Failure> {
        let list = self.typed(key, "a list", Value::as_array)?;
        Ok(list.map_or(&[], Vec::as_slice))
    }

    /// A number in a range.
    pub(crate) fn number(&self, key: &str, least: f64, most: f64) -> Result<Option<f64>, Failure> {
        let Some(number) = self.typed(key, "a number", Value::as_f64)? else { return Ok(None) };
        if !(least..=most).contains(&number) {
            return Err(self.fault(key, format_args!("must lie between {least} and {most}")));
        }
        Ok(Some(number))
    }

    /// A whole number.
    pub(crate) fn whole(&self, key: &str) -> Result<Option<i128>, Failure> {
        let whole = |value: &Value| {
            let small = value.as_i64().map(i128::from);
            small.or_else(|| value.as_u64().map(i128::from))
        };
        self.typed(key, "a whole number", whole)
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong(&self.name(key), expected, value))
    }
}

/// A value of the wrong type.
pub(crate) fn wrong(name: &str, expected: &str, value: &Value) -> Failure {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Failure::field(name, format_args!("must be {expected}, and is {found}"))
}
