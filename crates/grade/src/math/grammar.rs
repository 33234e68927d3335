//! Recognises the sentences of answers: sums, products, functions, relations, sets. Alternatives are tried in
//! order and the first tree that spans the whole answer is taken, whatever the lookahead it takes to know.
//!
//! Each rule yields all places where it may end, best first, and is computed once per place, so that time stays
//! polynomial; a budget and a depth bound stop hostile answers. It gives no meaning to what it finds.

use std::collections::HashMap;
use std::rc::Rc;

use super::ast::{Id, Node, Operator, SetOp, Sign, Wrap};
use super::lex::{Kind, Token};

/// Where a rule may end, and the node it then stands for; best first, no place twice.
type Ends = Rc<Vec<(u32, Id)>>;

/// A finished parse.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    pub(super) root: Id,
}

/// Parses a whole answer.
pub(super) fn parse(tokens: &[Token]) -> Option<Tree> {
    let mut parser = Parser { tokens, nodes: Vec::new(), memo: HashMap::new(), steps: 0, depth: 0 };
    let end = u32::try_from(tokens.len()).ok()?;
    for rule in [Rule::NamedElements, Rule::Elements, Rule::SetRelation] {
        let found = parser.rule(rule, 0);
        if let Some((_, root)) = found.iter().find(|found| found.0 == end) {
            return Some(Tree { root: *root, nodes: parser.nodes });
        }
    }
    None
}

/// Rules that are remembered per place. `Open` rules may be followed by another factor (the argument of a function
/// without parentheses); the others may not, which settles most questions at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    NamedElements,
    Elements,
    PlainElements,
    SetRelation,
    Minus,
    Union,
    Intersection,
    SetGroup,
    SetAtom,
    Relation,
    Sum,
    OpenSum,
    Term,
    OpenTerm,
    PlainTerm,
    Unary,
    OpenUnary,
    PlainUnary,
    Postfix,
    PlainPostfix,
    Power,
    PlainPower,
    Atom,
    Sub,
    Sup,
    Function,
    Arguments,
    CallArguments,
}

const BUDGET: usize = 400_000;
const DEPTH: usize = 420;

pub(super) struct Parser<'t> {
    tokens: &'t [Token],
    nodes: Vec<Node>,
    memo: HashMap<(Rule, u32), Ends>,
    steps: usize,
    depth: usize,
}

/// Collects ends, the first for each place.
#[derive(Default)]
pub(super) struct Found(pub(super) Vec<(u32, Id)>);

impl Found {
    pub(super) fn push(&mut self, end: u32, node: Id) {
        if !self.0.iter().any(|found| found.0 == end) {
            self.0.push((end, node));
        }
    }
}

/// How a chain goes on at a token.
#[derive(Clone, Copy)]
enum Joint {
    Operator(Operator),
    Sign(Sign),
    Set(SetOp),
    Factor,
}

impl Joint {
    /// Tokens the joint itself takes.
    fn width(self) -> u32 {
        u32::from(!matches!(self, Self::Factor))
    }

    pub(super) fn node(self, left: Id, right: Id) -> Node {
        match self {
            Self::Operator(operator) => Node::Binary(operator, left, right),
            Self::Sign(sign) => Node::Relation(sign, left, right),
            Self::Set(operation) => Node::SetBinary(operation, left, right),
            Self::Factor => Node::Product(left, right),
        }
    }
}

/// The joint that `kind` makes in a chain of `whole`.
fn joint(kind: Kind, whole: Rule) -> Option<Joint> {
    Some(match whole {
        Rule::Minus if kind == Kind::SetMinus => Joint::Set(SetOp::Minus),
        Rule::Union if kind == Kind::Union => Joint::Set(SetOp::Union),
        Rule::Intersection if kind == Kind::Intersection => Joint::Set(SetOp::Intersection),
        Rule::SetRelation if matches!(kind, Kind::Superset | Kind::Subset) => Joint::Sign(sign(kind)?),
        Rule::Relation if !matches!(kind, Kind::Superset | Kind::Subset | Kind::NotIn) => Joint::Sign(sign(kind)?),
        Rule::Sum | Rule::OpenSum => Joint::Operator(match kind {
            Kind::Add => Operator::Add,
            Kind::Sub => Operator::Sub,
            _ => return None,
        }),
        Rule::Term | Rule::OpenTerm | Rule::PlainTerm => Joint::Operator(match kind {
            Kind::Mul => Operator::Mul,
            Kind::Div => Operator::Div,
            Kind::Mod => Operator::Mod,
            _ => return None,
        }),
        Rule::Unary | Rule::OpenUnary if starts_factor(kind) => Joint::Factor,
        Rule::PlainUnary if starts_factor(kind) => Joint::Factor,
        _ => return None,
    })
}

