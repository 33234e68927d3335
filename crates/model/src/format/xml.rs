//! Reads and writes calls in the form `<function=NAME><parameter=KEY>VALUE</parameter></function>`, and variants with
//! other tags.
//!
//! Values are raw text that may contain anything, even such tags: tags are matched in pairs where possible, and a value
//! whose end is ambiguous is rejected.

use serde_json::Value;
use trajectory::{Arguments, ToolCall};

use super::interpret::{Named, known};
use crate::{
    ToolSpec,
    repair::{Ending, Node, Problem, conform, malformed, near, read},
};

/// The tags of one family of models.
#[derive(Debug)]
pub(super) struct Dialect {
    /// How a call begins, before the name of the tool.
    pub(super) function: &'static str,
    function_end: &'static str,
    parameter: &'static str,
    /// Between the name of a parameter and its value.
    value: &'static str,
    parameter_end: &'static str,
    padding: Padding,
}

/// What separates a value from its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    /// A line break on either side.
    Lines,
    /// Nothing: all line breaks belong to the value.
    Nothing,
}

/// The tags of Qwen3-Coder.
pub(super) const QWEN: Dialect = Dialect {
    function: "<function=",
    function_end: "</function>",
    parameter: "<parameter=",
    value: ">",
    parameter_end: "</parameter>",
    padding: Padding::Lines,
};

/// The tags of MiniMax, and of Claude where it writes calls as text.
pub(super) const INVOKE: Dialect = Dialect {
    function: "<invoke name=",
    function_end: "</invoke>",
    parameter: "<parameter name=",
    value: ">",
    parameter_end: "</parameter>",
    padding: Padding::Nothing,
};

/// The tags of GLM, whose calls begin with the bare name.
pub(super) const GLM: Dialect = Dialect {
    function: "",
    function_end: "</tool_call>",
    parameter: "<arg_key>",
    value: "</arg_key>",
    parameter_end: "</arg_value>",
    padding: Padding::Nothing,
};

const GLM_VALUE: &str = "<arg_value>";
const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";

/// Maximum bytes of a name.
const MAX_NAME: usize = 80;

/// Maximum parameters of a call.
const MAX_PARAMETERS: usize = 32;

impl Dialect {
    /// The tool in the call that begins at this byte, and the byte after its name.
    pub(super) fn name<'t>(&self, text: &'t str, at: usize) -> Option<(&'t str, usize)> {
        let at = at + self.function.len();
        match self.function {
            "" => {
                let rest = text.get(at..)?;
                let end = rest.bytes().take(MAX_NAME).position(|byte| b"\n<".contains(&byte))?;
                Some((rest.get(..end)?.trim(), at + end))
            }
            _ => opening(text, at, ">"),
        }
    }

    /// The name of the parameter whose tag begins at this byte, and the start of its value.
    fn key<'t>(&self, text: &'t str, at: usize) -> Option<(&'t str, usize)> {
        let (name, at) = opening(text, at + self.parameter.len(), self.value)?;
        let rest = text.get(at..)?;
        // One tag for the name and one for the value.
        match rest.trim_start().strip_prefix(GLM_VALUE) {
            Some(value) if self.value != ">" => Some((name, text.len() - value.len())),
            None if self.value != ">" => None,
            _ => Some((name, at)),
        }
    }

    /// How the next call begins.
    fn opener(&self) -> &'static str {
        if self.function.is_empty() { CALL } else { self.function }
    }

    fn ends_value(&self, after: &str) -> bool {
        let after = after.trim_start();
        let tags = [self.parameter, self.function_end, CALL_END];
        after.is_empty() || tags.iter().any(|tag| after.starts_with(tag))
    }
}

