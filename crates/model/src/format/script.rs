//! Scans a script line by line for open constructs, so that a fence inside a here-document or a string is not taken for
//! the end of the script.
//!
//! Knows quotes, substitutions, comments and here-documents, and nothing else of the languages.

use std::collections::VecDeque;

/// An open construct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Open {
    /// A here-document that ends with this line.
    Heredoc(String),
    /// A triple-quoted string.
    Text,
    /// A quoted string or a substitution.
    Quote,
    /// A command that continues on the next line.
    Command,
}

/// A scanner for one language.
pub(super) enum Script {
    /// Shell commands.
    Shell(Shell),
    /// A Python program.
    Python(Python),
    /// Anything else, without strings.
    Text,
}

impl Script {
    /// Takes the next line, without its end.
    pub(super) fn feed(&mut self, line: &str) {
        match self {
            Self::Shell(shell) => shell.feed(line),
            Self::Python(python) => python.feed(line),
            Self::Text => {}
        }
    }

    /// The construct that the lines so far leave open.
    pub(super) fn open(&self) -> Option<Open> {
        match self {
            Self::Shell(shell) => shell.open(),
            Self::Python(python) => python.quote.map(|_| Open::Text),
            Self::Text => None,
        }
    }
}

/// Scans shell commands.
#[derive(Default)]
pub(super) struct Shell {
    /// The enclosing constructs, the innermost last.
    inside: Vec<Inside>,
    /// The here-documents that follow, the next one first, with their delimiters.
    heredocs: VecDeque<(String, Tabs)>,
    continued: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tabs {
    Stripped,
    Kept,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Single,
    /// `$'…'`, where a backslash escapes.
    Escaped,
    Double,
    Parentheses,
    Arithmetic,
}

impl Shell {
    /// Whether the lines so far leave anything open.
    pub(super) fn is_open(&self) -> bool {
        !self.heredocs.is_empty() || !self.inside.is_empty() || self.continued
    }

    fn open(&self) -> Option<Open> {
        if let Some((end, _)) = self.heredocs.front() {
            return Some(Open::Heredoc(end.clone()));
        }
        match self.inside.is_empty() {
            false => Some(Open::Quote),
            true => self.continued.then_some(Open::Command),
        }
    }

    /// Takes the next line, without its end.
    pub(super) fn feed(&mut self, line: &str) {
        if let Some((end, tabs)) = self.heredocs.front() {
            let line = match tabs {
                Tabs::Stripped => line.trim_start_matches('\t'),
                Tabs::Kept => line,
            };
            if line.trim_end_matches('\r') == end {
                self.heredocs.pop_front();
            }
            return;
        }
        let code = self.scan(line).trim_end();
        self.continued = ["\\", "&&", "|"].iter().any(|end| code.ends_with(end));
    }

    /// Scans a line of code. Returns it without its comment.
    fn scan<'l>(&mut self, line: &'l str) -> &'l str {
        let bytes = line.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            at += match (self.inside.last().copied(), rest) {
                (Some(Inside::Single), [b'\'', ..]) | (Some(Inside::Escaped), [b'\'', ..]) => {
                    self.leave()
                }
                (Some(Inside::Single), _) => 1,
                (_, [b'\\', ..]) => 2,
                (Some(Inside::Escaped), _) => 1,
                (Some(Inside::Double), [b'"', ..]) => self.leave(),
                (Some(Inside::Arithmetic), [b')', b')', ..]) => self.leave() + 1,
                (Some(Inside::Arithmetic), [b'(', ..]) => self.enter(Inside::Parentheses, 1),
                (_, [b'$', b'(', b'(', ..]) => self.enter(Inside::Arithmetic, 3),
                (_, [b'$', b'(', ..]) => self.enter(Inside::Parentheses, 2),
                (Some(Inside::Double | Inside::Arithmetic), _) => 1,
                (_, [b'$', b'\'', ..]) => self.enter(Inside::Escaped, 2),
                (_, [b'\'', ..]) => self.enter(Inside::Single, 1),
                (_, [b'"', ..]) => self.enter(Inside::Double, 1),
                (None, [b'(', b'(', ..]) => self.enter(Inside::Arithmetic, 2),
                (Some(Inside::Parentheses), [b'(', ..]) => self.enter(Inside::Parentheses, 1),
                (Some(Inside::Parentheses), [b')', ..]) => self.leave(),
                (_, [b'#', ..]) if at == 0 || b" \t;&|(".contains(&bytes[at - 1]) => {
                    return line.get(..at).unwrap_or_default();
                }
                (_, [b'<', b'<', b'<', ..]) => 3,
                (_, [b'<', b'<', after @ ..]) => 2 + self.heredoc(after),
                _ => 1,
            };
        }
        line
    }

    fn enter(&mut self, inside: Inside, length: usize) -> usize {
        self.inside.push(inside);
        length
    }

    fn leave(&mut self) -> usize {
        self.inside.pop();
        1
    }

    /// Reads the delimiter of a here-document. Returns its length.
    fn heredoc(&mut self, after: &[u8]) -> usize {
        let dash = after.first() == Some(&b'-');
        let start = usize::from(dash);
        let blanks = after[start..].iter().take_while(|byte| b" \t".contains(byte)).count();
        let word: &[u8] = &after[start + blanks..];
        let (end, length) = match word.first() {
            Some(&quote @ (b'\'' | b'"')) => {
                let length = word[1..].iter().position(|&byte| byte == quote);
                (&word[1..1 + length.unwrap_or(0)], length.map_or(0, |length| length + 2))
            }
            _ => {
                let slash = usize::from(word.first() == Some(&b'\\'));
                let part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-.!%@+".contains(byte);
                let length = word[slash..].iter().take_while(part).count();
                (&word[slash..slash + length], slash + length)
            }
        };
        // `1 << 3` shifts a number.
        if !end.is_empty() && !end[0].is_ascii_digit() {
            let tabs = if dash { Tabs::Stripped } else { Tabs::Kept };
            self.heredocs.push_back((String::from_utf8_lossy(end).into_owned(), tabs));
        }
        start + blanks + length
    }
}

/// Scans a Python program. Only triple-quoted strings span lines.
#[derive(Default)]
pub(super) struct Python {
    quote: Option<u8>,
}

impl Python {
    fn feed(&mut self, line: &str) {
        let bytes = line.as_bytes();
        let mut at = 0;
        let mut short = None;
        while let Some(&byte) = bytes.get(at) {
            let triple = bytes[at..].starts_with(&[byte; 3]);
            at += match (self.quote, short) {
                _ if byte == b'\\' => 2,
                (Some(quote), _) if byte == quote && triple => {
                    self.quote = None;
                    3
                }
                (Some(_), _) => 1,
                (None, Some(quote)) => {
                    if byte == quote {
                        short = None;
                    }
                    1
                }
                (None, None) if byte == b'#' => return,
                (None, None) if b"'\"".contains(&byte) && triple => {
                    self.quote = Some(byte);
                    3
                }
                (None, None) if b"'\"".contains(&byte) => {
                    short = Some(byte);
                    1
                }
                (None, None) => 1,
            };
        }
    }
}
