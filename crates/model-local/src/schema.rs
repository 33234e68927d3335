//! Reduces the JSON schemas of tools to what a grammar needs. Schemas are untrusted: what is too deep, too large or too
//! complex becomes "any value", so that llama.cpp's converter stays fast.

use serde_json::{Map, Value, json};

/// Maximum nesting.
const MAX_DEPTH: usize = 6;

/// Maximum properties of an object, and values of an enumeration.
const MAX_ITEMS: usize = 64;

/// Maximum bytes of a name or an enumerated value.
const MAX_TEXT: usize = 200;

/// The part of a schema that is enforced: types, properties, items and enumerations.
pub(crate) fn reduce(schema: &Value) -> Value {
    reduced(schema, 0)
}

fn reduced(schema: &Value, depth: usize) -> Value {
    let anything = json!({});
    if depth >= MAX_DEPTH {
        return anything;
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let fits = !values.is_empty() && values.len() <= MAX_ITEMS && values.iter().all(is_short);
        return if fits { json!({"enum": values}) } else { anything };
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => object(schema, depth),
        Some("array") => {
            let items = schema.get("items").map_or(anything, |items| reduced(items, depth + 1));
            json!({"type": "array", "items": items})
        }
        Some(simple @ ("string" | "integer" | "number" | "boolean" | "null")) => {
            json!({"type": simple})
        }
        _ => anything,
    }
}

fn object(schema: &Value, depth: usize) -> Value {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    if properties.len() > MAX_ITEMS || properties.keys().any(|name| name.len() > MAX_TEXT) {
        return json!({"type": "object"});
    }
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &&String| {
        required.is_some_and(|names| names.iter().any(|one| one.as_str() == Some(name.as_str())))
    };
    let names: Vec<_> = properties.keys().filter(is_required).collect();
    let reduced: Map<String, Value> = properties
        .iter()
        .map(|(name, property)| (name.clone(), reduced(property, depth + 1)))
        .collect();
    json!({
        "type": "object", "properties": reduced, "required": names, "additionalProperties": false,
    })
}

fn is_short(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= MAX_TEXT,
        Value::Array(_) | Value::Object(_) => false,
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_stays() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "pattern": "^[z-a]$", "description": "where"},
                "mode": {"type": "string", "enum": ["view", "create"]},
                "lines": {"type": "array", "items": {"type": "integer"}, "minItems": 99999999},
            },
            "required": ["path", "absent"],
        });
        let wanted = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "mode": {"enum": ["view", "create"]},
                "lines": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        assert_eq!(reduce(&schema), wanted);
    }

    #[test]
    fn what_is_hostile_becomes_anything() {
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"type": "array", "items": deep});
        }
        assert!(reduce(&deep).to_string().len() < 300);
        let many: Map<String, Value> =
            (0..5000).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
        let many = json!({"type": "object", "properties": many});
        assert_eq!(reduce(&many), json!({"type": "object"}));
        let long = json!({"type": "object", "properties": {"x".repeat(100_000): {}}});
        assert_eq!(reduce(&long), json!({"type": "object"}));
        let reference = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
        assert_eq!(reduce(&reference), json!({}));
    }
}