/// Reads the call that begins at this byte. Returns also the byte after it.
pub(super) fn function(
    text: &str,
    at: usize,
    dialect: &'static Dialect,
    tools: &[ToolSpec],
    ending: Ending,
) -> Option<(Named, usize)> {
    let (name, body) = dialect.name(text, at)?;
    let tool = known(name, tools);
    let name = tool.map_or(name, |tool| tool.name.as_str()).to_owned();
    let none = Value::Null;
    let schema = tool.map_or(&none, |tool| &tool.parameters);
    let mut reader = Reader { text, at: body, dialect, schema, ending, pairs: Pairs::Matched };
    let understood = reader.members().and_then(|node| conform(node, schema));
    let arguments = match understood {
        Ok(map) => Arguments::Object(map),
        Err(problem) => {
            let source = text.get(at..reader.at).unwrap_or_default();
            let cut = if reader.at < text.len() { Ending::Finished } else { ending };
            malformed(source, &problem, schema, cut)
        }
    };
    Some(((name, arguments), reader.at))
}

/// Appends a call in Qwen3-Coder's format.
pub(super) fn write(call: &ToolCall, out: &mut String) {
    let Dialect { function, function_end, parameter, parameter_end, .. } = QWEN;
    out.push_str(&format!("{CALL}\n{function}{}>\n", call.name));
    match &call.arguments {
        Arguments::Object(map) => {
            for (key, value) in map {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                out.push_str(&format!("{parameter}{key}>\n{value}\n{parameter_end}\n"));
            }
        }
        Arguments::Malformed { malformed, .. } => out.push_str(malformed),
    }
    out.push_str(&format!("{function_end}\n{CALL_END}"));
}

