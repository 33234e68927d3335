//! Parses shell text into the commands it would run: names, arguments, pipes, redirections, here-documents.
//!
//! Not a shell: it expands nothing, and invalid text is parsed as far as possible. One pass without recursion; nesting deeper than [`DEEPEST`] is read flat.

use super::command::{Command, Input, settle};

/// Levels of substitution distinguished.
const DEEPEST: usize = 64;

/// Content of a shell text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Shell<'a> {
    /// Commands, inner ones before those that contain them.
    pub(super) commands: Vec<Command>,
    /// Bodies of here-documents.
    pub(super) documents: Vec<&'a str>,
    /// Whether it evaluates arithmetic with `((`.
    pub(super) counts: bool,
}

/// Parses a text.
pub(super) fn read(text: &str) -> Shell<'_> {
    let mut reader = Reader { text, patience: text.len().saturating_mul(4), ..Reader::default() };
    while let Some(c) = reader.next() {
        if reader.level.quoted { reader.quoted(c) } else { reader.plain(c) }
    }
    while reader.close() {}
    reader.finish();
    reader.shell
}

#[derive(Default)]
struct Reader<'a> {
    text: &'a str,
    at: usize,
    level: Level,
    outer: Vec<Level>,
    /// Here-documents that begin on the next line: index, delimiter, whether leading tabs are stripped.
    pending: Vec<(usize, String, Tabs)>,
    /// Bytes that may still be searched for the end of `((`; bounds hostile text.
    patience: usize,
    shell: Shell<'a>,
}

/// A command being parsed.
#[derive(Default)]
struct Level {
    words: Vec<String>,
    word: Option<String>,
    next: Next,
    input: Input,
    writes: Vec<String>,
    closes: Closes,
    /// Inside double quotes.
    quoted: bool,
}

/// Role of the next word.
#[derive(Clone, Copy, Default, PartialEq)]
enum Next {
    #[default]
    Word,
    Written,
    Read,
    Ignored,
    HereText,
    Document(Tabs),
}

#[derive(Clone, Copy, PartialEq)]
enum Tabs {
    Kept,
    Dropped,
}

/// What ends a level.
#[derive(Clone, Copy, Default, PartialEq)]
enum Closes {
    #[default]
    Nothing,
    Paren,
    /// An array of values, not commands.
    List,
    Backtick,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Consumes a literal; returns whether it was there.
    fn skip(&mut self, prefix: &str) -> bool {
        let found = self.rest().starts_with(prefix);
        if found {
            self.at += prefix.len();
        }
        found
    }

    fn push(&mut self, c: char) {
        self.level.word.get_or_insert_default().push(c);
    }

    fn plain(&mut self, c: char) {
        match c {
            '\\' => match self.next() {
                Some('\n') | None => {}
                Some(c) => self.push(c),
            },
            '\'' => {
                let rest = self.rest();
                let inner = rest.find('\'').map_or(rest, |end| &rest[..end]);
                self.level.word.get_or_insert_default().push_str(inner);
                self.at = self.text.len().min(self.at + inner.len() + 1);
            }
            '"' => {
                self.level.word.get_or_insert_default();
                self.level.quoted = true;
            }
            '#' if self.level.word.is_none() => {
                let rest = self.rest();
                self.at += rest.find('\n').unwrap_or(rest.len());
            }
            '$' | '`' | '(' | ')' => self.bracket(c),
            '|' | '&' | ';' | '\n' => self.separator(c),
            '<' | '>' => self.redirect(c),
            c if c.is_whitespace() => self.end_word(),
            c => self.push(c),
        }
    }

    fn quoted(&mut self, c: char) {
        match c {
            '"' => self.level.quoted = false,
            '\\' => match self.next() {
                Some('\n') | None => {}
                Some(c) => {
                    if !matches!(c, '"' | '\\' | '$' | '`') {
                        self.push('\\');
                    }
                    self.push(c);
                }
            },
            '$' | '`' => self.bracket(c),
            c => self.push(c),
        }
    }

    fn bracket(&mut self, c: char) {
        match c {
            '$' => {
                self.push('$');
                if self.rest().starts_with("((") && self.arithmetic() {
                    return;
                }
                if self.skip("(") {
                    self.open(Closes::Paren);
                }
            }
            '`' if self.level.closes == Closes::Backtick => {
                self.close();
            }
            '`' => self.open(Closes::Backtick),
            '(' if self.rest().starts_with('(') && self.level.word.is_none() => {
                self.at -= 1;
                if self.arithmetic() {
                    self.shell.counts = true;
                } else {
                    self.at += 1;
                    self.open(Closes::Paren);
                }
            }
            '(' if self.level.word.as_ref().is_some_and(|word| word.ends_with('=')) => {
                self.open(Closes::List);
            }
            '(' => self.open(Closes::Paren),
            _ if matches!(self.level.closes, Closes::Paren | Closes::List) => {
                self.close();
            }
            _ => self.finish(),
        }
    }

