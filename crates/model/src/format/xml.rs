//! Calls in the form `<function=NAME><parameter=KEY>VALUE</parameter></function>`, read and written.
//!
//! Values are raw text, so they may hold anything, even such tags: tags are matched in pairs where they
//! can be, and a value whose end is not certain is refused.

use serde_json::Value;
use trajectory::{Arguments, ToolCall};

use super::shape::{Named, known};
use crate::{
    ToolSpec,
    repair::{Complete, Node, Problem, conform, near, read, refused},
};

/// How a call begins.
pub(super) const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";

/// More parameters than any tool has.
const MOST: usize = 32;

/// The tool in the call that begins at this byte.
pub(super) fn name(text: &str, at: usize) -> Option<&str> {
    opening(text, at + FUNCTION.len()).map(|(name, _)| name)
}

/// Reads the call that begins at this byte with [`FUNCTION`]. Gives the byte after it too.
pub(super) fn function(
    text: &str,
    at: usize,
    tools: &[ToolSpec],
    complete: Complete,
) -> Option<(Named, usize)> {
    let (name, body) = opening(text, at + FUNCTION.len())?;
    let tool = known(name, tools);
    let name = tool.map_or(name, |tool| tool.name.as_str()).to_owned();
    let none = Value::Null;
    let schema = tool.map_or(&none, |tool| &tool.parameters);
    let mut reader = Reader { text, at: body, schema, complete, pairs: Pairs::Matched };
    let understood = reader.members().and_then(|node| conform(node, schema));
    let arguments = match understood {
        Ok(map) => Arguments::Object(map),
        Err(problem) => {
            let source = text.get(at..reader.at).unwrap_or_default();
            let cut = if reader.at < text.len() { Complete::Whole } else { complete };
            refused(source, &problem, schema, cut)
        }
    };
    Some(((name, arguments), reader.at))
}

