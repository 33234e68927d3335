//! Parses plain arithmetic such as `3*(4+5)/2` or `2^10` as Python would.
//!
//! Digits, operators and parentheses only.

use super::convert::number;
use super::expr::{Expr, Fun};

/// Deepest nesting of parentheses and signs.
const DEPTH: usize = 100;

/// The expression, unevaluated; `None` where Python would reject it.
pub(super) fn read(text: &str) -> Option<Expr> {
    let text = text.replace('\n', " ").replace('^', "**");
    let text = text.trim_matches(super::is_space);
    let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
    let found = reader.sum(0)?;
    reader.blank();
    (reader.at == reader.bytes.len()).then_some(found)
}

struct Reader<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl Reader<'_> {
    fn blank(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn take(&mut self, sign: &str) -> bool {
        self.blank();
        let found = self.bytes[self.at..].starts_with(sign.as_bytes())
            && !(sign.len() == 1
                && self.bytes[self.at..].starts_with(&sign.as_bytes().repeat(2))
                && matches!(sign, "*" | "/"));
        if found {
            self.at += sign.len();
        }
        found
    }

    fn sum(&mut self, depth: usize) -> Option<Expr> {
        if depth > DEPTH {
            return None;
        }
        let mut left = self.product(depth)?;
        loop {
            if self.take("+") {
                left = Expr::plus(left, self.product(depth)?);
            } else if self.take("-") {
                left = Expr::plus(left, Expr::times(Expr::int(-1), self.product(depth)?));
            } else {
                return Some(left);
            }
        }
    }

    fn product(&mut self, depth: usize) -> Option<Expr> {
        let mut left = self.signed(depth)?;
        loop {
            if self.take("//") {
                let quotient = Expr::Mul(vec![left, Expr::pow(self.signed(depth)?, Expr::int(-1))]);
                left = Expr::Apply(Fun::Floor, vec![quotient]);
            } else if self.take("*") {
                left = Expr::times(left, self.signed(depth)?);
            } else if self.take("/") {
                left = Expr::Mul(vec![left, Expr::pow(self.signed(depth)?, Expr::int(-1))]);
            } else {
                return Some(left);
            }
        }
    }

    fn signed(&mut self, depth: usize) -> Option<Expr> {
        if depth > DEPTH {
            return None;
        }
        if self.take("-") {
            return Some(Expr::times(Expr::int(-1), self.signed(depth + 1)?));
        }
        if self.take("+") {
            return self.signed(depth + 1);
        }
        let base = self.atom(depth)?;
        if self.take("**") {
            return Some(Expr::pow(base, self.signed(depth + 1)?));
        }
        Some(base)
    }

    fn atom(&mut self, depth: usize) -> Option<Expr> {
        if self.take("(") {
            let inner = self.sum(depth + 1)?;
            return self.take(")").then_some(inner);
        }
        self.blank();
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.') {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).ok()?;
        // Python rejects a leading zero before other digits.
        if text.len() > 1
            && text.starts_with('0')
            && !text.contains('.')
            && text.bytes().any(|byte| byte != b'0')
        {
            return None;
        }
        number(
            text.strip_suffix('.').map_or(text.to_owned(), |whole| format!("{whole}.0")).as_str(),
        )
        .filter(|_| !text.is_empty())
    }
}
