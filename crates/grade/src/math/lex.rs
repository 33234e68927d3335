//! Tokenizes LaTeX: at each position the longest match wins, then the earlier rule. Commands need no
//! delimiter (`\sinx` is `\sin` and `x`), and `d` before a letter is a differential.
//!
//! Spelling only; the grammar decides which sequences are valid.

use std::collections::HashMap;
use std::sync::LazyLock;

pub(super) use super::lex_tables::Kind;
use super::lex_tables::{CARETS, COMMAND_NAMES, OPERATORS, WORDS, single};

/// A token and its position in the text, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The tokens of `text` without blanks; `None` where a character fits no token or there are too many.
pub(super) fn tokens(text: &str, most: usize) -> Option<Vec<Token>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (kind, length) = next(&text[at..])?;
        if kind != Kind::Skip {
            if out.len() == most {
                return None;
            }
            out.push(Token { kind, start: at, end: at + length });
        }
        at += length;
    }
    Some(out)
}

fn next(rest: &str) -> Option<(Kind, usize)> {
    let first = rest.chars().next()?;
    match first {
        ' ' | '\t' | '\r' | '\n' => {
            let blank = rest.trim_start_matches([' ', '\t', '\r', '\n']);
            Some((Kind::Skip, rest.len() - blank.len()))
        }
        '\\' => command(rest),
        '0'..='9' | '.' => number(rest),
        'a'..='z' | 'A'..='Z' => word(rest),
        '^' => Some(longest(rest, &CARETS).unwrap_or((Kind::Caret, 1))),
        '<' | '=' | '>' | '!' | '~' => longest(rest, &OPERATORS),
        _ => single(first).map(|(kind, may_trail)| {
            let length = first.len_utf8();
            (kind, length + usize::from(may_trail && rest[length..].starts_with(' ')))
        }),
    }
}

fn longest(rest: &str, table: &[(&str, Kind)]) -> Option<(Kind, usize)> {
    table
        .iter()
        .filter(|(text, _)| rest.starts_with(text))
        .map(|(text, kind)| (*kind, text.len()))
        .max_by_key(|found| found.1)
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn number(rest: &str) -> Option<(Kind, usize)> {
    let whole = digits(rest);
    let mut length = whole;
    if rest[whole..].starts_with('.') {
        let decimals = digits(&rest[whole + 1..]);
        if decimals > 0 {
            length += 1 + decimals;
        } else if whole == 0 {
            return Some((Kind::Useless, 1));
        }
    }
    let after = &rest[length..];
    if let Some(exponent) = after.strip_prefix('E') {
        let sign =
            exponent.chars().next().filter(|c| "+∔⊕⊞-−∸".contains(*c)).map_or(0, char::len_utf8);
        let count = digits(&exponent[sign..]);
        if count > 0 {
            return Some((Kind::Scientific, length + 1 + sign + count));
        }
    }
    let blank = usize::from(after.starts_with([' ', '\t', '\r', '\n']));
    for sign in ["\\%", "%"] {
        if after[blank..].starts_with(sign) {
            return Some((Kind::Percent, length + blank + sign.len()));
        }
    }
    Some((Kind::Number, length))
}

fn word(rest: &str) -> Option<(Kind, usize)> {
    let single = match rest.as_bytes()[0] {
        b'e' => (Kind::ExpE, 1),
        b'd' => (Kind::Letter, 1).max_length(differential(rest)),
        _ => (Kind::Letter, 1),
    };
    // A name as long as a differential loses to it only if it were declared later; every name comes first.
    Some(match longest(rest, &WORDS) {
        Some(named) if named.1 >= single.1 => named,
        _ => single,
    })
}

trait Longer {
    fn max_length(self, other: Option<usize>) -> Self;
}

impl Longer for (Kind, usize) {
    fn max_length(self, other: Option<usize>) -> Self {
        other.map_or(self, |length| (Kind::Differential, length))
    }
}

fn differential(rest: &str) -> Option<usize> {
    let after = rest[1..].trim_start_matches([' ', '\t', '\r', '\n']);
    let blank = rest.len() - 1 - after.len();
    if after.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Some(1 + blank + 1);
    }
    let letters = letters(after.strip_prefix('\\')?);
    (letters > 0).then_some(1 + blank + 1 + letters)
}

fn letters(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_alphabetic).count()
}

static COMMANDS: LazyLock<HashMap<&'static str, Kind>> = LazyLock::new(|| {
    let mut table = HashMap::new();
    for (kind, names) in COMMAND_NAMES {
        for name in names.split(' ') {
            table.entry(name).or_insert(kind);
        }
    }
    table
});

const LONGEST_COMMAND: usize = 16;

fn command(rest: &str) -> Option<(Kind, usize)> {
    let after = &rest[1..];
    let run = letters(after);
    if run == 0 {
        return punctuation(rest);
    }
    if let Some(found) = with_braces(rest, run) {
        return Some(found);
    }
    for length in (1..=run.min(LONGEST_COMMAND)).rev() {
        match COMMANDS.get(&after[..length]) {
            None | Some(Kind::Accent) => {}
            Some(kind) => return Some(extended(rest, *kind, 1 + length)),
        }
    }
    None
}

