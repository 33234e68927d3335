//! Grammar of collections: element lists, sets, intervals, tuples, relations between names and sets.

use std::collections::HashSet;

use super::ast::{Id, Node, Sign};
use super::grammar::{Found, Parser, Rule};
use super::lex::Kind;

impl Parser<'_> {
    /// One name, or names in parentheses.
    fn names(&mut self, at: u32) -> Vec<(u32, Id)> {
        let mut found = Vec::new();
        if self.kind(at) == Kind::LParen {
            let mut names = Vec::new();
            let mut at = at + 1;
            while is_name(self.kind(at)) {
                let Some(&(end, node)) = self
                    .rule(Rule::Atom, at)
                    .iter()
                    .find(|found| matches!(self.kind(found.0), Kind::Comma | Kind::RParen))
                else {
                    break;
                };
                names.push(node);
                at = end + 1;
                if self.kind(end) == Kind::RParen {
                    let node = self.node(Node::Names(names));
                    found.push((at, node));
                    break;
                }
            }
        }
        if is_name(self.kind(at)) {
            for (end, node) in self.rule(Rule::Atom, at).iter().copied() {
                let node = self.node(Node::Names(vec![node]));
                found.push((end, node));
            }
        }
        found
    }

    pub(super) fn named_elements(&mut self, at: u32, found: &mut Found) {
        for (end, names) in self.names(at) {
            let sign = match self.kind(end) {
                Kind::In => Sign::In,
                Kind::Assign => Sign::Assign,
                _ => continue,
            };
            for (end, elements) in self.rule(Rule::PlainElements, end + 1).iter().copied() {
                let node = self.node(Node::Relation(sign, names, elements));
                found.push(end, node);
            }
        }
    }

    /// Comma lists separated by semicolons. An element ends where a separator or the list's own end stands.
    pub(super) fn elements(&mut self, at: u32, last: Rule, found: &mut Found) {
        struct Frame {
            ends: Vec<(u32, Id)>,
            next: usize,
        }
        let mut lists: Vec<(Kind, Id)> = Vec::new();
        let mut seen = HashSet::new();
        let mut frames = vec![Frame { ends: self.element(at, last), next: 0 }];
        while let Some(frame) = frames.last_mut() {
            let Some(&(end, node)) = frame.ends.get(frame.next) else {
                frames.pop();
                // The element that led into the exhausted frame may itself be the last one.
                if let (Some((_, node)), Some(frame)) = (lists.pop(), frames.last())
                    && let Some(&(end, _)) = frame.ends.get(frame.next - 1)
                {
                    self.finish(&lists, node, end, found);
                }
                continue;
            };
            frame.next += 1;
            let separator = self.kind(end);
            if matches!(separator, Kind::Comma | Kind::Semicolon) && seen.insert(end) {
                lists.push((separator, node));
                let ends = self.element(end + 1, last);
                frames.push(Frame { ends, next: 0 });
            } else {
                self.finish(&lists, node, end, found);
            }
        }
    }

    fn finish(&mut self, lists: &[(Kind, Id)], last: Id, end: u32, found: &mut Found) {
        if found.has(end) {
            return;
        }
        let mut groups = vec![Vec::new()];
        for (separator, node) in lists.iter().copied().chain([(Kind::End, last)]) {
            if let Some(group) = groups.last_mut() {
                group.push(node);
            }
            if separator == Kind::Semicolon {
                groups.push(Vec::new());
            }
        }
        let node = self.node(Node::Elements(groups));
        found.push(end, node);
    }

    fn element(&mut self, at: u32, last: Rule) -> Vec<(u32, Id)> {
        let mut found = Found::default();
        if self.kind(at) != Kind::PlusMinus {
            for (end, left) in self.rule(Rule::Sum, at).iter().copied() {
                if self.kind(end) == Kind::PlusMinus {
                    for (end, right) in self.rule(Rule::Sum, end + 1).iter().copied() {
                        let node = self.node(Node::PlusMinus(Some(left), right));
                        found.push(end, node);
                    }
                }
            }
        } else {
            for (end, right) in self.rule(Rule::Sum, at + 1).iter().copied() {
                let node = self.node(Node::PlusMinus(None, right));
                found.push(end, node);
            }
        }
        for rule in [Rule::SetAtom, last] {
            for (end, node) in self.rule(rule, at).iter().copied() {
                found.push(end, node);
            }
        }
        found.0
    }

    pub(super) fn set_relation(&mut self, at: u32, found: &mut Found) {
        for (end, names) in self.names(at) {
            let sign = match self.kind(end) {
                Kind::In => Sign::In,
                Kind::Assign => Sign::Assign,
                Kind::NotIn => Sign::NotIn,
                _ => continue,
            };
            for (end, set) in self.rule(Rule::SetRelation, end + 1).iter().copied() {
                let node = self.node(Node::Relation(sign, names, set));
                found.push(end, node);
            }
        }
        self.chain(at, [Rule::Minus; 2], Rule::SetRelation, found);
    }

    pub(super) fn set_group(&mut self, at: u32, found: &mut Found) {
        if self.kind(at) == Kind::LParen {
            for (end, node) in self.rule(Rule::Minus, at + 1).iter().copied() {
                if self.kind(end) == Kind::RParen {
                    found.push(end + 1, node);
                }
            }
        }
        for (end, node) in self.rule(Rule::SetAtom, at).iter().copied() {
            found.push(end, node);
        }
    }

    pub(super) fn set_atom(&mut self, at: u32, found: &mut Found) {
        let kind = self.kind(at);
        self.interval(at, found);
        match kind {
            Kind::Naturals
            | Kind::Integers
            | Kind::Rationals
            | Kind::Reals
            | Kind::Complexes
            | Kind::Primes
            | Kind::Empty => {
                let node = self.node(Node::SetName(Some(at)));
                found.push(at + 1, node);
            }
            Kind::LBrace if self.kind(at + 1) == Kind::RBrace => {
                let node = self.node(Node::SetName(None));
                found.push(at + 2, node);
            }
            _ => {}
        }
        let (open, close) = match kind {
            Kind::LParen => (at + 1, Kind::RParen),
            Kind::LParenVisual => (at + 1, Kind::RParenVisual),
            Kind::LBracket => (at + 1, Kind::RBracket),
            Kind::LBrace => (at + 1, Kind::RBrace),
            Kind::LBraceVisual => (at + 1, Kind::RBraceVisual),
            Kind::Boxed if self.kind(at + 1) == Kind::LBrace => (at + 2, Kind::RBrace),
            _ => return,
        };
        for (end, elements) in self.rule(Rule::Elements, open).iter().copied() {
            if self.kind(end) == close {
                let node = match kind {
                    Kind::Boxed => Node::BoxedSet(elements),
                    Kind::LBrace | Kind::LBraceVisual => Node::Braces(elements),
                    _ => Node::Tuple(elements),
                };
                let node = self.node(node);
                found.push(end + 1, node);
            }
        }
    }

    fn interval(&mut self, at: u32, found: &mut Found) {
        let left_open = match self.kind(at) {
            Kind::LParen | Kind::LParenVisual | Kind::LGroup => true,
            Kind::LBracket | Kind::LBrack => false,
            _ => return,
        };
        for (middle, from) in self.rule(Rule::Sum, at + 1).iter().copied() {
            if self.kind(middle) != Kind::Comma {
                continue;
            }
            for (end, to) in self.rule(Rule::Sum, middle + 1).iter().copied() {
                let right_open = match self.kind(end) {
                    Kind::RParen | Kind::RParenVisual | Kind::RGroup => true,
                    Kind::RBracket | Kind::RBrack => false,
                    _ => continue,
                };
                let node = self.node(Node::Interval { left_open, right_open, from, to });
                found.push(end + 1, node);
            }
        }
    }
}

fn is_name(kind: Kind) -> bool {
    matches!(kind, Kind::Letter | Kind::Greek | Kind::OtherSymbol | Kind::Accent)
}
