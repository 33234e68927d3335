//! Recognizes in a shell command which files it writes, moves or removes. Only the obvious: literal names, redirections,
//! here-documents and a few programs. What is not understood is left out.

use serde::Serialize;

/// Longer commands are not looked at, in bytes.
const LONGEST: usize = 256 << 10;
/// Changes of one command.
const MOST: usize = 50;
/// Longest path, in bytes.
const LONGEST_PATH: usize = 400;

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    /// It is new, or its whole content was given.
    Created,
    /// A part was replaced.
    Edited,
    /// Text was added at its end.
    Appended,
    /// It was removed.
    Deleted,
    /// It has another name.
    Moved,
    /// It was written; the content before is not known.
    Written,
}

/// A change that a command makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandChange {
    pub(crate) path: String,
    pub(crate) how: How,
    /// The text that is written, where the command has it.
    pub(crate) content: Option<String>,
}

/// The changes of a command.
pub(crate) fn of_command(text: &str) -> Vec<CommandChange> {
    let hints = [">", "rm ", "mv ", "cp ", "tee ", "touch "];
    if text.len() > LONGEST || !hints.iter().any(|hint| text.contains(hint)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for command in Parser::new(text).commands() {
        changes(&command, &mut found);
        if found.len() >= MOST {
            break;
        }
    }
    found.truncate(MOST);
    found
}

/// A simple command.
#[derive(Debug, Default)]
struct Simple {
    words: Vec<Word>,
    /// Targets of `>` and `>>`.
    outputs: Vec<(Word, How)>,
    /// The text of its here-document, where nothing in it is expanded.
    here: Option<Option<String>>,
}

#[derive(Clone, Debug, Default)]
struct Word {
    text: String,
    /// Whether the shell expands something in it.
    expands: bool,
}

fn changes(command: &Simple, found: &mut Vec<CommandChange>) {
    let name = command.words.first().map(|word| word.text.as_str()).unwrap_or_default();
    let mut add = |word: &Word, how: How, content: Option<String>| {
        let path = word.text.as_str();
        let is_file = !word.expands
            && !path.is_empty()
            && path.len() <= LONGEST_PATH
            && !path.starts_with('&')
            && !path.starts_with("/dev/")
            && !path.starts_with("/proc/");
        if is_file {
            found.push(CommandChange { path: path.to_owned(), how, content });
        }
    };
    let here = command.here.clone().flatten().filter(|_| name == "cat" || name == "tee");
    for (target, how) in &command.outputs {
        add(target, *how, here.clone().filter(|_| name == "cat"));
    }
    let mut rest = command.words.iter().skip(1).filter(|word| !word.text.starts_with('-'));
    match name {
        "tee" => {
            let appends = command.words.iter().any(|word| word.text == "-a");
            let how = if appends { How::Appended } else { How::Written };
            rest.for_each(|word| add(word, how, here.clone()));
        }
        "rm" => rest.for_each(|word| add(word, How::Deleted, None)),
        "touch" => rest.for_each(|word| add(word, How::Written, None)),
        "mv" | "cp" => {
            let how = if name == "mv" { How::Moved } else { How::Written };
            if let (Some(from), Some(to), None) = (rest.next(), rest.next(), rest.next()) {
                if name == "mv" {
                    add(from, How::Deleted, None);
                }
                add(to, how, None);
            }
        }
        _ => {}
    }
}

struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    /// Delimiters of here-documents that begin on this line, and whether their text is literal.
    open: Vec<(String, bool)>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.chars().peekable(), open: Vec::new() }
    }

    fn commands(mut self) -> Vec<Simple> {
        let mut all = Vec::new();
        let mut now = Simple::default();
        // Commands of this line that wait for the text of their here-document.
        let mut waiting: Vec<usize> = Vec::new();
        while let Some(c) = self.rest.next() {
            match c {
                ' ' | '\t' | '\r' => {}
                '\\' if self.rest.peek() == Some(&'\n') => drop(self.rest.next()),
                '#' => while self.rest.next_if(|c| *c != '\n').is_some() {},
                '\n' | ';' | '|' | '&' | '(' | ')' => {
                    if c == '&' && self.rest.next_if_eq(&'>').is_some() {
                        self.output(&mut now);
                        continue;
                    }
                    let before = self.open.len();
                    if now.here.is_some() {
                        waiting.push(all.len());
                    }
                    all.push(std::mem::take(&mut now));
                    if c == '\n' && before > 0 {
                        self.here_documents(&mut all, &mut waiting);
                    }
                }
                '<' if self.rest.next_if_eq(&'<').is_some() => {
                    if self.rest.next_if_eq(&'<').is_some() {
                        self.word();
                        continue;
                    }
                    self.rest.next_if_eq(&'-');
                    self.spaces();
                    let quoted = self.rest.peek().is_some_and(|c| "'\"\\".contains(*c));
                    let delimiter = self.word().text;
                    self.open.push((delimiter, quoted));
                    now.here = Some(None);
                }
                '<' => {
                    self.spaces();
                    self.word();
                }
                '>' => self.output(&mut now),
                '0'..='9' if self.rest.peek() == Some(&'>') => {
                    self.rest.next();
                    match c {
                        '1' => self.output(&mut now),
                        _ => {
                            self.rest.next_if_eq(&'>');
                            self.spaces();
                            self.word();
                        }
                    }
                }
                other => {
                    let word = self.word_from(Some(other));
                    now.words.push(word);
                }
            }
        }
        all.push(now);
        all
    }

    /// After `>`.
    fn output(&mut self, now: &mut Simple) {
        let how = match self.rest.next_if_eq(&'>') {
            Some(_) => How::Appended,
            None => How::Written,
        };
        self.rest.next_if_eq(&'|');
        self.spaces();
        let target = self.word();
        now.outputs.push((target, how));
    }

    fn spaces(&mut self) {
        while self.rest.next_if(|c| *c == ' ' || *c == '\t').is_some() {}
    }

    fn word(&mut self) -> Word {
        self.word_from(None)
    }

    fn word_from(&mut self, first: Option<char>) -> Word {
        let mut word = Word::default();
        let mut next = first;
        loop {
            let c = match next.take() {
                Some(c) => c,
                None => match self.rest.next_if(|c| !" \t\r\n;|()<>".contains(*c)) {
                    Some(c) => c,
                    None => return word,
                },
            };
            match c {
                '\'' => {
                    while let Some(c) = self.rest.next().filter(|c| *c != '\'') {
                        word.text.push(c);
                    }
                }
                '"' => self.double_quoted(&mut word),
                '\\' => word.text.extend(self.rest.next()),
                '$' | '`' | '*' | '?' | '{' => {
                    word.expands = true;
                    word.text.push(c);
                }
                '&' if word.text.is_empty() => word.text.push('&'),
                '&' => return word,
                c => word.text.push(c),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut Word) {
        while let Some(c) = self.rest.next().filter(|c| *c != '"') {
            match c {
                '\\' => word.text.extend(self.rest.next()),
                '$' | '`' => {
                    word.expands = true;
                    word.text.push(c);
                }
                c => word.text.push(c),
            }
        }
    }

    /// Reads the texts of the here-documents that began on the line before.
    fn here_documents(&mut self, all: &mut [Simple], waiting: &mut Vec<usize>) {
        let mut of = std::mem::take(waiting).into_iter();
        for (delimiter, quoted) in std::mem::take(&mut self.open) {
            let mut text = String::new();
            loop {
                let mut line = String::new();
                while let Some(c) = self.rest.next_if(|c| *c != '\n') {
                    line.push(c);
                }
                let ended = self.rest.next().is_none();
                if line.trim_start_matches('\t') == delimiter || (ended && line.is_empty()) {
                    break;
                }
                text.push_str(&line);
                text.push('\n');
                if ended {
                    break;
                }
            }
            let literal = quoted || !text.contains(['$', '`', '\\']);
            if let Some(command) = of.next().and_then(|at| all.get_mut(at)) {
                command.here = Some(literal.then_some(text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &str, expected: &[(&str, How, Option<&str>)]) {
        let found = of_command(command);
        let found: Vec<_> = found
            .iter()
            .map(|change| (change.path.as_str(), change.how, change.content.as_deref()))
            .collect();
        assert_eq!(found, expected, "{command}");
    }

    #[test]
    fn here_documents_have_their_text() {
        check(
            "cat > a.py <<'EOF'\nprint('x > y')\nEOF\npython a.py",
            &[("a.py", How::Written, Some("print('x > y')\n"))],
        );
        check(
            "cat <<EOF >> \"my file\"\nplain\nEOF",
            &[("my file", How::Appended, Some("plain\n"))],
        );
        check("cat <<EOF > b\n$HOME\nEOF\n", &[("b", How::Written, None)]);
        check("tee -a c <<'X' >/dev/null\n1\nX\n", &[("c", How::Appended, Some("1\n"))]);
        // Without its end.
        check("cat > a <<EOF\nx", &[("a", How::Written, Some("x\n"))]);
    }

    #[test]
    fn redirections_and_programs() {
        check("echo 5 > out/answer.txt && ls", &[("out/answer.txt", How::Written, None)]);
        check("echo 'a > b'; echo \"c > d\"", &[]);
        check("make 2>&1 | tail -5; ls 2> /dev/null >/dev/null", &[]);
        check("python x.py &> log", &[("log", How::Written, None)]);
        check(
            "rm -rf build a.txt",
            &[("build", How::Deleted, None), ("a.txt", How::Deleted, None)],
        );
        check("mv a b", &[("a", How::Deleted, None), ("b", How::Moved, None)]);
        check("cp a b", &[("b", How::Written, None)]);
        check("echo x > $OUT; rm *.o", &[]);
        check("python -c \"print(1 > 2)\nprint('rm x')\"", &[]);
        check("[ 1 -gt 0 ] && touch f # > g", &[("f", How::Written, None)]);
    }

    #[test]
    fn hostile_commands_end() {
        for text in ["<<", "> ", "cat <<\n", "'", "\"\\", "cat <<'", "2>", "&>", "<<<"] {
            of_command(&format!("{text} > x"));
            of_command(text);
        }
        let long = format!("rm {}", "x ".repeat(100_000));
        assert!(of_command(&long).len() <= MOST);
    }
}