fn sign(kind: Kind) -> Option<Sign> {
    Some(match kind {
        Kind::In => Sign::In,
        Kind::NotIn => Sign::NotIn,
        Kind::Assign => Sign::Assign,
        Kind::Equal => Sign::Equal,
        Kind::Approx => Sign::Approx,
        Kind::Less => Sign::Less,
        Kind::LessEq => Sign::LessEq,
        Kind::Greater => Sign::Greater,
        Kind::GreaterEq => Sign::GreaterEq,
        Kind::Unequal => Sign::Unequal,
        Kind::Superset => Sign::Superset,
        Kind::Subset => Sign::Subset,
        _ => return None,
    })
}

fn starts_factor(kind: Kind) -> bool {
    closes_too(kind)
        || closer(kind).is_some()
        || matches!(
            kind,
            Kind::Phantom
                | Kind::Boxed
                | Kind::Function
                | Kind::Gamma
                | Kind::ManyFunction
                | Kind::OperatorName
                | Kind::Letter
                | Kind::Greek
                | Kind::OtherSymbol
                | Kind::Accent
                | Kind::Int
                | Kind::Sqrt
                | Kind::Sum
                | Kind::Prod
                | Kind::Lim
                | Kind::ExpE
                | Kind::Infinity
                | Kind::Partial
                | Kind::Number
                | Kind::Percent
                | Kind::Scientific
                | Kind::BigE
                | Kind::Differential
                | Kind::Frac
                | Kind::Binom
                | Kind::MatrixStart
                | Kind::ArrayStart
                | Kind::DetStart
        )
}

/// Bars open and close alike, so a factor that could go on may also have to stop before one.
fn closes_too(kind: Kind) -> bool {
    matches!(kind, Kind::Bar | Kind::Vert | Kind::Norm)
}

/// What closes the bracket that `kind` opens around one expression.
fn closer(kind: Kind) -> Option<(Kind, Option<Wrap>)> {
    Some(match kind {
        Kind::LParen => (Kind::RParen, None),
        Kind::LGroup => (Kind::RGroup, None),
        Kind::LBrace => (Kind::RBrace, None),
        Kind::LBracket => (Kind::RBracket, None),
        Kind::LBraceVisual => (Kind::RBraceVisual, None),
        Kind::LBraceCmd => (Kind::RBraceCmd, None),
        Kind::LBrack => (Kind::RBrack, None),
        Kind::Norm => (Kind::Norm, Some(Wrap::Norm)),
        Kind::Bar => (Kind::Bar, Some(Wrap::Abs)),
        Kind::LVert => (Kind::RVert, Some(Wrap::Abs)),
        Kind::Vert => (Kind::Vert, Some(Wrap::Abs)),
        Kind::LAngle => (Kind::RAngle, Some(Wrap::Angle)),
        Kind::LFloor => (Kind::RFloor, Some(Wrap::Floor)),
        Kind::LlCorner => (Kind::LrCorner, Some(Wrap::Floor)),
        Kind::LCeil => (Kind::RCeil, Some(Wrap::Ceil)),
        Kind::UlCorner => (Kind::UrCorner, Some(Wrap::Ceil)),
        _ => return None,
    })
}