/// A call as the model should have written it.
pub(super) fn write(call: &ToolCall, out: &mut String) {
    out.push_str(&format!("{CALL}\n{FUNCTION}{}>\n", call.name));
    match &call.arguments {
        Arguments::Object(map) => {
            for (key, value) in map {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                out.push_str(&format!("{PARAMETER}{key}>\n{value}\n{PARAMETER_END}\n"));
            }
        }
        Arguments::Malformed { malformed, .. } => out.push_str(malformed),
    }
    out.push_str(&format!("{FUNCTION_END}\n{CALL_END}"));
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
    schema: &'a Value,
    complete: Complete,
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
        while self.rest().starts_with(PARAMETER) && members.len() < MOST {
            let Some((key, body)) = opening(self.text, self.at + PARAMETER.len()) else { break };
            let value = self.value(key, body, &members)?;
            members.push((key.to_owned(), Node::Text(value)));
            self.blank();
        }
        self.end()?;
        if self.pairs == Pairs::Broken {
            self.nothing_left_open(members.last().map_or("", |(key, _)| key))?;
        }
        Ok(Node::Object(members))
    }

    /// `<function=NAME>{"key": "value"}</function>`
    fn json(&mut self) -> Result<Node, Problem> {
        match read(self.rest(), self.complete.closers()) {
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
            Some(length) => Some((length, length + PARAMETER_END.len())),
            // Where the rest of the reply is missing, so may be the rest of this value.
            None if self.complete == Complete::CutOff => None,
            None => {
                // The search for pairs went through all of the text: it is not repeated.
                self.pairs = Pairs::Broken;
                let seen = |name: &str| name == key || before.iter().any(|(one, _)| one == name);
                self.first_end(seen)
            }
        };
        let Some((length, after)) = found else {
            self.at = self.text.len();
            return Err(Problem::OpenParameter(key.to_owned()));
        };
        let value = trimmed(self.rest().get(..length).unwrap_or_default()).to_owned();
        self.at += after;
        Ok(value)
    }

    /// The end of the value, counting tags inside of it.
    fn matched(&self) -> Option<usize> {
        let rest = self.rest();
        let mut depth = 0_usize;
        let mut at = 0;
        loop {
            at += rest.get(at..)?.find('<')?;
            let here = rest.get(at..)?;
            if here.starts_with(PARAMETER) {
                depth += 1;
            } else if let Some(after) = here.strip_prefix(PARAMETER_END) {
                if depth == 0 && ends_value(after) {
                    return Some(at);
                }
                depth = depth.saturating_sub(1);
            }
            at += 1;
        }
    }

    /// The end of a value where some end is missing: the first tag that cannot belong to it. Gives the
    /// length of the value and where to go on.
    fn first_end(&self, seen: impl Fn(&str) -> bool) -> Option<(usize, usize)> {
        let rest = self.rest();
        let mut at = 0;
        // A whole line of a value that looks like a tag: from there on, no end is certain.
        let mut nested = false;
        loop {
            at += rest.get(at..)?.find('<')?;
            let here = rest.get(at..)?;
            let fresh_line = rest.get(..at)?.ends_with('\n');
            if let Some(after) = here.strip_prefix(PARAMETER_END) {
                if ends_value(after) {
                    return (!nested).then_some((at, at + PARAMETER_END.len()));
                }
            } else if fresh_line && here.starts_with(PARAMETER) {
                let name = opening(here, PARAMETER.len()).map_or("", |(name, _)| name);
                nested |= !name.is_empty();
                if self.schema["properties"].get(name).is_some() && !seen(name) {
                    return Some((at, at));
                }
            } else if fresh_line && [FUNCTION_END, CALL_END].iter().any(|tag| here.starts_with(tag))
            {
                return (!nested).then_some((at, at));
            }
            at += 1;
        }
    }

    fn end(&mut self) -> Result<(), Problem> {
        self.blank();
        for tag in [FUNCTION_END, CALL_END] {
            if self.rest().starts_with(tag) {
                self.at += tag.len();
                return Ok(());
            }
        }
        match self.complete {
            Complete::Whole if self.rest().is_empty() => return Ok(()),
            Complete::CutOff if self.rest().is_empty() => return Err(Problem::CutOff),
            _ if self.rest().starts_with(CALL) || self.rest().starts_with(FUNCTION) => {
                return Ok(());
            }
            _ => {}
        }
        let near = near(self.rest());
        self.skip_function();
        Err(Problem::Stray { near })
    }

    fn skip_function(&mut self) {
        let close = self.rest().find(FUNCTION_END).map(|end| end + FUNCTION_END.len());
        self.at = close.map_or(self.text.len(), |end| self.at + end);
    }

    /// An end tag behind the call shows that a value held tags and was taken for shorter than it is.
    fn nothing_left_open(&mut self, key: &str) -> Result<(), Problem> {
        let rest = self.rest();
        let next = rest.find(FUNCTION).unwrap_or(rest.len());
        match rest.get(..next).unwrap_or_default().rfind(PARAMETER_END) {
            Some(at) => {
                self.at += at + PARAMETER_END.len();
                Err(Problem::OpenParameter(key.to_owned()))
            }
            None => Ok(()),
        }
    }
}

/// The name in an opening tag, and the byte after the tag.
fn opening(text: &str, at: usize) -> Option<(&str, usize)> {
    let rest = text.get(at..)?;
    let end = rest.bytes().take(80).position(|byte| byte == b'>' || byte == b'\n')?;
    let name = rest.get(..end)?.trim().trim_matches(['"', '\'']);
    (rest.as_bytes()[end] == b'>' && !name.is_empty()).then_some((name, at + end + 1))
}

fn ends_value(after: &str) -> bool {
    let after = after.trim_start();
    after.is_empty() || [PARAMETER, FUNCTION_END, CALL_END].iter().any(|tag| after.starts_with(tag))
}

/// The value without the line breaks that set it apart from its tags.
fn trimmed(raw: &str) -> &str {
    let start = raw.strip_prefix("\r\n").or_else(|| raw.strip_prefix('\n')).unwrap_or(raw);
    start.strip_suffix("\r\n").or_else(|| start.strip_suffix('\n')).unwrap_or(start)
}
