//! Grammar of functions: named ones, symbols applied to arguments, roots, sums, limits, integrals.

use super::ast::{Id, Node};
use super::grammar::{Found, Parser, Rule};
use super::lex::Kind;

impl Parser<'_> {
    pub(super) fn function(&mut self, at: u32, found: &mut Found) {
        match self.kind(at) {
            Kind::Function | Kind::Gamma => self.named_function(at, at + 1, found),
            Kind::ManyFunction => self.many_function(at, at + 1, found),
            Kind::OperatorName
                if self.kind(at + 1) == Kind::LBrace && self.kind(at + 3) == Kind::RBrace =>
            {
                match self.kind(at + 2) {
                    Kind::Name => self.named_function(at + 2, at + 4, found),
                    Kind::ManyName => self.many_function(at + 2, at + 4, found),
                    _ => {}
                }
            }
            Kind::Letter | Kind::Greek | Kind::OtherSymbol | Kind::Accent => self.call(at, found),
            Kind::Int => self.integral(at, found),
            Kind::Sqrt => self.root(at, found),
            Kind::Sum | Kind::Prod => self.series(at, found),
            Kind::Lim => self.limit(at, found),
            Kind::ExpE => {
                for (end, sup) in self.rule(Rule::Sup, at + 1).iter().copied() {
                    let node = self.node(Node::Exponential(Some(sup)));
                    found.push(end, node);
                }
                let node = self.node(Node::Exponential(None));
                found.push(at + 1, node);
            }
            _ => {}
        }
    }

    /// Optional scripts in either order, those that take more first.
    fn scripts(&mut self, at: u32) -> Vec<(u32, Option<Id>, Option<Id>)> {
        let mut found = Vec::new();
        for (sub_first, first, second) in
            [(true, Rule::Sub, Rule::Sup), (false, Rule::Sup, Rule::Sub)]
        {
            for (middle, one) in self.rule(first, at).iter().copied() {
                for (end, two) in self.rule(second, middle).iter().copied() {
                    found.push(if sub_first {
                        (end, Some(one), Some(two))
                    } else {
                        (end, Some(two), Some(one))
                    });
                }
                found.push(if sub_first {
                    (middle, Some(one), None)
                } else {
                    (middle, None, Some(one))
                });
            }
            for (end, two) in self.rule(second, at).iter().copied() {
                found.push(if sub_first { (end, None, Some(two)) } else { (end, Some(two), None) });
            }
            found.push((at, None, None));
        }
        found
    }

    fn named_function(&mut self, name: u32, at: u32, found: &mut Found) {
        for (after, sub, sup) in self.scripts(at) {
            for (end, arg) in self.bracketed(after, Kind::LParen, Kind::RParen) {
                let node = self.node(Node::Function { name, sub, sup, arg });
                found.push(end, node);
            }
            for (end, arg) in self.rule(Rule::PlainTerm, after).iter().copied() {
                let node = self.node(Node::Function { name, sub, sup, arg });
                found.push(end, node);
            }
        }
    }

    fn many_function(&mut self, name: u32, at: u32, found: &mut Found) {
        for (after, _, sup) in self.scripts(at) {
            if self.kind(after) == Kind::LParen {
                for (end, _) in self.rule(Rule::Arguments, after + 1).iter().copied() {
                    if self.kind(end) == Kind::RParen {
                        let node =
                            self.node(Node::ManyFunction { name, sup, args: (after + 1, end) });
                        found.push(end + 1, node);
                    }
                }
            }
            // Without parentheses the form has no meaning, which an empty range marks.
            for (end, _) in self.rule(Rule::PlainTerm, after).iter().copied() {
                let node = self.node(Node::ManyFunction { name, sup, args: (after, after) });
                found.push(end, node);
            }
        }
    }

    /// A symbol applied to arguments: `f(x)`, `f^2[x, y]`, `f{(x)}`.
    fn call(&mut self, at: u32, found: &mut Found) {
        let mut names: Vec<u32> =
            self.rule(Rule::Sub, at + 1).iter().map(|found| found.0).collect();
        names.push(at + 1);
        for name_end in names {
            let mut starts: Vec<(u32, Option<Id>)> = self
                .rule(Rule::Sup, name_end)
                .iter()
                .map(|found| (found.0, Some(found.1)))
                .collect();
            starts.push((name_end, None));
            for (after, sup) in starts {
                let braced = u32::from(self.kind(after) == Kind::LBrace);
                let close = match self.kind(after + braced) {
                    Kind::LParen => Kind::RParen,
                    Kind::LBracket => Kind::RBracket,
                    _ => continue,
                };
                let first = after + braced + 1;
                for (end, _) in self.rule(Rule::CallArguments, first).iter().copied() {
                    if self.kind(end) == close
                        && (braced == 0 || self.kind(end + 1) == Kind::RBrace)
                    {
                        let node =
                            self.node(Node::Call { name: (at, name_end), sup, args: (first, end) });
                        found.push(end + 1 + braced, node);
                    }
                }
            }
        }
    }

    fn integral(&mut self, at: u32, found: &mut Found) {
        let bounds = self.scripts(at + 1);
        for (after, lower, upper) in bounds {
            if lower.is_some() != upper.is_some() {
                continue;
            }
            let bodies = self.rule(Rule::OpenSum, after);
            for (end, body) in bodies.iter().copied() {
                if self.kind(end) == Kind::Differential {
                    let node = self.node(Node::Integral {
                        lower,
                        upper,
                        body: Some(body),
                        variable: Some(end),
                    });
                    found.push(end + 1, node);
                }
            }
            if self.kind(after) == Kind::Differential {
                let node =
                    self.node(Node::Integral { lower, upper, body: None, variable: Some(after) });
                found.push(after + 1, node);
            }
            for (end, body) in bodies.iter().copied() {
                let node =
                    self.node(Node::Integral { lower, upper, body: Some(body), variable: None });
                found.push(end, node);
            }
        }
    }

    fn root(&mut self, at: u32, found: &mut Found) {
        let mut starts: Vec<(u32, Option<Id>)> = self
            .bracketed(at + 1, Kind::LBracket, Kind::RBracket)
            .into_iter()
            .map(|(end, degree)| (end, Some(degree)))
            .collect();
        starts.push((at + 1, None));
        for (after, degree) in starts {
            for (end, base) in self.braced(after) {
                let node = self.node(Node::Root { degree, base });
                found.push(end, node);
            }
        }
    }

    fn series(&mut self, at: u32, found: &mut Found) {
        let mut heads = Vec::new();
        for (middle, from) in self.running(at + 1) {
            for (end, to) in self.rule(Rule::Sup, middle).iter().copied() {
                heads.push((end, from, to));
            }
        }
        for (middle, to) in self.rule(Rule::Sup, at + 1).iter().copied() {
            for (end, from) in self.running(middle) {
                heads.push((end, from, to));
            }
        }
        for (after, from, to) in heads {
            for (end, body) in self.rule(Rule::OpenTerm, after).iter().copied() {
                let node = self.node(Node::Series { command: at, from, to, body });
                found.push(end, node);
            }
        }
    }

    fn running(&mut self, at: u32) -> Vec<(u32, Id)> {
        if self.kind(at) != Kind::Underscore || self.kind(at + 1) != Kind::LBrace {
            return Vec::new();
        }
        let ends = self.equality(at + 2);
        ends.into_iter()
            .filter(|found| self.kind(found.0) == Kind::RBrace)
            .map(|found| (found.0 + 1, found.1))
            .collect()
    }

    fn limit(&mut self, at: u32, found: &mut Found) {
        let opens = self.kind(at + 1) == Kind::Underscore && self.kind(at + 2) == Kind::LBrace;
        let named = matches!(self.kind(at + 3), Kind::Letter | Kind::Greek | Kind::OtherSymbol);
        if !(opens && named && self.kind(at + 4) == Kind::Approach) {
            return;
        }
        for (end, place) in self.rule(Rule::Sum, at + 5).iter().copied() {
            let sided = self.kind(end) == Kind::Caret
                && self.kind(end + 1) == Kind::LBrace
                && matches!(self.kind(end + 2), Kind::Add | Kind::Sub)
                && self.kind(end + 3) == Kind::RBrace;
            let close = if sided { end + 4 } else { end };
            if self.kind(close) == Kind::RBrace {
                for (end, body) in self.rule(Rule::OpenTerm, close + 1).iter().copied() {
                    let node = self.node(Node::Limit { variable: at + 3, place, body });
                    found.push(end, node);
                }
            }
        }
    }
}
