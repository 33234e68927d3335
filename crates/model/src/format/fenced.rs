//! One block of commands per response: the format that small models get right.
//!
//! Only the first block counts. What a model writes after it is mostly imagined output.

use std::collections::HashSet;

use serde_json::{Map, Value};
use trajectory::Arguments;

use super::{
    find::{Call, find},
    script::{Open, Python, Script, Shell},
};
use crate::{
    ToolSpec,
    repair::{Ending, Problem, malformed},
};

/// The tool that runs a block.
pub(super) const BASH: &str = "execute_bash";
/// The tool that ends the episode, and the line that calls it.
pub(super) const SUBMIT: &str = "submit";

/// The calls of a response.
pub(super) struct Parsed {
    /// The calls, in order.
    pub(super) calls: Vec<Call>,
    /// Whether the block of commands ends with `submit`.
    pub(super) then_submit: bool,
    /// How many bytes of the text stay in the history.
    pub(super) kept: usize,
}

/// Finds the first block of commands, or the call before it.
pub(super) fn parse(text: &str, tools: &[ToolSpec], ending: Ending) -> Parsed {
    let block = block(text, ending);
    let found = find(text, tools, ending).calls.into_iter().next();
    match (block, found) {
        (Some(block), found) if found.as_ref().is_none_or(|call| block.start <= call.start) => {
            let kept = if block.script.is_ok() { block.end } else { text.len() };
            let (calls, then_submit) = block.calls(tools);
            Parsed { calls, then_submit, kept }
        }
        (_, Some(call)) => {
            let readable = matches!(call.arguments, Arguments::Object(_));
            let kept = if readable { closed(text, &call) } else { text.len() };
            Parsed { calls: vec![call], then_submit: false, kept }
        }
        _ if text.trim() == SUBMIT => {
            let calls = vec![call(SUBMIT, None, 0, text.len())];
            Parsed { calls, then_submit: false, kept: text.len() }
        }
        _ => Parsed { calls: Vec::new(), then_submit: false, kept: text.len() },
    }
}

/// Whether the first executable block is closed and names its language, so that no later block takes precedence.
pub(super) fn is_closed(text: &str) -> bool {
    let block = block(text, Ending::CutOff);
    block.is_some_and(|block| block.language != Language::Plain && block.script.is_ok())
}

/// The end of a call including the mark or fence that closes it.
fn closed(text: &str, call: &Call) -> usize {
    let rest = text.get(call.end..).unwrap_or_default();
    let after = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '}');
    let mark = ["```", "</tool_call>", "</tools>"].iter().find(|mark| after.starts_with(**mark));
    mark.map_or(call.end, |mark| text.len() - after.len() + mark.len())
}

/// A block and its position in the text.
struct Block {
    language: Language,
    /// The commands, or why they cannot be executed.
    script: Result<String, Problem>,
    ending: Ending,
    start: usize,
    end: usize,
    source: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Shell,
    Python,
    /// Not specified.
    Plain,
    Other,
}

impl Language {
    fn of(word: &str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "bash" | "sh" | "shell" | "zsh" => Self::Shell,
            "python" | "python3" | "py" => Self::Python,
            "" => Self::Plain,
            _ => Self::Other,
        }
    }

    fn script(self) -> Script {
        match self {
            Self::Shell | Self::Plain => Script::Shell(Shell::default()),
            Self::Python => Script::Python(Python::default()),
            Self::Other => Script::Text,
        }
    }
}

impl Block {
    /// The calls of the block, and whether it submits after them.
    fn calls(self, tools: &[ToolSpec]) -> (Vec<Call>, bool) {
        let (start, end) = (self.start, self.end);
        let script = match self.script {
            Ok(script) => unix(script),
            Err(problem) => {
                let arguments = malformed(&self.source, &problem, &Value::Null, self.ending);
                return (vec![Call { name: BASH.into(), arguments, start, end }], false);
            }
        };
        if script.trim_start().starts_with('{') {
            let inner = find(&script, tools, Ending::Finished).calls.into_iter().next();
            if let Some(inner) = inner {
                return (vec![Call { start, end, ..inner }], false);
            }
        }
        if self.language == Language::Python {
            return (vec![call(BASH, Some(python(&script)), start, end)], false);
        }
        let script = without_prompts(&script);
        match submitted(&script, tools) {
            Some(before) if !has_commands(before) => (vec![call(SUBMIT, None, start, end)], false),
            // Small models submit before seeing whether their commands failed: the loop decides once it knows.
            Some(before) => {
                (vec![call(BASH, Some(before.trim_end().to_owned()), start, end)], true)
            }
            None if has_commands(&script) => {
                (vec![call(BASH, Some(script.trim_end().to_owned()), start, end)], false)
            }
            None => (Vec::new(), false),
        }
    }
}

