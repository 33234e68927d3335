//! Grammar of expressions: powers, postfix signs, brackets, fractions, matrices, symbols with their scripts.

use super::ast::{Id, Node, Wrap};
use super::grammar::{DEPTH, Found, Parser, Rule, closer};
use super::lex::Kind;

impl Parser<'_> {
    pub(super) fn postfix(&mut self, at: u32, power: Rule, found: &mut Found) {
        for (end, node) in self.rule(power, at).iter().copied() {
            self.postfix_from(end, node, found);
        }
    }

    fn postfix_from(&mut self, at: u32, node: Id, found: &mut Found) {
        let mut way = vec![(at, node)];
        let mut place = (at, node);
        loop {
            let (at, node) = place;
            let wrapped = match self.kind(at) {
                Kind::Bang => self.node(Node::Wrapped(Wrap::Factorial, node)),
                Kind::Transpose => self.node(Node::Wrapped(Wrap::Transpose, node)),
                Kind::Degree => node,
                Kind::Bar => {
                    // Considers all ends: an evaluation bar is rare and has few.
                    for (end, node) in self.eval_at(at, node) {
                        self.postfix_from(end, node, found);
                    }
                    break;
                }
                _ => break,
            };
            place = (at + 1, wrapped);
            way.push(place);
        }
        for (end, node) in way.into_iter().rev() {
            found.push(end, node);
        }
    }

    fn eval_at(&mut self, at: u32, node: Id) -> Vec<(u32, Id)> {
        let mut found = Vec::new();
        let upper = self.place(at + 1, Kind::Caret);
        for (end, up) in &upper {
            found.push((*end, self.node(Node::EvalAt(node, None, Some(*up)))));
        }
        for (end, low) in self.place(at + 1, Kind::Underscore) {
            found.push((end, self.node(Node::EvalAt(node, Some(low), None))));
        }
        for (end, up) in upper {
            for (end, low) in self.place(end, Kind::Underscore) {
                found.push((end, self.node(Node::EvalAt(node, Some(low), Some(up)))));
            }
        }
        found
    }

    /// `_{expression}` or `_{a = b}` after an evaluation bar.
    fn place(&mut self, at: u32, script: Kind) -> Vec<(u32, Id)> {
        if self.kind(at) != script || self.kind(at + 1) != Kind::LBrace {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (end, node) in self.rule(Rule::Sum, at + 2).iter().copied() {
            if self.kind(end) == Kind::RBrace {
                found.push((end + 1, node));
            }
        }
        found.extend(
            self.equality(at + 2)
                .into_iter()
                .filter(|found| self.kind(found.0) == Kind::RBrace)
                .map(|found| (found.0 + 1, found.1)),
        );
        found
    }

    pub(super) fn equality(&mut self, at: u32) -> Vec<(u32, Id)> {
        let mut found = Vec::new();
        for (end, left) in self.rule(Rule::Sum, at).iter().copied() {
            if matches!(self.kind(end), Kind::Assign | Kind::Equal) {
                for (end, right) in self.rule(Rule::Sum, end + 1).iter().copied() {
                    found.push((end, self.node(Node::Equality(left, right))));
                }
            }
        }
        found
    }

    pub(super) fn power(&mut self, at: u32, whole: Rule, found: &mut Found) {
        let mut bases = Found::default();
        self.component(at, whole, &mut bases);
        for (end, node) in bases.0 {
            self.power_from(end, node, found);
        }
    }

    fn power_from(&mut self, at: u32, base: Id, found: &mut Found) {
        if self.depth < DEPTH && self.kind(at) == Kind::Caret {
            self.depth += 1;
            let mut exponents = Found::default();
            for (end, node) in self.rule(Rule::Sup, at).iter().copied() {
                // A subscript after the exponent is parsed and ignored.
                for (end, _) in self.rule(Rule::Sub, end).iter().copied() {
                    exponents.push(end, node);
                }
                exponents.push(end, node);
            }
            for (end, exponent) in exponents.0 {
                if !found.has(end) {
                    let node = self.node(Node::Power(base, exponent));
                    self.power_from(end, node, found);
                }
            }
            self.depth -= 1;
        }
        found.push(at, base);
    }

    fn component(&mut self, at: u32, whole: Rule, found: &mut Found) {
        let kind = self.kind(at);
        if let Some((close, wrap)) = closer(kind) {
            for (end, node) in self.rule(Rule::Sum, at + 1).iter().copied() {
                if self.kind(end) == close {
                    let node = match wrap {
                        Some(wrap) => self.node(Node::Wrapped(wrap, node)),
                        None => node,
                    };
                    found.push(end + 1, node);
                }
            }
        }
        match kind {
            Kind::Phantom | Kind::Boxed => {
                for (end, node) in self.braced(at + 1) {
                    found.push(end, node);
                }
            }
            Kind::Frac => self.frac(at, found),
            Kind::LBrace => self.choose(at, found),
            Kind::Binom => {
                for (middle, upper) in self.braced(at + 1) {
                    for (end, lower) in self.braced(middle) {
                        let node = self.node(Node::Binom(upper, lower));
                        found.push(end, node);
                    }
                }
            }
            Kind::MatrixStart => self.matrix(at, Kind::MatrixEnd, found),
            Kind::ArrayStart => self.matrix(at, Kind::ArrayEnd, found),
            Kind::DetStart => self.matrix(at, Kind::DetEnd, found),
            _ => {}
        }
        if whole == Rule::Power {
            for (end, node) in self.rule(Rule::Function, at).iter().copied() {
                found.push(end, node);
            }
        }
        for (end, node) in self.rule(Rule::Atom, at).iter().copied() {
            found.push(end, node);
        }
    }

    /// `{ expression }`.
    pub(super) fn braced(&mut self, at: u32) -> Vec<(u32, Id)> {
        self.bracketed(at, Kind::LBrace, Kind::RBrace)
    }

    pub(super) fn bracketed(&mut self, at: u32, open: Kind, close: Kind) -> Vec<(u32, Id)> {
        if self.kind(at) != open {
            return Vec::new();
        }
        let ends = self.rule(Rule::Sum, at + 1);
        ends.iter()
            .filter(|found| self.kind(found.0) == close)
            .map(|found| (found.0 + 1, found.1))
            .collect()
    }

    fn frac(&mut self, at: u32, found: &mut Found) {
        for (middle, upper) in self.braced(at + 1) {
            for (end, lower) in self.braced(middle) {
                let (upper_span, lower_span) = ((at + 2, middle - 1), (middle + 1, end - 1));
                let node = self.node(Node::Frac { upper, lower, upper_span, lower_span });
                found.push(end, node);
            }
        }
    }

    fn choose(&mut self, at: u32, found: &mut Found) {
        for (end, upper) in self.rule(Rule::Sum, at + 1).iter().copied() {
            if self.kind(end) == Kind::Choose {
                for (end, lower) in self.rule(Rule::Sum, end + 1).iter().copied() {
                    if self.kind(end) == Kind::RBrace {
                        let node = self.node(Node::Binom(upper, lower));
                        found.push(end + 1, node);
                    }
                }
            }
        }
    }

    /// Rows of cells. Cells end where `&`, `\\` or the end command stands, so one way through is enough.
    fn matrix(&mut self, at: u32, close: Kind, found: &mut Found) {
        let mut rows: Vec<Vec<Id>> = vec![Vec::new()];
        let mut at = at + 1;
        loop {
            let ends = self.rule(Rule::Sum, at);
            let cell = ends.iter().find(|found| {
                let kind = self.kind(found.0);
                kind == close || matches!(kind, Kind::NextColumn | Kind::NextRow)
            });
            let Some(&(end, node)) = cell else { return };
            if let Some(row) = rows.last_mut() {
                row.push(node);
            }
            let mut kind = self.kind(end);
            at = end + 1;
            if kind == Kind::NextRow && self.kind(at) == close {
                kind = close;
                at += 1;
            }
            if kind == close {
                break;
            }
            if kind == Kind::NextRow {
                rows.push(Vec::new());
            }
        }
        let node = if close == Kind::DetEnd { Node::Determinant(rows) } else { Node::Matrix(rows) };
        let node = self.node(node);
        found.push(at, node);
    }

    pub(super) fn atom(&mut self, at: u32, found: &mut Found) {
        match self.kind(at) {
            Kind::Letter | Kind::Greek | Kind::OtherSymbol | Kind::Accent => self.symbol(at, found),
            Kind::Number => {
                let node = self.node(Node::Token(at));
                for (end, _) in self.rule(Rule::Sub, at + 1).iter().copied() {
                    found.push(end, node);
                }
                found.push(at + 1, node);
            }
            Kind::Infinity
            | Kind::Partial
            | Kind::Percent
            | Kind::Scientific
            | Kind::BigE
            | Kind::Differential
            | Kind::Gamma => {
                let node = self.node(Node::Token(at));
                found.push(at + 1, node);
            }
            _ => {}
        }
    }

    fn symbol(&mut self, at: u32, found: &mut Found) {
        let token = at;
        let (subs, sups) = (self.rule(Rule::Sub, at + 1), self.rule(Rule::Sup, at + 1));
        for &(middle, sup) in sups.iter() {
            for &(end, _) in self.rule(Rule::Sub, middle).iter() {
                let node =
                    self.node(Node::Symbol { token, sub: Some((middle, end)), sup: Some(sup) });
                found.push(end, node);
            }
        }
        for &(middle, _) in subs.iter() {
            for &(end, sup) in self.rule(Rule::Sup, middle).iter() {
                let node =
                    self.node(Node::Symbol { token, sub: Some((at + 1, middle)), sup: Some(sup) });
                found.push(end, node);
            }
        }
        for &(end, _) in subs.iter() {
            let node = self.node(Node::Symbol { token, sub: Some((at + 1, end)), sup: None });
            found.push(end, node);
        }
        for &(end, sup) in sups.iter() {
            let node = self.node(Node::Symbol { token, sub: None, sup: Some(sup) });
            found.push(end, node);
        }
        let node = self.node(Node::Symbol { token, sub: None, sup: None });
        found.push(at + 1, node);
    }

    /// `_x`, `_{...}` (also a list) or `^x`, `^{...}`.
    pub(super) fn script(&mut self, at: u32, sign: Kind, found: &mut Found) {
        if self.kind(at) != sign {
            return;
        }
        for (end, node) in self.rule(Rule::Atom, at + 1).iter().copied() {
            found.push(end, node);
        }
        for (end, node) in self.braced(at + 1) {
            found.push(end, node);
        }
        if sign == Kind::Underscore && self.kind(at + 1) == Kind::LBrace {
            for (end, _) in self.rule(Rule::Arguments, at + 2).iter().copied() {
                if self.kind(end) == Kind::RBrace {
                    let node = self.node(Node::Names(Vec::new()));
                    found.push(end + 1, node);
                }
            }
        }
    }

    /// `expression (, expression)*`; only its extent matters.
    pub(super) fn arguments(&mut self, at: u32, found: &mut Found) {
        let mut at = at;
        loop {
            let ends = self.rule(Rule::Sum, at);
            for &(end, node) in ends.iter() {
                if self.kind(end) != Kind::Comma {
                    found.push(end, node);
                }
            }
            match ends.iter().find(|found| self.kind(found.0) == Kind::Comma) {
                Some(&(end, _)) => at = end + 1,
                None => return,
            }
        }
    }

    /// Content of the parentheses of `f(...)`: one atom, or several arguments, or one and a comma.
    pub(super) fn call_arguments(&mut self, at: u32, found: &mut Found) {
        for (end, node) in self.rule(Rule::Atom, at).iter().copied() {
            found.push(end, node);
        }
        for (end, node) in self.rule(Rule::Sum, at).iter().copied() {
            if self.kind(end) == Kind::Comma {
                found.push(end + 1, node);
                for (end, node) in self.rule(Rule::Arguments, end + 1).iter().copied() {
                    found.push(end, node);
                }
            }
        }
    }
}
