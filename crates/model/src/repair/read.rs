//! A lenient JSON parser for what models write: one pass, bounded depth, no guessing.
//!
//! Tolerates variations of notation, never a missing part. Knows no tool. The texts of [`Problem`] are shown to models.

/// Maximum nesting.
const MAX_DEPTH: usize = 64;

/// Maximum bytes of a text.
pub(crate) const MAX_LENGTH: usize = 8 << 20;

/// A value as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// `null` or `None`.
    Null,
    /// `true` or `True`, `false` or `False`.
    Bool(bool),
    /// A number as written: `1.10` may turn out to be a string.
    Number(String),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Node>),
    /// An object, in the order of its keys.
    Object(Vec<(String, Node)>),
}

/// Whether brackets may be missing at the very end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closers {
    /// All must be present.
    Required,
    /// They may be missing if everything else is present.
    MayLack,
}

/// Why a text is not a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// The response was cut off.
    #[error("the call was cut off before its end")]
    CutOff,
    /// The text is empty.
    #[error("there is nothing where a JSON object was expected")]
    Nothing,
    /// A string is not closed.
    #[error("a string is never closed")]
    OpenString,
    /// The text ends in the middle of a value.
    #[error("it ends before the value is complete")]
    Unfinished,
    /// Too many brackets.
    #[error("it is nested too deeply")]
    TooDeep,
    /// Too many bytes.
    #[error("it is too long")]
    TooLong,
    /// Unexpected text.
    #[error("{expected} was expected before `{near}`{hint}")]
    Unexpected {
        /// What was expected.
        expected: &'static str,
        /// The next few characters.
        near: String,
        /// The usual cause.
        hint: &'static str,
    },
    /// The value ends before the text does.
    #[error("the value ends too early: `{near}` follows{ESCAPE}")]
    Rest {
        /// The next few characters.
        near: String,
    },
    /// Several objects in a row.
    #[error("several objects follow one another where one belongs")]
    Several,
    /// Not an object.
    #[error("{0} stands where an object belongs")]
    NotAnObject(&'static str),
    /// An XML parameter without its closing tag.
    #[error("the parameter `{0}` is not closed with </parameter>")]
    OpenParameter(String),
    /// Text between the parameters.
    #[error("text stands outside of any parameter: `{near}`")]
    Stray {
        /// Its first few characters.
        near: String,
    },
    /// A call without a tool name.
    #[error("the call does not say which tool is meant")]
    NoName,
    /// A block without its closing fence.
    #[error("the block is not closed with ```")]
    OpenBlock,
    /// A here-document without its delimiter.
    #[error("the here-document is not closed: no line holds `{0}` alone")]
    OpenHeredoc(String),
}

const ESCAPE: &str = "; a quotation mark inside a string is written \\\"";

/// A problem and where the parser stopped.
#[derive(Debug)]
pub(crate) struct Fault {
    /// What is wrong.
    pub(crate) problem: Problem,
    /// The byte reached.
    pub(crate) at: usize,
}

/// Parses one value at the start of the text. Returns also the byte after it.
pub(crate) fn read(text: &str, closers: Closers) -> Result<(Node, usize), Fault> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, closers };
    let fault = |problem, at| Err(Fault { problem, at });
    if text.len() > MAX_LENGTH {
        return fault(Problem::TooLong, 0);
    }
    match reader.blank().and_then(|()| reader.value(0)) {
        Ok(node) => Ok((node, reader.at)),
        Err(problem) => fault(problem, reader.at),
    }
}

