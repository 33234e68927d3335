//! Interprets a parse tree as numbers, symbols, functions, relations and sets, evaluated only as far as the reference
//! evaluates them while parsing.

use std::{cell::Cell, rc::Rc};

use num_traits::{Signed, Zero};

use super::ast::{Id, Node, Operator, Span, Wrap};
use super::convert_sets::interval;
use super::expr::{Expr, Fun, Name};
use super::lex::{Kind, Token};
use super::number::{Literal, read};
use super::{eval, grammar, lex};

/// Most tokens of an answer; longer ones do not parse.
const MOST_TOKENS: usize = 6000;
/// Most terms of one sum or product: the recursion limit of the reference.
const MOST_TERMS: usize = 960;
/// Deepest tree, texts within texts (function arguments) included: about the recursion limit of the reference, and far
/// below our stack.
const DEEPEST: usize = 420;
/// Depth added by a text within a text: it is lexed and parsed again, which must stay rare.
pub(super) const DEEPER: usize = 50;

/// Parses a LaTeX answer; `real` makes its symbols real numbers.
pub(super) fn read_latex(text: &str, real: bool) -> Option<Expr> {
    read_nested(text, real, 0)
}

/// Parses a text at some depth of another tree.
pub(super) fn read_nested(text: &str, real: bool, depth: usize) -> Option<Expr> {
    if depth >= DEEPEST {
        return None;
    }
    let tokens = lex::tokens(text, MOST_TOKENS)?;
    let tree = grammar::parse(&tokens)?;
    let depth = Cell::new(depth);
    let converter = Converter { text, tokens: &tokens, nodes: &tree.nodes, real, depth };
    if let Node::Elements(groups) = converter.get(tree.root) {
        if let Some(number) = grouped_number(text) {
            return Some(number);
        }
        return converter.elements(groups).and_then(set_or_single);
    }
    converter.expr(tree.root)
}

/// `1,234,567.8` as one number; `0,123` as a decimal.
fn grouped_number(text: &str) -> Option<Expr> {
    let text = text.trim_matches(super::is_space);
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, decimals) =
        unsigned.split_once('.').map_or((unsigned, None), |(whole, rest)| (whole, Some(rest)));
    if decimals.is_some_and(|digits| {
        digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit())
    }) {
        return None;
    }
    let mut groups = whole.split(',');
    let first = groups.next()?;
    let mut count = 0;
    for group in groups {
        count += 1;
        if group.len() != 3 || !group.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
    }
    if count == 0
        || first.is_empty()
        || first.len() > 3
        || !first.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let plain = if text.starts_with('0') { text.replace(',', ".") } else { text.replace(',', "") };
    number(plain.trim_start_matches('0'))
}

pub(super) fn number(text: &str) -> Option<Expr> {
    Some(match read(if text.is_empty() { "0" } else { text })? {
        Literal::Whole(value) => Expr::Number(value),
        Literal::Decimal(float) => Expr::Float(float),
    })
}

/// Element lists become one element, a set, or a set of tuples.
fn set_or_single(mut groups: Vec<Vec<Expr>>) -> Option<Expr> {
    if groups.len() == 1 {
        let mut group = groups.pop()?;
        return if group.len() == 1 { group.pop() } else { Some(Expr::Set(group)) };
    }
    if groups.iter().all(|group| group.len() == 1) {
        return Some(Expr::Set(groups.into_iter().flatten().collect()));
    }
    Some(Expr::Set(groups.into_iter().map(Expr::Tuple).collect()))
}

pub(super) struct Converter<'t> {
    pub(super) text: &'t str,
    pub(super) tokens: &'t [Token],
    pub(super) nodes: &'t [Node],
    pub(super) real: bool,
    pub(super) depth: Cell<usize>,
}

