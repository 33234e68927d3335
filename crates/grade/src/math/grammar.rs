//! Parses answers: sums, products, functions, relations, sets. Alternatives are tried in order, and the first tree that
//! spans the whole answer wins, with unlimited lookahead.
//!
//! A packrat parser: each rule yields all positions where it may end, best first, and is memoized per position, so that
//! time stays polynomial; a budget and a depth limit stop hostile answers.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::ast::{Id, Node, Operator, SetOp, Sign, Wrap};
use super::lex::{Kind, Token};

/// Positions where a rule may end, each with its node; best first, no position twice.
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

/// Memoized rules. `Open` rules may be followed by another factor (the argument of a function
/// without parentheses); the others may not, which prunes most alternatives.
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
pub(super) const DEPTH: usize = 420;

pub(super) struct Parser<'t> {
    tokens: &'t [Token],
    nodes: Vec<Node>,
    memo: HashMap<(Rule, u32), Ends>,
    steps: usize,
    pub(super) depth: usize,
}

/// Collects ends, the first per position.
#[derive(Default)]
pub(super) struct Found(pub(super) Vec<(u32, Id)>, HashSet<u32>);

impl Found {
    pub(super) fn push(&mut self, end: u32, node: Id) {
        if !self.has(end) {
            self.0.push((end, node));
            // A lookup pays off only with many ends.
            if self.0.len() == 24 {
                self.1 = self.0.iter().map(|found| found.0).collect();
            } else if self.0.len() > 24 {
                self.1.insert(end);
            }
        }
    }

    pub(super) fn has(&self, end: u32) -> bool {
        if self.0.len() < 24 {
            self.0.iter().any(|found| found.0 == end)
        } else {
            self.1.contains(&end)
        }
    }
}

/// How a chain continues at a token.
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

/// The joint of `kind` in a chain of `whole`.
fn joint(kind: Kind, whole: Rule) -> Option<Joint> {
    Some(match whole {
        Rule::Minus if kind == Kind::SetMinus => Joint::Set(SetOp::Minus),
        Rule::Union if kind == Kind::Union => Joint::Set(SetOp::Union),
        Rule::Intersection if kind == Kind::Intersection => Joint::Set(SetOp::Intersection),
        Rule::SetRelation if matches!(kind, Kind::Superset | Kind::Subset) => {
            Joint::Sign(sign(kind)?)
        }
        Rule::Relation if !matches!(kind, Kind::Superset | Kind::Subset | Kind::NotIn) => {
            Joint::Sign(sign(kind)?)
        }
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

/// Bars open and close alike, so a factor that could continue may also have to stop before one.
fn closes_too(kind: Kind) -> bool {
    matches!(kind, Kind::Bar | Kind::Vert | Kind::Norm)
}

/// What closes the bracket that `kind` opens around one expression.
pub(super) fn closer(kind: Kind) -> Option<(Kind, Option<Wrap>)> {
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
        let mut seen = HashSet::new();
        for (end, node) in self.rule(parts[0], at).iter().copied() {
            if seen.insert(end) {
                self.chain_from(end, node, parts[1], whole, &mut seen, found);
            }
        }
    }

    /// Continues from one first part. A position reached twice is followed once: the earlier derivation is better
    /// whatever follows. An explicit stack bounds the recursion on long chains.
    fn chain_from(
        &mut self,
        at: u32,
        first: Id,
        part: Rule,
        whole: Rule,
        seen: &mut HashSet<u32>,
        found: &mut Found,
    ) {
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
                    seen.insert(end);
                    self.steps += 1;
                    let node = self.node(joint.node(left, right));
                    pending = Some((end, node));
                }
                continue;
            }
            frames.pop();
            // In a closed rule only another factor can follow, so stopping before one cannot succeed.
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
            let node =
                if kind == Kind::Sub { self.node(Node::Wrapped(Wrap::Negate, node)) } else { node };
            found.push(end, node);
        }
    }
}