/// The first characters of a text, for a message.
pub(crate) fn near(text: &str) -> String {
    text.chars().take(24).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    closers: Closers,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn unexpected(&self, expected: &'static str, hint: &'static str) -> Problem {
        match self.text.get(self.at..) {
            Some(rest) if !rest.is_empty() => {
                Problem::Unexpected { expected, near: near(rest), hint }
            }
            _ => Problem::Unfinished,
        }
    }

    /// Skips blanks and comments.
    fn blank(&mut self) -> Result<(), Problem> {
        loop {
            match self.peek() {
                Some(byte) if byte.is_ascii_whitespace() => self.at += 1,
                Some(b'#') => self.skip_line(),
                Some(b'/') if self.rest().starts_with(b"//") => self.skip_line(),
                Some(b'/') if self.rest().starts_with(b"/*") => {
                    match self.text.get(self.at..).and_then(|rest| rest.find("*/")) {
                        Some(end) => self.at += end + 2,
                        None => {
                            self.at = self.bytes.len();
                            return Err(Problem::Unfinished);
                        }
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    fn skip_line(&mut self) {
        let line = self.rest().iter().position(|&byte| byte == b'\n');
        self.at = line.map_or(self.bytes.len(), |end| self.at + end);
    }

    fn value(&mut self, depth: usize) -> Result<Node, Problem> {
        match self.peek() {
            None if self.at == 0 || depth == 0 => Err(Problem::Nothing),
            None => Err(Problem::Unfinished),
            Some(b'{' | b'[') if depth >= MAX_DEPTH => Err(Problem::TooDeep),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.list(depth + 1),
            // Two backticks are what a cut-off fence leaves, not an empty string.
            Some(b'`') if self.rest().starts_with(b"``") => Err(self.unexpected("a value", "")),
            Some(b'"' | b'\'' | b'`') => self.string().map(Node::Text),
            Some(byte) if byte.is_ascii_digit() || matches!(byte, b'-' | b'+') => self.number(),
            Some(_) => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node, Problem> {
        self.at += 1;
        let mut members = Vec::new();
        loop {
            self.blank()?;
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(Node::Object(members));
            }
            let key = self.key()?;
            self.blank()?;
            if self.peek() != Some(b':') {
                return Err(self.unexpected("a colon", ESCAPE));
            }
            self.at += 1;
            self.blank()?;
            let value = self.value(depth)?;
            let ended = self.after(&value, b'}')?;
            members.push((key, value));
            if ended {
                return Ok(Node::Object(members));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Node, Problem> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.blank()?;
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(Node::List(items));
            }
            let item = self.value(depth)?;
            let ended = self.after(&item, b']')?;
            items.push(item);
            if ended {
                return Ok(Node::List(items));
            }
        }
    }

    /// Reads what follows a member: a comma, or the end of the container.
    fn after(&mut self, last: &Node, closer: u8) -> Result<bool, Problem> {
        self.blank()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(false)
            }
            Some(byte) if byte == closer => {
                self.at += 1;
                Ok(true)
            }
            // A number may lack digits at its end; other values show their end.
            None if self.closers == Closers::MayLack && !matches!(last, Node::Number(_)) => {
                Ok(true)
            }
            None => Err(Problem::Unfinished),
            Some(_) => {
                let hint = if matches!(last, Node::Text(_)) { ESCAPE } else { "" };
                Err(self.unexpected("a comma or a closing bracket", hint))
            }
        }
    }

    fn key(&mut self) -> Result<String, Problem> {
        match self.peek() {
            Some(b'"' | b'\'' | b'`') => self.string(),
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                let name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
                let length = self.rest().iter().take_while(|byte| name(byte)).count();
                let word = self.text.get(self.at..self.at + length).unwrap_or_default().to_owned();
                self.at += length;
                Ok(word)
            }
            _ => Err(self.unexpected("a key", "")),
        }
    }

    fn word(&mut self) -> Result<Node, Problem> {
        let length = self.rest().iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        let node = match self.text.get(self.at..self.at + length) {
            Some("true" | "True") => Node::Bool(true),
            Some("false" | "False") => Node::Bool(false),
            Some("null" | "None") => Node::Null,
            _ => return Err(self.unexpected("a value", "; strings need quotation marks")),
        };
        self.at += length;
        Ok(node)
    }

    fn number(&mut self) -> Result<Node, Problem> {
        let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let length = self.rest().iter().take_while(|byte| part(byte)).count();
        let raw = self.text.get(self.at..self.at + length).unwrap_or_default();
        let raw = raw.strip_prefix('+').unwrap_or(raw);
        if serde_json::from_str::<serde_json::Number>(raw).is_err() {
            return Err(self.unexpected("a number", "; strings need quotation marks"));
        }
        self.at += length;
        Ok(Node::Number(raw.to_owned()))
    }

    fn string(&mut self) -> Result<String, Problem> {
        let quote = self.bytes[self.at];
        let triple = quote != b'`' && self.rest().starts_with(&[quote; 3]);
        let width = if triple { 3 } else { 1 };
        self.at += width;
        let mut text = String::new();
        loop {
            let stop = self.rest().iter().position(|&byte| byte == quote || byte == b'\\');
            let Some(length) = stop else {
                self.at = self.bytes.len();
                return Err(Problem::OpenString);
            };
            text.push_str(self.text.get(self.at..self.at + length).unwrap_or_default());
            self.at += length;
            if self.peek() == Some(b'\\') {
                self.escape(&mut text, quote)?;
            } else if !triple || self.rest().starts_with(&[quote; 3]) {
                self.at += width;
                return Ok(text);
            } else {
                text.push(quote.into());
                self.at += 1;
            }
        }
    }

    /// Reads an escape sequence. A backslash without a meaning in JSON stands for itself, as in `\d`.
    fn escape(&mut self, text: &mut String, quote: u8) -> Result<(), Problem> {
        let Some(&next) = self.bytes.get(self.at + 1) else {
            self.at = self.bytes.len();
            return Err(Problem::OpenString);
        };
        let plain = match next {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'"' | b'\\' | b'/' => next.into(),
            // In a shell, `'\''` is a quote inside a quoted string: there the backslash is kept.
            b'\'' if quote == b'"' && text.ends_with('\'') && self.follows(2, b'\'') => '\\',
            b'\'' => '\'',
            b'`' if quote == b'`' => '`',
            b'u' => return self.unicode(text),
            _ => '\\',
        };
        self.at += if plain == '\\' && next != b'\\' { 1 } else { 2 };
        text.push(plain);
        Ok(())
    }

    fn follows(&self, ahead: usize, byte: u8) -> bool {
        self.bytes.get(self.at + ahead) == Some(&byte)
    }

    fn unicode(&mut self, text: &mut String) -> Result<(), Problem> {
        let Some(first) = self.hex(self.at) else {
            text.push('\\');
            self.at += 1;
            return Ok(());
        };
        self.at += 6;
        let second = self.hex(self.at).filter(|low| (0xdc00..0xe000).contains(low));
        match (first, second) {
            (0xd800..0xdc00, Some(low)) => {
                self.at += 6;
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00);
                text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            _ => text.push(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER)),
        }
        Ok(())
    }

    /// The four digits after a `\u` at this byte.
    fn hex(&self, at: usize) -> Option<u32> {
        let digits = self.bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |sum, &digit| Some(sum * 16 + char::from(digit).to_digit(16)?))
    }
}