fn call(name: &str, command: Option<String>, start: usize, end: usize) -> Call {
    let arguments = command.map(|command| ("command".to_owned(), Value::String(command)));
    let arguments = Arguments::Object(Map::from_iter(arguments));
    Call { name: name.to_owned(), arguments, start, end }
}

/// Consistent Windows line ends are the model's habit, and no command would work with them.
fn unix(script: String) -> String {
    let all = script.matches('\n').count();
    match script.matches("\r\n").count() {
        some if some == all => script.replace("\r\n", "\n"),
        _ => script,
    }
}

/// The commands before a last line that submits. Comments may follow it. A line inside a here-document or a string is
/// text, not a command.
fn submitted<'s>(script: &'s str, tools: &[ToolSpec]) -> Option<&'s str> {
    if !tools.iter().any(|tool| tool.name == SUBMIT) {
        return None;
    }
    let mut shell = Shell::default();
    let (mut at, mut before) = (0, None);
    for line in script.split_inclusive('\n') {
        let (is_command, bare) = (!shell.is_open(), line.trim());
        if is_command && is_submit(bare) {
            before = before.or(Some(at));
        } else if !is_command || !(bare.is_empty() || bare.starts_with('#')) {
            before = None;
        }
        shell.feed(line.trim_end_matches(['\n', '\r']));
        at += line.len();
    }
    script.get(..before?)
}

/// Whether a line of commands is `submit` and nothing else.
fn is_submit(line: &str) -> bool {
    let comment = line.find(" #").or_else(|| line.find("\t#"));
    let code = line.get(..comment.unwrap_or(line.len())).unwrap_or(line);
    matches!(code.trim_end().trim_end_matches(';').trim_end(), "submit" | "submit()")
}

/// Whether it contains anything but comments.
fn has_commands(script: &str) -> bool {
    script.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
}

/// The commands of a transcript that shows a prompt before each.
fn without_prompts(script: &str) -> String {
    let commands = || script.lines().filter(|line| !line.trim().is_empty());
    if commands().count() > 0 && commands().all(|line| line.trim_start().starts_with("$ ")) {
        let bare = commands().map(|line| line.trim_start().trim_start_matches("$ "));
        return bare.collect::<Vec<_>>().join("\n");
    }
    script.to_owned()
}

/// A command that runs a program, whatever its lines.
fn python(program: &str) -> String {
    let lines = program.lines().map(|line| line.trim_end_matches('\r'));
    let taken: HashSet<&str> = lines.filter(|line| line.starts_with("END_")).collect();
    let mut words = (0..).map(|number| format!("END_{number}"));
    let end = words.find(|word| !taken.contains(word.as_str())).unwrap_or_default();
    format!("python3 - <<'{end}'\n{}\n{end}", program.trim_end())
}

/// The first executable block: one that names its language before one that does not.
fn block(text: &str, ending: Ending) -> Option<Block> {
    let mut at = 0;
    let mut plain = None;
    while let Some(opening) = opening(text, at) {
        let block = opening.read(text, ending);
        at = block.end.max(opening.body);
        let empty = matches!(&block.script, Ok(script) if !has_commands(script));
        match opening.language {
            _ if empty => {}
            Language::Shell | Language::Python => return Some(block),
            Language::Plain if plain.is_none() => plain = Some(block),
            _ => {}
        }
    }
    plain
}

/// The line that opens a block.
struct Opening {
    language: Language,
    ticks: usize,
    indent: usize,
    start: usize,
    body: usize,
    /// The commands, where the block is a single line: ```` ```bash ls``` ````
    inline: Option<String>,
}