/// A known command, with what may belong to it: a blank after a Greek letter, a percent sign after infinity.
fn extended(rest: &str, kind: Kind, length: usize) -> (Kind, usize) {
    let after = &rest[length..];
    match kind {
        Kind::Greek | Kind::OtherSymbol => (kind, length + usize::from(after.starts_with(' '))),
        Kind::Gamma if after.starts_with(' ') => (Kind::Greek, length + 1),
        Kind::Infinity if after.starts_with("\\%") => (kind, length + 2),
        Kind::Infinity if after.starts_with('%') => (kind, length + 1),
        Kind::LBraceCmd if after.starts_with("\\rbrace") => (Kind::Empty, length + 7),
        _ => (kind, length),
    }
}

fn punctuation(rest: &str) -> Option<(Kind, usize)> {
    if rest.starts_with("\\$\\infty") {
        return Some((Kind::Infinity, "\\$\\infty".len()));
    }
    if rest.starts_with("\\{\\}") {
        return Some((Kind::Empty, 4));
    }
    let kind = match rest.as_bytes().get(1)? {
        b',' | b':' | b';' | b'!' | b'$' => Kind::Skip,
        b'(' => Kind::LParenVisual,
        b')' => Kind::RParenVisual,
        b'{' => Kind::LBraceVisual,
        b'}' => Kind::RBraceVisual,
        b'|' => Kind::Norm,
        b'\\' => Kind::NextRow,
        _ => return None,
    };
    Some((kind, 2))
}

/// Tokens that take a brace group: accents, environments, the number sets, and `\not\equiv`.
fn with_braces(rest: &str, run: usize) -> Option<(Kind, usize)> {
    let name = &rest[1..=run];
    let after = &rest[1 + run..];
    match name {
        "begin" | "end" => return environment(rest, name, after),
        "not" if after.starts_with("\\equiv") => {
            return Some((Kind::Unequal, "\\not\\equiv".len()));
        }
        "mathbb" => {
            let set = match after.get(..3) {
                Some("{N}") => Some(Kind::Naturals),
                Some("{Z}") => Some(Kind::Integers),
                Some("{Q}") => Some(Kind::Rationals),
                Some("{R}") => Some(Kind::Reals),
                Some("{C}") => Some(Kind::Complexes),
                Some("{P}") => Some(Kind::Primes),
                _ => None,
            };
            if let Some(set) = set {
                return Some((set, rest.len() - after.len() + 3));
            }
        }
        _ => {}
    }
    if name != "mathit" && COMMANDS.get(name) != Some(&Kind::Accent) {
        return None;
    }
    let blank = usize::from(after.starts_with([' ', '\t', '\r', '\n']));
    let inner = after[blank..].strip_prefix('{')?;
    let close = inner.find('}')?;
    Some((Kind::Accent, rest.len() - inner.len() + close + 1))
}

fn environment(rest: &str, name: &str, after: &str) -> Option<(Kind, usize)> {
    let inner = after.strip_prefix('{')?;
    let close = inner.find('}')?;
    let starts = name == "begin";
    let mut end = rest.len() - inner.len() + close + 1;
    let kind = match &inner[..close] {
        "matrix" | "pmatrix" | "bmatrix" => {
            if starts {
                Kind::MatrixStart
            } else {
                Kind::MatrixEnd
            }
        }
        "vmatrix" => {
            if starts {
                Kind::DetStart
            } else {
                Kind::DetEnd
            }
        }
        "array" if starts => {
            let columns = rest[end..].strip_prefix('{')?;
            let count = columns.bytes().take_while(|byte| b"clr".contains(byte)).count();
            columns[count..].strip_prefix('}')?;
            end += count + 2;
            Kind::ArrayStart
        }
        "array" => Kind::ArrayEnd,
        _ => return None,
    };
    Some((kind, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Option<Vec<Kind>> {
        Some(tokens(text, 100)?.into_iter().map(|token| token.kind).collect())
    }

    #[test]
    fn the_longest_match_wins() {
        use Kind::{
            Accent, Differential, ExpE, Function, Greek, Infinity, Letter, Name, Number, Percent,
            Scientific,
        };
        assert_eq!(kinds(r"\sinx"), Some(vec![Function, Letter]));
        assert_eq!(kinds("dog"), Some(vec![Differential, Letter]));
        assert_eq!(kinds("3.5E-2"), Some(vec![Scientific]));
        assert_eq!(kinds("3 %"), Some(vec![Percent]));
        assert_eq!(kinds("1.2.3"), Some(vec![Number, Number]));
        assert_eq!(kinds(r"\text{a b}\gamma x"), Some(vec![Accent, Greek, Letter]));
        assert_eq!(kinds(r"\infty\%e"), Some(vec![Infinity, ExpE]));
        assert_eq!(kinds("trace"), Some(vec![Name]));
        assert_eq!(kinds("?"), None);
        assert_eq!(kinds(r"\unknown"), None);
    }
}
