//! Separates code from comments and string literals, for Python and other languages.
//!
//! Knows quotes and comments, no grammar.

use super::words::positions;

/// A program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Code {
    /// Code; every string literal in it is empty.
    pub(super) code: String,
    /// String literals, each with its position in the code.
    pub(super) texts: Vec<(usize, String)>,
    /// File it is written to, where known.
    pub(super) file: Option<String>,
}

/// Comment syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comments {
    /// `#`, as in Python.
    Hash,
    /// `//` and `/* */`, as in C.
    Slashes,
}

/// Calls that start a program.
const LAUNCHES: [&str; 8] = [
    "os.system(",
    "os.popen(",
    "subprocess.",
    "Popen(",
    "check_output(",
    "check_call(",
    "getoutput(",
    "asyncio.create_subprocess",
];

/// Bytes searched for the arguments of such a call.
const FARTHEST: usize = 2000;

impl Code {
    /// Parses a program.
    pub(super) fn read(text: &str, comments: Comments) -> Self {
        let mut read = Self::default();
        let mut rest = text;
        while let Some(at) = rest.find(['#', '/', '"', '\'', '`']) {
            read.code.push_str(&rest[..at]);
            rest = read.special(&rest[at..], comments);
        }
        read.code.push_str(rest);
        read
    }

    /// Command lines the program starts, as far as they are literals.
    pub(super) fn launched(&self) -> Vec<String> {
        let calls = LAUNCHES.iter().flat_map(|call| positions(&self.code, call));
        let mut starts: Vec<usize> = calls.map(|(start, _)| start).collect();
        starts.sort_unstable();
        let mut lines = Vec::new();
        let mut over = 0;
        for start in starts {
            if start < over {
                continue;
            }
            over = end_of_call(&self.code, start);
            let begin = self.texts.partition_point(|(at, _)| *at < start);
            let texts = self.texts[begin..].iter().take_while(|(at, _)| *at < over);
            let program = self.code[start..over].contains("sys.executable").then_some("python");
            let words: Vec<&str> =
                program.into_iter().chain(texts.map(|(_, text)| text.as_str())).collect();
            lines.push(words.join(" "));
        }
        lines
    }

    /// Consumes a comment, a string literal or one character, and returns the rest.
    fn special<'a>(&mut self, rest: &'a str, comments: Comments) -> &'a str {
        let to_line_end = || rest.find('\n').map_or("", |end| &rest[end..]);
        match (rest.as_bytes().first(), comments) {
            (Some(b'#'), Comments::Hash) => to_line_end(),
            (Some(b'/'), Comments::Slashes) if rest.starts_with("//") => to_line_end(),
            (Some(b'/'), Comments::Slashes) if rest.starts_with("/*") => {
                rest.find("*/").map_or("", |end| &rest[end + 2..])
            }
            (Some(b'"' | b'\''), Comments::Hash) => self.text(rest),
            (Some(b'"' | b'`'), Comments::Slashes) => self.text(rest),
            // A lone quote may be a lifetime or a transposition.
            (Some(b'\''), Comments::Slashes) => {
                match rest[1..].bytes().find(|byte| matches!(byte, b'\'' | b'\n')) {
                    Some(b'\'') => self.text(rest),
                    _ => &rest[1..],
                }
            }
            _ => {
                self.code.push_str(&rest[..1]);
                &rest[1..]
            }
        }
    }

    fn text<'a>(&mut self, rest: &'a str) -> &'a str {
        let quote = &rest[..1];
        let triple = quote.repeat(3);
        let (inner, after) = if let Some(inner) = rest.strip_prefix(triple.as_str()) {
            inner.split_once(triple.as_str()).unwrap_or((inner, ""))
        } else {
            let inner = &rest[1..];
            let end = end_of_text(inner, quote);
            (&inner[..end], inner[end..].strip_prefix(quote).unwrap_or(&inner[end..]))
        };
        self.texts.push((self.code.len(), inner.to_owned()));
        self.code.push_str("\"\"");
        after
    }
}

/// End of a string literal: its quote, or the end of the line without one. Only backticks span lines.
fn end_of_text(text: &str, quote: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'\n' if quote != "`" => return at,
            byte if quote.as_bytes() == [byte] => return at,
            _ => {}
        }
    }
    text.len()
}

fn end_of_call(code: &str, start: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[start..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        let over = (depth <= 0 && matches!(c, ')' | '\n')) || at > FARTHEST;
        if over {
            return start + at + c.len_utf8();
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(text: &str) -> Code {
        Code::read(text, Comments::Hash)
    }

    #[test]
    fn comments_and_texts_are_no_code() {
        for (text, expected) in [
            ("a = 1 # while open(\nb", "a = 1 \nb"),
            ("print('open(x)')", "print(\"\")"),
            ("\"\"\"doc while\nmore\"\"\"\nx", "\"\"\nx"),
            ("'it\\'s # no' + y", "\"\" + y"),
            ("f'{a}'", "f\"\""),
            ("x = 'forgot\ny", "x = \"\"\ny"),
            ("a / b // c", "a / b // c"),
            ("'''never ends", "\"\""),
        ] {
            assert_eq!(python(text).code, expected, "{text}");
        }
        let c = |text| Code::read(text, Comments::Slashes).code;
        assert_eq!(c("a(); // while\n/* for */ b(\"for\") 'x'"), "a(); \n b(\"\") \"\"");
        assert_eq!(c("fn f<'a>(x: u8)\n#include <a>"), "fn f<a>(x: u8)\n#include <a>");
    }

    #[test]
    fn command_lines_are_put_together() {
        for (text, expected) in [
            ("os.system('pip install x')", "pip install x"),
            ("subprocess.run([\"curl\", \"-s\",\n  'u'], check=True)\nprint('no')", "curl -s u"),
            (
                "subprocess.check_call([sys.executable, '-m', 'pip', 'install', 'x', '-q'])",
                "python -m pip install x -q",
            ),
            ("out = os.popen('ls ' + d).read()", "ls "),
        ] {
            assert_eq!(python(text).launched(), [expected], "{text}");
        }
        assert_eq!(python("import subprocess\nprint('curl')").launched().concat(), "");
        assert_eq!(python("s = 'os.system(curl)'").launched(), Vec::<String>::new());
    }
}