    /// Skips `((` to `))`.
    fn arithmetic(&mut self) -> bool {
        let mut depth = 0;
        for (at, byte) in self.rest().bytes().enumerate().take(self.patience) {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.patience -= at;
                let whole = self.rest().as_bytes().get(at - 1) == Some(&b')');
                self.at += if whole { at + 1 } else { 0 };
                return whole;
            }
        }
        self.patience = self.patience.saturating_sub(self.rest().len());
        false
    }

    fn open(&mut self, closes: Closes) {
        if self.outer.len() >= DEEPEST {
            return self.finish();
        }
        let level = Level { closes, ..Level::default() };
        self.outer.push(std::mem::replace(&mut self.level, level));
    }

    /// Closes a level; returns whether one was open.
    fn close(&mut self) -> bool {
        let Some(outer) = self.outer.pop() else { return false };
        self.end_word();
        let empty = self.level.words.is_empty();
        if self.level.closes != Closes::List {
            self.finish();
        }
        self.level = outer;
        // `name()` begins a function; its body is parsed as commands.
        if empty && !self.level.quoted && self.level.words.is_empty() && self.level.word.is_some() {
            self.level.word = None;
        }
        true
    }

    fn separator(&mut self, c: char) {
        if c == '&' && self.skip(">") {
            self.skip(">");
            self.end_word();
            self.level.next = Next::Written;
            return;
        }
        let doubled = c != '\n' && self.rest().starts_with(c);
        self.at += usize::from(doubled);
        self.finish();
        if c == '|' && !doubled {
            self.skip("&");
            self.level.input = Input::Pipe;
        }
        if c == '\n' {
            self.documents();
        }
    }

    fn redirect(&mut self, c: char) {
        // A number right before it selects the stream.
        if self.level.word.as_ref().is_some_and(|word| word.bytes().all(|b| b.is_ascii_digit())) {
            self.level.word = None;
        }
        self.end_word();
        if self.skip("(") {
            return self.open(Closes::Paren);
        }
        if c == '>' {
            let _ = self.skip(">") || self.skip("|");
            self.level.next = if self.skip("&") { Next::Ignored } else { Next::Written };
        } else if self.skip("<<") {
            self.level.next = Next::HereText;
        } else if self.skip("<") {
            let tabs = if self.skip("-") { Tabs::Dropped } else { Tabs::Kept };
            self.level.next = Next::Document(tabs);
        } else {
            self.level.next = if self.skip("&") { Next::Ignored } else { Next::Read };
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.level.word.take() else { return };
        let level = &mut self.level;
        match std::mem::take(&mut level.next) {
            Next::Word => level.words.push(word),
            Next::Written if !word.starts_with("/dev/") => level.writes.push(word),
            Next::Read if !word.starts_with("/dev/") => level.input = Input::File,
            Next::HereText => level.input = Input::Text(None),
            Next::Document(tabs) => {
                let number = self.shell.documents.len();
                self.shell.documents.push("");
                level.input = Input::Text(Some(number));
                self.pending.push((number, word, tabs));
            }
            Next::Written | Next::Read | Next::Ignored => {}
        }
    }

    fn finish(&mut self) {
        self.end_word();
        let level = &mut self.level;
        level.next = Next::Word;
        let words = std::mem::take(&mut level.words);
        let input = std::mem::take(&mut level.input);
        let writes = std::mem::take(&mut level.writes);
        settle(words, input, writes, &mut self.shell.commands);
    }

    /// Parses the bodies of here-documents.
    fn documents(&mut self) {
        for (number, last, tabs) in std::mem::take(&mut self.pending) {
            let start = self.at;
            let mut end = self.text.len();
            for line in self.rest().split_inclusive('\n') {
                let begin = self.at;
                self.at += line.len();
                let line = line.trim_end_matches(['\n', '\r']);
                let line = if tabs == Tabs::Dropped { line.trim_start_matches('\t') } else { line };
                if line == last {
                    end = begin;
                    break;
                }
            }
            if let Some(slot) = self.shell.documents.get_mut(number) {
                *slot = self.text.get(start..end).unwrap_or_default();
            }
        }
    }
}