impl Parser<'_> {
    pub(super) fn kind(&self, at: u32) -> Kind {
        self.tokens.get(at as usize).map_or(Kind::End, |token| token.kind)
    }

    pub(super) fn node(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).unwrap_or(0)
    }

    pub(super) fn rule(&mut self, rule: Rule, at: u32) -> Ends {
        if let Some(known) = self.memo.get(&(rule, at)) {
            return Rc::clone(known);
        }
        self.steps += 1;
        if self.steps > BUDGET || self.depth > DEPTH {
            return Ends::default();
        }
        self.depth += 1;
        let mut found = Found::default();
        self.compute(rule, at, &mut found);
        self.depth -= 1;
        self.steps += found.0.len();
        let ends = Rc::new(found.0);
        self.memo.insert((rule, at), Rc::clone(&ends));
        ends
    }

    fn compute(&mut self, rule: Rule, at: u32, found: &mut Found) {
        match rule {
            Rule::NamedElements => self.named_elements(at, found),
            Rule::Elements => self.elements(at, Rule::Relation, found),
            Rule::PlainElements => self.elements(at, Rule::Sum, found),
            Rule::SetRelation => self.set_relation(at, found),
            Rule::Minus => self.chain(at, [Rule::Union; 2], rule, found),
            Rule::Union => self.chain(at, [Rule::Intersection; 2], rule, found),
            Rule::Intersection => self.chain(at, [Rule::SetGroup; 2], rule, found),
            Rule::SetGroup => self.set_group(at, found),
            Rule::SetAtom => self.set_atom(at, found),
            Rule::Relation => self.chain(at, [Rule::Sum; 2], rule, found),
            Rule::Sum => self.chain(at, [Rule::Term; 2], rule, found),
            Rule::OpenSum => self.chain(at, [Rule::OpenTerm; 2], rule, found),
            Rule::Term => self.chain(at, [Rule::Unary; 2], rule, found),
            Rule::OpenTerm => self.chain(at, [Rule::OpenUnary; 2], rule, found),
            Rule::PlainTerm => self.chain(at, [Rule::PlainUnary; 2], rule, found),
            Rule::Unary | Rule::OpenUnary => self.unary(at, [Rule::Postfix; 2], rule, found),
            Rule::PlainUnary => self.unary(at, [Rule::Postfix, Rule::PlainPostfix], rule, found),
            Rule::Postfix => self.postfix(at, Rule::Power, found),
            Rule::PlainPostfix => self.postfix(at, Rule::PlainPower, found),
            Rule::Power | Rule::PlainPower => self.power(at, rule, found),
            Rule::Atom => self.atom(at, found),
            Rule::Sub => self.script(at, Kind::Underscore, found),
            Rule::Sup => self.script(at, Kind::Caret, found),
            Rule::Function => self.function(at, found),
            Rule::Arguments => self.arguments(at, found),
            Rule::CallArguments => self.call_arguments(at, found),
        }
    }

    /// `first (joint part)*`, leaning left, the longest way first.
    pub(super) fn chain(&mut self, at: u32, parts: [Rule; 2], whole: Rule, found: &mut Found) {
        let mut seen: Vec<u32> = Vec::new();
        for (end, node) in self.rule(parts[0], at).iter().copied() {
            if !seen.contains(&end) {
                seen.push(end);
                self.chain_from(end, node, parts[1], whole, &mut seen, found);
            }
        }
    }

    /// Goes on from one first part. A place reached twice is followed once: the earlier way there is the better
    /// one whatever comes after it. An explicit stack keeps long chains from using the program's own.
    fn chain_from(&mut self, at: u32, first: Id, part: Rule, whole: Rule, seen: &mut Vec<u32>, found: &mut Found) {
        struct Frame {
            at: u32,
            node: Id,
            ends: Ends,
            next: usize,
        }
        let closed = whole == Rule::Unary;
        let mut frames = Vec::new();
        let mut pending = Some((at, first));
        loop {
            if let Some((at, node)) = pending.take() {
                let ends = match joint(self.kind(at), whole) {
                    Some(joint) => self.rule(part, at + joint.width()),
                    None => Ends::default(),
                };
                frames.push(Frame { at, node, ends, next: 0 });
            }
            let Some(frame) = frames.last_mut() else { return };
            let (at, left) = (frame.at, frame.node);
            let kind = self.kind(at);
            if let Some(&(end, right)) = frame.ends.get(frame.next) {
                frame.next += 1;
                if !seen.contains(&end)
                    && let Some(joint) = joint(kind, whole)
                {
                    seen.push(end);
                    self.steps += 1;
                    let node = self.node(joint.node(left, right));
                    pending = Some((end, node));
                }
                continue;
            }
            frames.pop();
            // In a closed place nothing but another factor can come next, so stopping before one is hopeless.
            if !(closed && starts_factor(kind) && !closes_too(kind)) {
                found.push(at, left);
            }
        }
    }

    fn unary(&mut self, at: u32, parts: [Rule; 2], whole: Rule, found: &mut Found) {
        let kind = self.kind(at);
        if !matches!(kind, Kind::Add | Kind::Sub) {
            return self.chain(at, parts, whole, found);
        }
        for (end, node) in self.rule(whole, at + 1).iter().copied() {
            let node = if kind == Kind::Sub { self.node(Node::Wrapped(Wrap::Negate, node)) } else { node };
            found.push(end, node);
        }
    }

    fn postfix(&mut self, at: u32, power: Rule, found: &mut Found) {
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
                    // Not a loop of one way, but an evaluation bar is rare and its ends are few.
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
        found.extend(self.equality(at + 2).into_iter().filter(|found| self.kind(found.0) == Kind::RBrace).map(|found| (found.0 + 1, found.1)));
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

    fn power(&mut self, at: u32, whole: Rule, found: &mut Found) {
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
                // A subscript after the exponent is read and forgotten.
                for (end, _) in self.rule(Rule::Sub, end).iter().copied() {
                    exponents.push(end, node);
                }
                exponents.push(end, node);
            }
            for (end, exponent) in exponents.0 {
                if !found.0.iter().any(|found| found.0 == end) {
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
        ends.iter().filter(|found| self.kind(found.0) == close).map(|found| (found.0 + 1, found.1)).collect()
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

    fn atom(&mut self, at: u32, found: &mut Found) {
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
                let node = self.node(Node::Symbol { token, sub: Some((middle, end)), sup: Some(sup) });
                found.push(end, node);
            }
        }
        for &(middle, _) in subs.iter() {
            for &(end, sup) in self.rule(Rule::Sup, middle).iter() {
                let node = self.node(Node::Symbol { token, sub: Some((at + 1, middle)), sup: Some(sup) });
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
    fn script(&mut self, at: u32, sign: Kind, found: &mut Found) {
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
    fn arguments(&mut self, at: u32, found: &mut Found) {
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

    /// What stands between the parentheses of `f(...)`: one atom, or several arguments, or one and a comma.
    fn call_arguments(&mut self, at: u32, found: &mut Found) {
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
