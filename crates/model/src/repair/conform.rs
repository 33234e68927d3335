//! Fits a parsed value to a tool's schema.
//!
//! Tolerates wrappers, synonyms and other types. Unknown keys stay: the tool decides.

use serde_json::{Map, Value};

use super::{Closers, Node, Problem, read};

/// Keys in which models wrap the arguments.
pub(crate) const WRAPPERS: [&str; 8] =
    ["arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs"];

/// Synonyms models use for well-known arguments, the usual ones first.
const SYNONYMS: [(&str, &[&str]); 6] = [
    ("command", &["cmd", "code", "script", "bash", "shell_command", "action"]),
    ("path", &["file_path", "filepath", "filename", "file"]),
    ("file_text", &["content", "text", "contents", "file_content"]),
    ("old_str", &["old_string", "old_text", "old"]),
    ("new_str", &["new_string", "new_text", "new"]),
    ("insert_line", &["line", "line_number"]),
];

/// How often an object may be encoded as a string.
const MAX_ENCODINGS: usize = 3;

type Members = Vec<(String, Node)>;

/// The arguments in the schema's types.
pub(crate) fn conform(node: Node, schema: &Value) -> Result<Map<String, Value>, Problem> {
    let mut members = object(node, schema)?;
    if let Some(inner) = unwrapped(&members, schema) {
        members = object(inner, schema)?;
    }
    rename(&mut members, schema);
    let typed = members.into_iter().filter_map(|(key, node)| {
        let wanted = schema["properties"].get(&key);
        let absent = node == Node::Null && wanted.is_some() && !requires(schema, &key);
        (!absent).then(|| (key, typed(node, wanted.unwrap_or(&Value::Null))))
    });
    Ok(typed.collect())
}

fn object(node: Node, schema: &Value) -> Result<Members, Problem> {
    let mut node = node;
    for _ in 0..MAX_ENCODINGS {
        node = match node {
            Node::Object(members) => return Ok(members),
            Node::Null => return Ok(Vec::new()),
            Node::List(mut items) if items.len() == 1 && matches!(items[0], Node::Object(_)) => {
                items.swap_remove(0)
            }
            Node::Text(text) => decoded(text, schema)?,
            Node::List(_) => return Err(Problem::NotAnObject("a list")),
            Node::Bool(_) => return Err(Problem::NotAnObject("a truth value")),
            Node::Number(_) => return Err(Problem::NotAnObject("a number")),
        };
    }
    match node {
        Node::Object(members) => Ok(members),
        _ => Err(Problem::NotAnObject("a string")),
    }
}

/// An object encoded as a string, or a string that is the only argument.
fn decoded(text: String, schema: &Value) -> Result<Node, Problem> {
    let body = text.trim();
    let after_brace = body.strip_prefix('{').map(str::trim_start);
    // `{ ls; }` is a command, `{"command": …` is not.
    if after_brace.is_some_and(|inner| inner.starts_with(['"', '\'', '}']))
        || body.starts_with("\"{")
    {
        return match read(body, Closers::Required) {
            Ok((node, end)) if body.len() == end => Ok(node),
            Ok((_, end)) => {
                Err(Problem::Rest { near: super::near(body.get(end..).unwrap_or_default()) })
            }
            Err(fault) => Err(fault.problem),
        };
    }
    match only_text(schema) {
        Some(key) => Ok(Node::Object(vec![(key.to_owned(), Node::Text(text))])),
        None if body.is_empty() => Ok(Node::Object(Vec::new())),
        None => Err(Problem::NotAnObject("a string")),
    }
}

/// The required argument, where there is exactly one and it is a string.
fn only_text(schema: &Value) -> Option<&str> {
    let required = schema["required"].as_array()?;
    let [only] = required.as_slice() else { return None };
    let key = only.as_str()?;
    (required_type(&schema["properties"][key]) == Some("string")).then_some(key)
}

fn requires(schema: &Value, key: &str) -> bool {
    schema["required"].as_array().is_some_and(|keys| keys.iter().any(|one| one == key))
}