impl Converter<'_> {
    pub(super) fn get(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn token_text(&self, token: u32) -> &str {
        let token = &self.tokens[token as usize];
        &self.text[token.start..token.end]
    }

    pub(super) fn kind(&self, token: u32) -> Kind {
        self.tokens.get(token as usize).map_or(Kind::End, |token| token.kind)
    }

    /// The text of a range of tokens without the blanks between them.
    pub(super) fn span_text(&self, span: Span) -> String {
        (span.0..span.1).map(|token| self.token_text(token)).collect()
    }

    pub(super) fn symbol(&self, text: &str) -> Expr {
        Expr::Symbol(Name { text: Rc::from(text), real: self.real })
    }

    /// Interprets a node that is one object; `None` where the tree is too deep.
    pub(super) fn expr(&self, id: Id) -> Option<Expr> {
        let depth = self.depth.get();
        if depth >= DEEPEST {
            return None;
        }
        self.depth.set(depth + 1);
        let meaning = self.meaning(id);
        self.depth.set(depth);
        meaning
    }

    fn meaning(&self, id: Id) -> Option<Expr> {
        match self.get(id) {
            Node::Binary(..) => self.sum_or_product(id),
            Node::Wrapped(wrap, inner) => self.wrapped(*wrap, *inner),
            Node::Product(..) => self.juxtaposed(id),
            Node::Power(base, exponent) => {
                let (base, exponent) = (self.scalar(*base)?, self.scalar(*exponent)?);
                Some(Expr::pow(base, exponent))
            }
            Node::EvalAt(inner, low, high) => self.eval_at(*inner, *low, *high),
            Node::Symbol { token, sub, sup } => self.letter(*token, *sub, *sup),
            Node::Token(token) => self.atom(*token),
            Node::Frac { upper, lower, upper_span, lower_span } => {
                self.frac(*upper, *lower, *upper_span, *lower_span)
            }
            Node::Binom(n, k) => self.binomial(*n, *k),
            Node::Function { name, sub, sup, arg } => self.function(*name, *sub, *sup, *arg),
            Node::ManyFunction { name, sup, args } => self.many_function(*name, *sup, *args),
            Node::Call { name, sup, args } => self.call(*name, *sup, *args),
            Node::Integral { lower, upper, body, variable } => {
                self.integral(*lower, *upper, *body, *variable)
            }
            Node::Root { degree, base } => self.root(*degree, *base),
            Node::Series { command, from, to, body } => self.series(*command, *from, *to, *body),
            Node::Limit { variable, place, body } => self.limit(*variable, *place, *body),
            Node::Exponential(sup) => self.exponential(*sup),
            Node::Matrix(rows) => self.matrix(rows),
            Node::Determinant(rows) => eval::determinant(&self.matrix(rows)?),
            Node::Relation(sign, left, right) => self.relation(*sign, *left, *right),
            Node::Elements(groups) => self.elements(groups).and_then(set_or_single),
            Node::Interval { left_open, right_open, from, to } => {
                interval(self.expr(*from)?, self.expr(*to)?, *left_open, *right_open)
            }
            Node::Tuple(elements) => self.tuple(*elements),
            Node::Braces(elements) => {
                let elements: Vec<Expr> = self.groups(*elements)?.into_iter().flatten().collect();
                Some(if elements.is_empty() { Expr::EmptySet } else { Expr::Set(elements) })
            }
            Node::BoxedSet(elements) => set_or_single(self.groups(*elements)?),
            Node::SetName(token) => self.set_name(*token),
            Node::SetBinary(operation, left, right) => self.set_binary(*operation, *left, *right),
            Node::Equality(..) | Node::Names(_) | Node::PlusMinus(..) => None,
        }
    }

    /// An expression that takes part in arithmetic: not a matrix, not a set.
    pub(super) fn scalar(&self, id: Id) -> Option<Expr> {
        self.expr(id).filter(|expr| {
            !matches!(expr, Expr::Matrix { .. }) && !expr.is_set() && !expr.is_relation()
        })
    }

    fn sum_or_product(&self, id: Id) -> Option<Expr> {
        // The tree leans left; descending the left side first bounds the stack.
        let mut operations = Vec::new();
        let mut first = id;
        while let Node::Binary(operator, left, right) = self.get(first) {
            operations.push((*operator, *right));
            first = *left;
        }
        if operations.len() > MOST_TERMS {
            return None;
        }
        let mut result = self.expr(first)?;
        for (operator, right) in operations.into_iter().rev() {
            let right = self.expr(right)?;
            if matches!(result, Expr::Matrix { .. }) || matches!(right, Expr::Matrix { .. }) {
                result = eval::matrix_operation(operator, result, right)?;
                continue;
            }
            result = match operator {
                Operator::Add => Expr::plus(result, right),
                Operator::Sub => Expr::plus(result, right.negated()),
                Operator::Mul => Expr::times(result, right),
                Operator::Div => Expr::over(result, right),
                Operator::Mod => Expr::Apply(Fun::Mod, vec![result, right]),
            };
        }
        Some(result)
    }

    fn juxtaposed(&self, id: Id) -> Option<Expr> {
        let mut factors = Vec::new();
        let mut first = id;
        while let Node::Product(left, right) = self.get(first) {
            factors.push(*right);
            first = *left;
        }
        factors.push(first);
        if factors.len() > MOST_TERMS {
            return None;
        }
        // Converts the last factor first: an integer before a fraction is a mixed number.
        let mut values = factors.into_iter().map(|factor| self.expr(factor));
        let mut result = values.next()??;
        for left in values {
            let left = left?;
            if matches!(result, Expr::Matrix { .. }) || matches!(left, Expr::Matrix { .. }) {
                result = eval::matrix_operation(Operator::Mul, left, result)?;
                continue;
            }
            result = match (left, result) {
                (Expr::Apply(Fun::Derivative, mut variable), body) if variable.len() == 1 => {
                    variable.insert(0, body);
                    Expr::Apply(Fun::Derivative, variable)
                }
                (Expr::Number(whole), Expr::Number(part))
                    if whole.is_integer() && part.is_positive() =>
                {
                    Expr::Number(if whole.is_negative() { whole - part } else { whole + part })
                }
                (left, result) => Expr::times(left, result),
            };
        }
        Some(result)
    }

    fn wrapped(&self, wrap: Wrap, inner: Id) -> Option<Expr> {
        if wrap == Wrap::Negate {
            let (mut signs, mut inner) = (1, inner);
            while let Node::Wrapped(Wrap::Negate, deeper) = self.get(inner) {
                signs += 1;
                inner = *deeper;
            }
            if signs > MOST_TERMS {
                return None;
            }
            let mut value = self.expr(inner)?;
            if let Expr::Matrix { .. } = value {
                let sign = Expr::int(if signs % 2 == 1 { -1 } else { 1 });
                return eval::matrix_operation(Operator::Mul, sign, value);
            }
            // Two signs cancel in numbers only: `--x` is a product, not a bare name.
            for _ in 0..signs {
                value = value.negated();
            }
            return Some(value);
        }
        let value = self.expr(inner)?;
        if let Expr::Matrix { rows, columns, cells } = &value {
            return match wrap {
                Wrap::Transpose => Some(eval::transposed(*rows, *columns, cells)),
                Wrap::Norm => Some(eval::norm(cells)),
                _ => None,
            };
        }
        let fun = match wrap {
            Wrap::Abs => Fun::Abs,
            Wrap::Floor => Fun::Floor,
            Wrap::Ceil => Fun::Ceiling,
            Wrap::Factorial => Fun::Factorial,
            Wrap::Transpose => return Some(value),
            Wrap::Negate | Wrap::Norm | Wrap::Angle => return None,
        };
        Some(Expr::Apply(fun, vec![value]))
    }

    fn matrix(&self, rows: &[Vec<Id>]) -> Option<Expr> {
        let columns = rows.first()?.len();
        if rows.iter().any(|row| row.len() != columns) {
            return None;
        }
        let cells =
            rows.iter().flatten().map(|cell| self.scalar(*cell)).collect::<Option<Vec<_>>>()?;
        Some(Expr::Matrix { rows: rows.len(), columns, cells })
    }
}

/// Whether an exponent counts: zero does not.
pub(super) fn truthy(exponent: &Expr) -> bool {
    !matches!(exponent, Expr::Number(value) if value.is_zero())
}
