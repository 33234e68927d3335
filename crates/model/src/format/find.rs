//! Finds the tool calls in a text, in whatever form the model wrote them.
//!
//! Marks such as `<tool_call>` are trusted. Without one, an object is a call only if it names an existing tool; code in
//! other languages is left alone. Runs in time linear in the length of the text.

use trajectory::Arguments;

use super::{
    interpret::{Interpreter, Named, Trust, is_definition, known},
    marks::{BETWEEN, DEEPSEEK, IMAGINED, KINDS, MISTRAL, OUTER, TAGS},
    xml::{self, Dialect, GLM, INVOKE, QWEN},
};
use crate::{
    ToolSpec,
    repair::{Closers, Ending, Node, Problem, check_rest, read},
};

/// A call and its position in the text.
pub(super) struct Call {
    /// The tool.
    pub(super) name: String,
    /// The arguments.
    pub(super) arguments: Arguments,
    /// Where it begins, including its mark.
    pub(super) start: usize,
    /// The byte after it.
    pub(super) end: usize,
}

/// The result of a search.
pub(super) struct Found {
    /// The calls, in order.
    pub(super) calls: Vec<Call>,
    /// Where the model began to write the tool results itself; otherwise the end of the text.
    pub(super) kept: usize,
}

/// Maximum calls in one response.
const MAX_CALLS: usize = 64;

/// Finds the calls.
pub(super) fn find(text: &str, tools: &[ToolSpec], ending: Ending) -> Found {
    let named = tools.iter().any(|tool| text.contains(&tool.name));
    let finder = Finder {
        text,
        tools,
        ending,
        calls: Vec::new(),
        // All but hostile texts are parsed at most twice: once in vain, once up to a closing mark.
        budget: 3 * text.len() + 1024,
        found_marks: Vec::new(),
    };
    finder.run(if named { Unmarked::Try } else { Unmarked::Skip })
}

/// Whether objects without a mark can be calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unmarked {
    Try,
    Skip,
}

struct Finder<'t> {
    text: &'t str,
    tools: &'t [ToolSpec],
    ending: Ending,
    calls: Vec<Call>,
    budget: usize,
    /// Where closing marks were found last, so that no part of the text is searched twice.
    found_marks: Vec<(&'static str, Option<usize>)>,
}

impl<'t> Finder<'t> {
    fn run(mut self, unmarked: Unmarked) -> Found {
        let mut at = 0;
        let mut kept = self.text.len();
        while self.calls.len() < MAX_CALLS {
            let Some(step) = self.rest(at).find(['<', '[', '{', '`']) else { break };
            at += step;
            let rest = self.rest(at);
            if !self.calls.is_empty() && IMAGINED.iter().any(|mark| rest.starts_with(mark)) {
                kept = at;
                break;
            }
            at = match rest.as_bytes()[0] {
                b'<' => self.tag(at),
                b'[' if rest.starts_with(MISTRAL) => self.mistral(at),
                b'`' => self.fence(at, unmarked),
                b'{' | b'[' if unmarked == Unmarked::Try && self.begins_line(at) => {
                    self.json(at, at, None, Trust::Guessed).unwrap_or(at + 1)
                }
                _ => at + 1,
            };
        }
        Found { calls: self.calls, kept }
    }

