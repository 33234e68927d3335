//! Interprets a JSON value as tool calls, in the many shapes models give them.
//!
//! A value that is not marked as a call is one only if it names an existing tool.

use serde_json::Value;
use trajectory::Arguments;

use crate::{
    ToolSpec,
    repair::{Ending, Node, Problem, WRAPPERS, conform, malformed},
};

/// Why a value is considered a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// It is inside a call mark.
    Marked,
    /// It only looks like one.
    Guessed,
}

/// A call without its position in the text: name and arguments.
pub(super) type Named = (String, Arguments);

/// Keys that name the tool in a call, the usual one first.
const NAMES: [&str; 6] = ["name", "tool", "tool_name", "function", "function_name", "action"];

/// Keys that wrap a call.
const CALL_KEYS: [&str; 3] = ["tool_calls", "function", "function_call"];

/// Maximum nesting of wrappers.
const MAX_WRAPPERS: usize = 3;

/// A call names its tool within this many bytes.
const HEAD: usize = 300;

/// Interprets values against the available tools.
#[derive(Clone, Copy)]
pub(super) struct Interpreter<'a> {
    /// The available tools.
    pub(super) tools: &'a [ToolSpec],
    /// Why the value is considered a call.
    pub(super) trust: Trust,
    /// The text the value was read from.
    pub(super) source: &'a str,
}

impl<'a> Interpreter<'a> {
    /// The calls in a value.
    pub(super) fn calls(self, node: Node) -> Vec<Named> {
        self.inside(node, 0)
    }

    /// A call of this tool with these arguments.
    pub(super) fn named(self, name: &str, node: Node) -> Named {
        let none = Value::Null;
        let schema = known(name, self.tools).map_or(&none, |tool| &tool.parameters);
        let arguments = match conform(node, schema) {
            Ok(map) => Arguments::Object(map),
            Err(problem) => malformed(self.source, &problem, schema, Ending::Finished),
        };
        (name.to_owned(), arguments)
    }

    /// A call that cannot be parsed.
    pub(super) fn unreadable(self, problem: &Problem, ending: Ending) -> Named {
        let none = Value::Null;
        let tool = self.mentioned();
        let schema = tool.map_or(&none, |tool| &tool.parameters);
        let name = tool.map_or("unknown", |tool| tool.name.as_str());
        (name.to_owned(), malformed(self.source, problem, schema, ending))
    }

    /// The tool whose quoted name comes first near the start of the source.
    pub(super) fn mentioned(self) -> Option<&'a ToolSpec> {
        let head = self.source.get(..self.source.floor_char_boundary(HEAD))?;
        let position = |tool: &ToolSpec| {
            let at = |quote: char| head.find(&format!("{quote}{}{quote}", tool.name));
            at('"').or_else(|| at('\''))
        };
        let found = self.tools.iter().filter_map(|tool| Some((position(tool)?, tool)));
        found.min_by_key(|(at, _)| *at).map(|(_, tool)| tool)
    }

    fn inside(self, node: Node, depth: usize) -> Vec<Named> {
        match node {
            _ if depth > MAX_WRAPPERS => Vec::new(),
            Node::List(items) => {
                let found: Vec<_> =
                    items.into_iter().map(|item| self.inside(item, depth + 1)).collect();
                if self.trust == Trust::Guessed && found.iter().any(Vec::is_empty) {
                    return Vec::new();
                }
                found.into_iter().flatten().collect()
            }
            Node::Object(mut members) => {
                let around = members.iter().position(|(key, node)| {
                    CALL_KEYS.contains(&key.as_str())
                        && matches!(node, Node::Object(_) | Node::List(_))
                });
                match around {
                    Some(at) => self.inside(members.swap_remove(at).1, depth + 1),
                    None => self.object(members).into_iter().collect(),
                }
            }
            _ => Vec::new(),
        }
    }

    fn object(self, mut members: Vec<(String, Node)>) -> Option<Named> {
        let Some((at, name)) = self.name(&members) else { return self.keyed(members) };
        members.remove(at);
        let tool = known(&name, self.tools);
        let wrapped = members.iter().position(|(key, _)| {
            WRAPPERS.contains(&key.as_str())
                && tool.is_none_or(|tool| tool.parameters["properties"].get(key).is_none())
        });
        let node = match wrapped {
            Some(at) => members.swap_remove(at).1,
            None => {
                members.retain(|(key, _)| !matches!(key.as_str(), "id" | "type" | "thought"));
                Node::Object(members)
            }
        };
        if self.trust == Trust::Guessed && !fits(&node, tool?, wrapped) {
            return None;
        }
        Some(self.named(tool.map_or(name.as_str(), |tool| tool.name.as_str()), node))
    }

    /// `{"execute_bash": {"command": "ls"}}`
    fn keyed(self, mut members: Vec<(String, Node)>) -> Option<Named> {
        if members.len() != 1 {
            return None;
        }
        let (key, node) = members.pop()?;
        let tool = known(&key, self.tools)?;
        matches!(node, Node::Object(_)).then(|| self.named(&tool.name, node))
    }

    fn name(self, members: &[(String, Node)]) -> Option<(usize, String)> {
        NAMES.iter().find_map(|wanted| {
            members.iter().enumerate().find_map(|(at, (key, node))| match node {
                Node::Text(text) if key == wanted => {
                    let sure = *wanted == "name" && self.trust == Trust::Marked;
                    (sure || known(text, self.tools).is_some()).then(|| (at, text.clone()))
                }
                _ => None,
            })
        })
    }
}

/// The tool a model means by a name.
pub(super) fn known<'t>(name: &str, tools: &'t [ToolSpec]) -> Option<&'t ToolSpec> {
    let name = name.trim();
    let name =
        ["functions.", "tools."].iter().find_map(|way| name.strip_prefix(way)).unwrap_or(name);
    tools.iter().find(|tool| tool.name.eq_ignore_ascii_case(name))
}

/// Whether it is a tool definition: models repeat them, and a schema is not a set of arguments.
pub(super) fn is_definition(node: &Node) -> bool {
    match node {
        Node::List(items) => items.iter().any(is_definition),
        Node::Object(members) => members.iter().any(|(key, node)| {
            key == "properties" && matches!(node, Node::Object(_))
                || matches!(key.as_str(), "parameters" | "function") && is_definition(node)
        }),
        _ => false,
    }
}

/// Whether unmarked arguments match the tool.
fn fits(node: &Node, tool: &ToolSpec, wrapped: Option<usize>) -> bool {
    let required = tool.parameters["required"].as_array().map_or(&[][..], Vec::as_slice);
    match (wrapped, node) {
        (Some(_), Node::Object(_) | Node::Text(_) | Node::Null) => true,
        (None, Node::Object(members)) => {
            let has = |key: &Value| members.iter().any(|(name, _)| key == name.as_str());
            required.iter().all(has) && (!required.is_empty() || members.is_empty())
        }
        _ => false,
    }
}