/// Whether every opening tag has its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pairs {
    Matched,
    Broken,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    dialect: &'static Dialect,
    schema: &'a Value,
    ending: Ending,
    pairs: Pairs,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn blank(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn members(&mut self) -> Result<Node, Problem> {
        self.blank();
        if self.rest().starts_with('{') {
            return self.json();
        }
        let mut members: Vec<(String, Node)> = Vec::new();
        while self.rest().starts_with(self.dialect.parameter) && members.len() < MAX_PARAMETERS {
            let Some((key, body)) = self.dialect.key(self.text, self.at) else { break };
            let value = self.value(key, body, &members)?;
            members.push((key.to_owned(), Node::Text(value)));
            self.blank();
        }
        self.end()?;
        self.nothing_left_open(members.last().map_or("", |(key, _)| key))?;
        Ok(Node::Object(members))
    }

    /// `<function=NAME>{"key": "value"}</function>`
    fn json(&mut self) -> Result<Node, Problem> {
        match read(self.rest(), self.ending.closers()) {
            Ok((node, end)) => {
                self.at += end;
                let rest = self.rest().trim_start_matches(|c: char| c.is_whitespace() || c == '}');
                self.at = self.text.len() - rest.len();
                self.end()?;
                Ok(node)
            }
            Err(fault) => {
                self.skip_function();
                Err(fault.problem)
            }
        }
    }

    fn value(
        &mut self,
        key: &str,
        body: usize,
        before: &[(String, Node)],
    ) -> Result<String, Problem> {
        self.at = body;
        let matched = match self.pairs {
            Pairs::Matched => self.matched(),
            Pairs::Broken => None,
        };
        let found = match matched {
            Some(length) => Some((length, length + self.dialect.parameter_end.len())),
            // The response was cut off, so the value may be incomplete.
            None if self.ending == Ending::CutOff => None,
            None => {
                // The search for pairs read the whole text: it is not repeated.
                self.pairs = Pairs::Broken;
                let seen = |name: &str| name == key || before.iter().any(|(one, _)| one == name);
                self.first_end(seen)
            }
        };
        let Some((length, after)) = found else {
            self.at = self.text.len();
            return Err(Problem::OpenParameter(key.to_owned()));
        };
        let raw = self.rest().get(..length).unwrap_or_default();
        let value = match self.dialect.padding {
            Padding::Lines => trimmed(raw).to_owned(),
            Padding::Nothing => raw.to_owned(),
        };
        self.at += after;
        Ok(value)
    }

    /// The end of the value, with nested tags matched.
    fn matched(&self) -> Option<usize> {
        let rest = self.rest();
        let mut depth = 0_usize;
        let mut at = 0;
        loop {
            at += rest.get(at..)?.find('<')?;
            let here = rest.get(at..)?;
            if here.starts_with(self.dialect.parameter) {
                depth += 1;
            } else if let Some(after) = here.strip_prefix(self.dialect.parameter_end) {
                if depth == 0 && self.dialect.ends_value(after) {
                    return Some(at);
                }
                depth = depth.saturating_sub(1);
            }
            at += 1;
        }
    }

    /// The end of a value where some closing tag is missing: the first tag that cannot belong to it. Returns the length
    /// of the value and where to continue.
    fn first_end(&self, seen: impl Fn(&str) -> bool) -> Option<(usize, usize)> {
        let rest = self.rest();
        let mut at = 0;
        let ends = [self.dialect.function_end, CALL_END];
        // A whole line of the value looks like a tag: from there on, the end is ambiguous.
        let mut nested = false;
        loop {
            at += rest.get(at..)?.find('<')?;
            let here = rest.get(at..)?;
            let fresh_line = rest.get(..at)?.ends_with('\n');
            if let Some(after) = here.strip_prefix(self.dialect.parameter_end) {
                if self.dialect.ends_value(after) {
                    return (!nested).then_some((at, at + self.dialect.parameter_end.len()));
                }
            } else if fresh_line && here.starts_with(self.dialect.parameter) {
                let name = self.dialect.key(here, 0).map_or("", |(name, _)| name);
                nested |= !name.is_empty();
                if self.schema["properties"].get(name).is_some() && !seen(name) {
                    return Some((at, at));
                }
            } else if fresh_line && ends.iter().any(|tag| here.starts_with(tag)) {
                return (!nested).then_some((at, at));
            }
            at += 1;
        }
    }

    fn end(&mut self) -> Result<(), Problem> {
        self.blank();
        for tag in [self.dialect.function_end, CALL_END] {
            if self.rest().starts_with(tag) {
                self.at += tag.len();
                return Ok(());
            }
        }
        match self.ending {
            Ending::Finished if self.rest().is_empty() => return Ok(()),
            Ending::CutOff if self.rest().is_empty() => return Err(Problem::CutOff),
            _ if [CALL, self.dialect.opener()].iter().any(|tag| self.rest().starts_with(tag)) => {
                return Ok(());
            }
            _ => {}
        }
        let near = near(self.rest());
        self.skip_function();
        Err(Problem::Stray { near })
    }

    fn skip_function(&mut self) {
        let tag = self.dialect.function_end;
        let close = self.rest().find(tag).map(|end| end + tag.len());
        self.at = close.map_or(self.text.len(), |end| self.at + end);
    }

    /// A closing tag after the call shows that a value contained tags and was read too short.
    fn nothing_left_open(&mut self, key: &str) -> Result<(), Problem> {
        let rest = self.rest();
        let next = rest.find(self.dialect.opener()).unwrap_or(rest.len());
        match rest.get(..next).unwrap_or_default().rfind(self.dialect.parameter_end) {
            Some(at) => {
                self.at += at + self.dialect.parameter_end.len();
                Err(Problem::OpenParameter(key.to_owned()))
            }
            None => Ok(()),
        }
    }
}

/// A name up to this mark, and the byte after the mark.
fn opening<'t>(text: &'t str, at: usize, end: &str) -> Option<(&'t str, usize)> {
    let rest = text.get(at..)?;
    let head = rest.get(..rest.floor_char_boundary(MAX_NAME))?;
    let length = head.lines().next()?.find(end)?;
    let name = rest.get(..length)?.trim().trim_matches(['"', '\'']);
    (!name.is_empty()).then_some((name, at + length + end.len()))
}

/// The value without the line breaks that separate it from its tags.
fn trimmed(raw: &str) -> &str {
    let start = raw.strip_prefix("\r\n").or_else(|| raw.strip_prefix('\n')).unwrap_or(raw);
    start.strip_suffix("\r\n").or_else(|| start.strip_suffix('\n')).unwrap_or(start)
}