    fn rest(&self, at: usize) -> &'t str {
        self.text.get(at..).unwrap_or_default()
    }

    fn skip(&self, at: usize, blank: impl Fn(char) -> bool) -> usize {
        self.text.len() - self.rest(at).trim_start_matches(blank).len()
    }

    fn begins_line(&self, at: usize) -> bool {
        let before = self.text.get(..at).unwrap_or_default().trim_end_matches([' ', '\t']);
        before.is_empty() || before.ends_with('\n')
    }

    fn push(&mut self, (name, arguments): Named, start: usize, end: usize) {
        if self.calls.len() < MAX_CALLS {
            let before = self.text.get(..start).unwrap_or_default().trim_end();
            let outer = OUTER.iter().find_map(|mark| before.strip_suffix(mark));
            let start = outer.map_or(start, str::len);
            self.calls.push(Call { name, arguments, start, end });
        }
    }

    /// The next position of a closing mark.
    fn next(&mut self, mark: &'static str, from: usize) -> Option<usize> {
        let known = self.found_marks.iter().position(|(one, _)| *one == mark);
        if let Some((_, last)) = known.map(|at| self.found_marks[at])
            && last.is_none_or(|place| place >= from)
        {
            return last;
        }
        let found = self.rest(from).find(mark).map(|place| from + place);
        match known {
            Some(at) => self.found_marks[at].1 = found,
            None => self.found_marks.push((mark, found)),
        }
        found
    }

    fn tag(&mut self, at: usize) -> usize {
        let rest = self.rest(at);
        for dialect in [&QWEN, &INVOKE] {
            if rest.starts_with(dialect.function) {
                return self.function(at, at, dialect, Trust::Guessed);
            }
        }
        let Some((open, close)) = TAGS.into_iter().find(|(open, _)| rest.starts_with(open)) else {
            return at + 1;
        };
        let body = self.skip(self.opened(at + open.len()), char::is_whitespace);
        for dialect in [&QWEN, &INVOKE] {
            if self.rest(body).starts_with(dialect.function) {
                return self.function(at, body, dialect, Trust::Marked);
            }
        }
        if self.rest(body).starts_with(['{', '[']) {
            return self.json(at, body, Some(close), Trust::Marked).unwrap_or(body);
        }
        let after_name = GLM.name(self.text, body).map_or("", |(_, after)| self.rest(after));
        if ["<arg_key>", "</tool_call>"].iter().any(|tag| after_name.trim_start().starts_with(tag))
        {
            return self.function(at, body, &GLM, Trust::Guessed);
        }
        self.named(at, body, Some(close)).unwrap_or(body)
    }

    /// The position after the opening line of a block inside a mark.
    fn opened(&self, at: usize) -> usize {
        let body = self.skip(at, char::is_whitespace);
        match self.rest(body).strip_prefix("```") {
            Some(_) => self.skip(body + 3, |c| c.is_ascii_alphanumeric()),
            None => body,
        }
    }

    fn function(
        &mut self,
        start: usize,
        at: usize,
        dialect: &'static Dialect,
        trust: Trust,
    ) -> usize {
        let inside = at + dialect.function.len().max(1);
        // Prose about the format mentions tools that do not exist.
        let name = dialect.name(self.text, at).map_or("", |(name, _)| name);
        if trust == Trust::Guessed && known(name, self.tools).is_none() {
            return inside;
        }
        let read = xml::function(self.text, at, dialect, self.tools, self.ending);
        let Some((call, end)) = read else { return inside };
        self.push(call, start, end);
        let blank = self.skip(end, char::is_whitespace);
        let mark = self.rest(blank).starts_with("</tool_call>");
        if mark { blank + "</tool_call>".len() } else { end }
    }

    fn mistral(&mut self, start: usize) -> usize {
        let mut at = self.skip(start + MISTRAL.len(), char::is_whitespace);
        if self.rest(at).starts_with(['{', '[']) {
            return self.json(start, at, None, Trust::Marked).unwrap_or(at + 1);
        }
        let mut begin = start;
        while let Some(end) = self.named(begin, at, None) {
            at = self.skip(end, char::is_whitespace);
            begin = at;
        }
        at
    }

    /// `NAME {"key": "value"}`, with a mark or a fence between the two.
    fn named(&mut self, start: usize, at: usize, close: Option<&'static str>) -> Option<usize> {
        let at = if self.rest(at).starts_with(DEEPSEEK) { at + DEEPSEEK.len() } else { at };
        let after = self.skip(at, |c| c.is_ascii_alphanumeric() || "_.-".contains(c));
        let tool = known(self.text.get(at..after)?, self.tools)?;
        // Kimi numbers its calls: `functions.NAME:0`.
        let mut body = self.skip(after, |c| c.is_whitespace() || c == ':' || c.is_ascii_digit());
        if let Some(mark) = BETWEEN.iter().find(|mark| self.rest(body).starts_with(**mark)) {
            body += mark.len();
        }
        let body = self.skip(self.opened(body), char::is_whitespace);
        if !self.rest(body).starts_with('{') {
            return None;
        }
        let source = self.rest(at);
        let interpreter = Interpreter { tools: self.tools, trust: Trust::Marked, source };
        match self.value(body, close) {
            Ok((node, end)) => {
                let call = interpreter.named(&tool.name, node);
                self.push(call, start, end);
                Some(end)
            }
            Err(problem) => {
                let end = close.and_then(|mark| self.next(mark, body));
                let source = self.text.get(body..end.unwrap_or(self.text.len()))?;
                let ending = if end.is_some() { Ending::Finished } else { self.ending };
                let (_, arguments) =
                    Interpreter { source, ..interpreter }.unreadable(&problem, ending);
                let end = end.unwrap_or(self.text.len());
                self.push((tool.name.clone(), arguments), start, end);
                Some(end)
            }
        }
    }

    fn fence(&mut self, at: usize, unmarked: Unmarked) -> usize {
        let body = self.skip(at, |c| c == '`');
        if body < at + 3 || !self.begins_line(at) {
            return body;
        }
        let inside = self.skip(body, |c| c.is_ascii_alphanumeric() || c == '_');
        let kind = self.text.get(body..inside).unwrap_or_default().to_ascii_lowercase();
        let first = self.skip(inside, char::is_whitespace);
        if !KINDS.contains(&kind.as_str()) {
            let end = self.next("\n```", inside);
            return end.map_or(self.text.len(), |place| place + "\n```".len());
        }
        match self.rest(first).as_bytes().first() {
            Some(b'<') => first,
            Some(b'[') if self.rest(first).starts_with(MISTRAL) => first,
            Some(b'{' | b'[') if unmarked == Unmarked::Try => {
                match self.json(at, first, Some("\n```"), Trust::Guessed) {
                    Some(end) => end,
                    None => self.after_block(inside),
                }
            }
            // A closing fence without an opening one must not hide what follows.
            _ if kind.is_empty() => inside,
            _ => self.after_block(inside),
        }
    }

    fn after_block(&mut self, inside: usize) -> usize {
        self.next("\n```", inside).map_or(inside, |place| place + "\n```".len())
    }

    /// Reads one value, or several in a row, as calls. Returns where to continue.
    fn json(
        &mut self,
        start: usize,
        at: usize,
        close: Option<&'static str>,
        trust: Trust,
    ) -> Option<usize> {
        let (mut begin, mut at) = (start, at);
        let mut any = false;
        while self.rest(at).starts_with(['{', '[']) && self.calls.len() < MAX_CALLS {
            let read = self.value(at, close);
            let end = match &read {
                Ok((_, end)) => *end,
                Err(_) => self.bound(at, close).0,
            };
            let source = self.text.get(at..end)?;
            let interpreter = Interpreter { tools: self.tools, trust, source };
            let calls = match read {
                Ok((node, _)) if is_definition(&node) => Vec::new(),
                Ok((node, _)) => match interpreter.calls(node) {
                    calls if calls.is_empty() && trust == Trust::Marked => {
                        vec![interpreter.unreadable(&Problem::NoName, Ending::Finished)]
                    }
                    calls => calls,
                },
                Err(problem) => {
                    if trust == Trust::Guessed && interpreter.mentioned().is_none() {
                        return any.then_some(at);
                    }
                    let whole = self.bound(at, close).1 == Closed::Marked;
                    let ending = if whole { Ending::Finished } else { self.ending };
                    vec![interpreter.unreadable(&problem, ending)]
                }
            };
            any |= !calls.is_empty();
            for call in calls {
                self.push(call, begin, end);
            }
            at = self.skip(end, |c| c.is_whitespace() || "}];,".contains(c));
            begin = at;
            if trust == Trust::Guessed {
                break;
            }
        }
        let mark = close.map_or("", str::trim_start);
        let after = self.skip(at, char::is_whitespace);
        if self.rest(after).starts_with(mark) {
            at = after + mark.len();
        }
        (any || trust == Trust::Marked).then_some(at)
    }

    /// The value that begins here. Its strings may contain the closing mark; it is read up to the mark only where it
    /// does not end by itself.
    fn value(&mut self, at: usize, close: Option<&'static str>) -> Result<(Node, usize), Problem> {
        let problem = match self.read(at, self.text.len(), Closers::Required) {
            Ok((node, length)) => {
                check_rest(self.rest(at + length))?;
                return Ok((node, at + length));
            }
            Err(problem) => problem,
        };
        let (end, closed) = self.bound(at, close);
        let closers = match closed {
            Closed::Marked => Closers::MayLack,
            Closed::Open => self.ending.closers(),
        };
        if closed == Closed::Open
            && (problem != Problem::Unfinished || closers == Closers::Required)
        {
            return Err(problem);
        }
        let body = self.text.get(at..end).unwrap_or_default().trim_end();
        let body = body.strip_suffix("```").unwrap_or(body);
        let (node, length) = self.read(at, at + body.len(), closers)?;
        check_rest(body.get(length..).unwrap_or_default())?;
        Ok((node, at + length))
    }

    fn read(&mut self, at: usize, end: usize, closers: Closers) -> Result<(Node, usize), Problem> {
        if self.budget == 0 {
            return Err(Problem::TooLong);
        }
        let read = read(self.text.get(at..end).unwrap_or_default(), closers);
        let used = read.as_ref().map_or_else(|fault| fault.at, |(_, end)| *end);
        self.budget = self.budget.saturating_sub(used);
        read.map_err(|fault| fault.problem)
    }

    /// The position of the closing mark, or the end of the text.
    fn bound(&mut self, at: usize, close: Option<&'static str>) -> (usize, Closed) {
        match close.and_then(|mark| self.next(mark, at)) {
            Some(end) => (end, Closed::Marked),
            None => (self.text.len(), Closed::Open),
        }
    }
}

/// Whether a closing mark shows that the model finished the call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closed {
    Marked,
    Open,
}
