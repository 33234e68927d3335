//! Everything a turn executes, as commands and programs: calls, here-documents, `python -c`, files it writes.
//!
//! Prose (documents, answers, data) is excluded: it does nothing.

use std::borrow::Cow;

use super::{
    code::{Code, Comments},
    command::{Command, Input, is_python},
    shell,
    turn::{Call, Turn},
};

/// Nesting depth of texts within texts that is followed.
const DEEPEST: u32 = 4;

/// What a turn executes.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// Shell commands.
    pub(super) commands: Vec<Command>,
    /// Programs.
    pub(super) programs: Vec<(Language, Code)>,
    /// Files viewed with the editor.
    pub(super) viewed: Vec<String>,
    /// Files the model writes as a whole.
    pub(super) written: Vec<String>,
    /// Whether the shell evaluates arithmetic.
    pub(super) counts: bool,
}

/// Language of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Shell,
    Python,
    Other(Comments),
    Prose,
}

/// A text still to be parsed.
struct Piece<'a> {
    language: Language,
    text: Cow<'a, str>,
    file: Option<String>,
    depth: u32,
}

impl Script {
    /// Parses the tool calls of a turn.
    pub(super) fn of(turn: &Turn<'_>) -> Self {
        let mut script = Self::default();
        let mut left: Vec<Piece<'_>> = Vec::new();
        for call in &turn.calls {
            script.call(call, &mut left);
            while let Some(piece) = left.pop() {
                script.piece(&piece, &mut left);
            }
        }
        script
    }

    fn call<'a>(&mut self, call: &Call<'a>, left: &mut Vec<Piece<'a>>) {
        let path = call.text("path").unwrap_or_default();
        match editing(call) {
            Some("view") => self.viewed.push(path.to_owned()),
            Some(_) => {
                for name in ["file_text", "new_str", "insert_text"] {
                    let Some(text) = call.text(name) else { continue };
                    if name == "file_text" {
                        self.written.push(path.to_owned());
                    }
                    let language = language(path, text);
                    let file = Some(path.to_owned());
                    left.push(Piece { language, text: Cow::Borrowed(text), file, depth: 0 });
                }
            }
            None => left.extend(call.arguments.iter().filter_map(|(name, value)| {
                let language = match name.as_str() {
                    "command" | "cmd" | "script" | "bash" => Language::Shell,
                    "code" | "python" => Language::Python,
                    _ => return None,
                };
                let text = Cow::Borrowed(value.as_str()?);
                Some(Piece { language, text, file: None, depth: 0 })
            })),
        }
    }

    fn piece(&mut self, piece: &Piece<'_>, left: &mut Vec<Piece<'_>>) {
        let mut inner = |language, text: String, file| {
            if piece.depth < DEEPEST {
                left.push(Piece { language, text: text.into(), file, depth: piece.depth + 1 });
            }
        };
        match piece.language {
            Language::Prose => {}
            Language::Shell => {
                let shell = shell::read(&piece.text);
                self.counts |= shell.counts;
                for command in shell.commands {
                    if let Some((language, text)) = inline(&command) {
                        inner(language, text, None);
                    }
                    if let Input::Text(Some(number)) = command.input {
                        let body = shell.documents.get(number).copied().unwrap_or_default();
                        let file = target(&command);
                        inner(
                            document(&command, file, body),
                            body.to_owned(),
                            file.map(Into::into),
                        );
                        self.written.extend(file.map(str::to_owned));
                    }
                    self.commands.push(command);
                }
            }
            Language::Python | Language::Other(_) => {
                let comments = match piece.language {
                    Language::Other(comments) => comments,
                    _ => Comments::Hash,
                };
                let mut code = Code::read(&piece.text, comments);
                code.file.clone_from(&piece.file);
                for line in code.launched() {
                    inner(Language::Shell, line, None);
                }
                self.programs.push((piece.language, code));
            }
        }
    }
}

/// The texts a turn wrote, verbatim: commands, files, replacements. Replaced text is not new.
pub(super) fn written<'a>(turn: &Turn<'a>) -> Vec<&'a str> {
    let mut texts = Vec::new();
    for call in &turn.calls {
        match editing(call) {
            Some(_) => {
                texts.extend(
                    ["file_text", "new_str", "insert_text"]
                        .iter()
                        .filter_map(|name| call.text(name)),
                );
            }
            None => texts.extend(call.arguments.values().filter_map(|value| value.as_str())),
        }
    }
    texts
}

/// The editor's command, where the tool is the editor.
fn editing<'a>(call: &Call<'a>) -> Option<&'a str> {
    call.arguments.get("path")?;
    let command = call.text("command")?;
    matches!(command, "view" | "create" | "str_replace" | "insert" | "undo_edit").then_some(command)
}

/// A program in the arguments of a command.
fn inline(command: &Command) -> Option<(Language, String)> {
    let flag = match command.name.as_str() {
        name if is_python(name) => ("-c", Language::Python),
        "bash" | "sh" | "zsh" | "dash" | "su" => ("-c", Language::Shell),
        "node" | "perl" | "ruby" | "Rscript" | "R" | "julia" | "php" => {
            ("-e", Language::Other(Comments::Slashes))
        }
        _ => return None,
    };
    let at = command.args.iter().position(|arg| is_flag(arg, flag.0))?;
    Some((flag.1, command.args.get(at + 1)?.clone()))
}

/// `-c` may be combined with other flags: `bash -lc`.
fn is_flag(arg: &str, flag: &str) -> bool {
    let letter = flag.trim_start_matches('-');
    arg == flag
        || (arg.len() <= 4
            && arg.starts_with('-')
            && !arg.starts_with("--")
            && arg.ends_with(letter))
}

/// The file a here-document goes to.
fn target(command: &Command) -> Option<&str> {
    match command.name.as_str() {
        "tee" => command.args.iter().map(String::as_str).find(|arg| !arg.starts_with('-')),
        _ => command.writes.first().map(String::as_str),
    }
}

/// Language of a here-document: by the command that runs it, or the file name.
fn document(command: &Command, file: Option<&str>, body: &str) -> Language {
    match command.name.as_str() {
        name if is_python(name) => Language::Python,
        "bash" | "sh" | "zsh" | "dash" => Language::Shell,
        "node" | "perl" | "ruby" | "Rscript" | "R" | "julia" | "php" => {
            Language::Other(Comments::Slashes)
        }
        "cat" | "tee" | "" => file.map_or(Language::Prose, |file| language(file, body)),
        _ => Language::Prose,
    }
}

/// Language of a file: by extension, else by its first line.
fn language(path: &str, text: &str) -> Language {
    let name = path.rsplit('/').next().unwrap_or_default();
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    match end {
        "py" | "pyw" => Language::Python,
        "sh" | "bash" | "zsh" => Language::Shell,
        "r" | "R" | "jl" | "rb" | "pl" => Language::Other(Comments::Hash),
        "c" | "cc" | "cpp" | "cxx" | "h" | "hpp" | "rs" | "go" | "java" | "js" | "mjs" | "ts"
        | "cs" | "kt" | "swift" | "scala" | "php" | "cu" => Language::Other(Comments::Slashes),
        _ => {
            let first = text.lines().next().unwrap_or_default();
            match first.strip_prefix("#!") {
                Some(program) if program.contains("python") => Language::Python,
                Some(program) if program.contains("sh") => Language::Shell,
                _ => Language::Prose,
            }
        }
    }
}