fn opening(text: &str, from: usize) -> Option<Opening> {
    let mut start = from;
    for line in text.get(from..)?.split_inclusive('\n') {
        let bare = line.trim_start();
        let ticks = bare.bytes().take_while(|&byte| byte == b'`').count();
        if ticks >= 3 {
            let info = bare.get(ticks..).unwrap_or_default().trim();
            let (word, rest) = info.split_once(char::is_whitespace).unwrap_or((info, ""));
            let inline = rest.strip_suffix("```").map(|commands| commands.trim().to_owned());
            if inline.is_some() || !info.contains('`') {
                return Some(Opening {
                    language: Language::of(word),
                    ticks,
                    indent: line.len() - bare.len(),
                    start,
                    body: start + line.len(),
                    inline,
                });
            }
        }
        start += line.len();
    }
    None
}

impl Opening {
    fn block(&self, text: &str, script: Result<String, Problem>, end: usize) -> Block {
        let source = text.get(self.start..end).unwrap_or_default().to_owned();
        let ending = Ending::Finished;
        Block { language: self.language, script, ending, start: self.start, end, source }
    }

    fn read(&self, text: &str, ending: Ending) -> Block {
        if let Some(commands) = &self.inline {
            let end =
                self.start + text.get(self.start..self.body).unwrap_or_default().trim_end().len();
            return self.block(text, Ok(commands.clone()), end);
        }
        let mut follow = self.language.script();
        let mut script = String::new();
        let mut at = self.body;
        let mut nested = false;
        for line in text.get(self.body..).unwrap_or_default().split_inclusive('\n') {
            let bare = line.trim_end();
            let end = at + bare.len();
            let ticks = bare.len() - bare.trim_end_matches('`').len();
            let alone = bare.trim_start().len() == ticks;
            at += line.len();
            let closes = match follow.open() {
                _ if ticks < self.ticks => false,
                None | Some(Open::Command) => true,
                Some(Open::Heredoc(_) | Open::Text) => false,
                // A quoted text may contain a block that names its language. Any other fence is the end: then a
                // quotation mark is missing, and the shell reports it without running the command.
                Some(Open::Quote) => alone && !std::mem::take(&mut nested),
            };
            if closes && ending == Ending::CutOff && follow.open().is_some() {
                break;
            }
            if closes {
                script.push_str(self.dedent(bare.get(..bare.len() - ticks).unwrap_or_default()));
                return self.block(text, Ok(script), end);
            }
            nested |= !alone && bare.trim_start().starts_with("```");
            let line = self.dedent(line);
            follow.feed(line.trim_end_matches(['\n', '\r']));
            script.push_str(line);
        }
        self.unclosed(text, ending, script, follow.open())
    }

    /// A block without its closing fence. It is executed only if the model ended its response by itself and left nothing
    /// open: then only the fence is missing. A response that was cut off ends in an incomplete command. A here-document
    /// without its delimiter may be an incomplete file, unless the last line of the response is a fence: then only the
    /// delimiter is missing, and its position is clear.
    fn unclosed(&self, text: &str, ending: Ending, script: String, open: Option<Open>) -> Block {
        let script = match (ending, open) {
            (Ending::CutOff, _) => Err(Problem::CutOff),
            (_, Some(Open::Heredoc(end))) => self.with_end(script, end),
            (_, Some(_)) => Err(Problem::OpenBlock),
            (_, None) => Ok(script),
        };
        Block { ending, ..self.block(text, script, text.len()) }
    }

    /// Completes a script whose last here-document lacks its delimiter.
    fn with_end(&self, script: String, end: String) -> Result<String, Problem> {
        let (body, fence) = script.trim_end().rsplit_once('\n').unwrap_or_default();
        if fence.len() < self.ticks || fence.bytes().any(|byte| byte != b'`') {
            return Err(Problem::OpenHeredoc(end));
        }
        let (body, last) = body.trim_end().rsplit_once('\n').unwrap_or_default();
        Ok(match last.trim() {
            SUBMIT => format!("{body}\n{end}\n{SUBMIT}"),
            _ => format!("{body}\n{last}\n{end}"),
        })
    }

    /// A line without the indentation of its block.
    fn dedent<'l>(&self, line: &'l str) -> &'l str {
        let blanks = line.bytes().take_while(|byte| b" \t".contains(byte)).count();
        line.get(blanks.min(self.indent)..).unwrap_or(line)
    }
}