/// The content of a wrapper without arguments beside it.
fn unwrapped(members: &Members, schema: &Value) -> Option<Node> {
    let known = |key: &str| schema["properties"].get(key).is_some();
    if members.iter().any(|(key, _)| known(key)) {
        return None;
    }
    let wrapper = members.iter().find(|(key, _)| WRAPPERS.contains(&key.as_str()))?;
    match &wrapper.1 {
        Node::Object(_) => Some(wrapper.1.clone()),
        Node::Text(text) if text.trim_start().starts_with('{') || only_text(schema).is_some() => {
            Some(wrapper.1.clone())
        }
        _ => None,
    }
}

fn rename(members: &mut Members, schema: &Value) {
    for (key, others) in SYNONYMS {
        let wanted = &schema["properties"][key];
        if wanted.is_null() || members.iter().any(|(present, _)| present == key) {
            continue;
        }
        let fits = |name: &str, node: &Node| {
            schema["properties"].get(name).is_none() && allowed(node, wanted)
        };
        let found = others.iter().find_map(|other| {
            members.iter().position(|(name, node)| name == other && fits(name, node))
        });
        if let Some(at) = found {
            members[at].0 = key.to_owned();
        }
    }
}

/// Where the schema lists the values, only these match: an editor's `command` is not a shell command.
fn allowed(node: &Node, schema: &Value) -> bool {
    match schema["enum"].as_array() {
        Some(values) => {
            matches!(node, Node::Text(text) if values.iter().any(|one| one == text.as_str()))
        }
        None => true,
    }
}

/// The type a schema requires; the first of several.
fn required_type(schema: &Value) -> Option<&str> {
    let named = |value: &Value| value["type"].as_str().is_some_and(|name| name != "null");
    match &schema["type"] {
        Value::String(name) => Some(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        _ => {
            let choices = schema["anyOf"].as_array().or(schema["oneOf"].as_array())?;
            choices.iter().find(|one| named(one))?["type"].as_str()
        }
    }
}

fn typed(node: Node, schema: &Value) -> Value {
    match (required_type(schema), node) {
        (Some("string"), Node::Number(raw)) => Value::String(raw),
        (Some("string"), Node::Bool(value)) => Value::String(value.to_string()),
        (Some("integer"), node @ (Node::Text(_) | Node::Number(_))) => integer(node),
        (Some("number"), Node::Text(text)) => {
            serde_json::from_str(text.trim()).map_or(Value::String(text), Value::Number)
        }
        (Some("boolean"), Node::Text(text)) => match text.trim() {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            _ => Value::String(text),
        },
        (Some("array"), Node::Text(text)) => match parsed(&text) {
            Some(list @ Node::List(_)) => typed(list, schema),
            _ => Value::String(text),
        },
        (Some("object"), Node::Text(text)) => match parsed(&text) {
            Some(object @ Node::Object(_)) => plain(object),
            _ => Value::String(text),
        },
        (_, Node::List(items)) => {
            Value::Array(items.into_iter().map(|item| typed(item, &schema["items"])).collect())
        }
        (_, node) => plain(node),
    }
}

fn integer(node: Node) -> Value {
    let (Node::Text(text) | Node::Number(text)) = &node else { return plain(node) };
    let digits = text.trim();
    let whole = digits.split_once('.').filter(|(_, part)| part.bytes().all(|digit| digit == b'0'));
    match whole.map_or(digits, |(whole, _)| whole).parse::<i64>() {
        Ok(number) => number.into(),
        Err(_) => plain(node),
    }
}

/// The value that makes up the whole text.
fn parsed(text: &str) -> Option<Node> {
    let text = text.trim();
    let (node, end) = read(text, Closers::Required).ok()?;
    (end == text.len()).then_some(node)
}

fn plain(node: Node) -> Value {
    match node {
        Node::Null => Value::Null,
        Node::Bool(value) => Value::Bool(value),
        Node::Number(raw) => {
            serde_json::from_str(&raw).map_or_else(|_| Value::String(raw.clone()), Value::Number)
        }
        Node::Text(text) => Value::String(text),
        Node::List(items) => Value::Array(items.into_iter().map(plain).collect()),
        Node::Object(members) => {
            Value::Object(members.into_iter().map(|(key, node)| (key, plain(node))).collect())
        }
    }
}
