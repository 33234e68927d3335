//! Gives a parse tree its meaning: numbers, symbols, functions, relations and sets, evaluated no further than
//! the reference evaluates them while reading.
//!
//! It decides nothing about equality.

use std::rc::Rc;

use num_traits::{Signed, Zero};

use super::ast::{Id, Node, Operator, SetOp, Sign, Span, Wrap};
use super::expr::{Compare, Constant, Expr, Fun, Interval, Joined, Name, NumberSet};
use super::lex::{Kind, Token};
use super::number::{Literal, read};
use super::{eval, grammar, lex};

/// Tokens an answer may have; what is longer does not parse.
const MOST_TOKENS: usize = 6000;
/// Terms of one sum or product: the reference's own recursion ends there.
const MOST_TERMS: usize = 960;
/// How deep texts inside texts (function arguments) may go.
const MOST_NESTING: usize = 8;

/// Reads a LaTeX answer; `real` says whether its symbols stand for real numbers.
pub(super) fn read_latex(text: &str, real: bool) -> Option<Expr> {
    read_nested(text, real, 0)
}

pub(super) fn read_nested(text: &str, real: bool, nesting: usize) -> Option<Expr> {
    if nesting > MOST_NESTING {
        return None;
    }
    let tokens = lex::tokens(text, MOST_TOKENS)?;
    let tree = grammar::parse(&tokens)?;
    let converter = Converter { text, tokens: &tokens, nodes: &tree.nodes, real, nesting };
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
    let (whole, decimals) = unsigned.split_once('.').map_or((unsigned, None), |(whole, rest)| (whole, Some(rest)));
    if decimals.is_some_and(|digits| digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit())) {
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
    if count == 0 || first.is_empty() || first.len() > 3 || !first.bytes().all(|byte| byte.is_ascii_digit()) {
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
    pub(super) nesting: usize,
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

    /// The meaning of a node that stands for one object.
    pub(super) fn expr(&self, id: Id) -> Option<Expr> {
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
            Node::Frac { upper, lower, upper_span, lower_span } => self.frac(*upper, *lower, *upper_span, *lower_span),
            Node::Binom(n, k) => self.binomial(*n, *k),
            Node::Function { name, sub, sup, arg } => self.function(*name, *sub, *sup, *arg),
            Node::ManyFunction { name, sup, args } => self.many_function(*name, *sup, *args),
            Node::Call { name, sup, args } => self.call(*name, *sup, *args),
            Node::Integral { lower, upper, body, variable } => self.integral(*lower, *upper, *body, *variable),
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
        self.expr(id).filter(|expr| !matches!(expr, Expr::Matrix { .. }) && !expr.is_set() && !expr.is_relation())
    }

    fn sum_or_product(&self, id: Id) -> Option<Expr> {
        // The tree leans left; walking down the left side first keeps the stack flat.
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
        // The last factor is read first: a whole number before a fraction is a mixed number.
        let mut values = factors.into_iter().map(|factor| self.expr(factor));
        let mut result = values.next()??;
        for left in values {
            let left = left?;
            if matches!(result, Expr::Matrix { .. }) || matches!(left, Expr::Matrix { .. }) {
                result = eval::matrix_operation(Operator::Mul, left, result)?;
                continue;
            }
            result = match (left, result) {
                (Expr::Number(whole), Expr::Number(part)) if whole.is_integer() && part.is_positive() => {
                    Expr::Number(if whole.is_negative() { whole - part } else { whole + part })
                }
                (left, result) => Expr::times(left, result),
            };
        }
        Some(result)
    }

    fn wrapped(&self, wrap: Wrap, inner: Id) -> Option<Expr> {
        if wrap == Wrap::Negate {
            let mut negative = true;
            let mut inner = inner;
            while let Node::Wrapped(Wrap::Negate, deeper) = self.get(inner) {
                negative = !negative;
                inner = *deeper;
            }
            let value = self.expr(inner)?;
            if let Expr::Matrix { .. } = value {
                return eval::matrix_operation(Operator::Mul, Expr::int(if negative { -1 } else { 1 }), value);
            }
            return Some(if negative { value.negated() } else { value });
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
        let cells = rows.iter().flatten().map(|cell| self.scalar(*cell)).collect::<Option<Vec<_>>>()?;
        Some(Expr::Matrix { rows: rows.len(), columns, cells })
    }

    fn relation(&self, sign: Sign, left: Id, right: Id) -> Option<Expr> {
        if let Node::Names(names) = self.get(left) {
            return self.named_relation(sign, names, right);
        }
        let mut operations = vec![(sign, right)];
        let mut first = left;
        while let Node::Relation(sign, left, right) = self.get(first) {
            operations.push((*sign, *right));
            first = *left;
        }
        if operations.len() > MOST_TERMS {
            return None;
        }
        let mut result = self.expr(first)?;
        for (sign, right) in operations.into_iter().rev() {
            let right = self.expr(right)?;
            let compare = match sign {
                Sign::Assign | Sign::Equal => Compare::Eq,
                Sign::Less => Compare::Lt,
                Sign::LessEq => Compare::Le,
                Sign::Greater => Compare::Gt,
                Sign::GreaterEq => Compare::Ge,
                Sign::Unequal => Compare::Ne,
                Sign::Approx => {
                    result = if result.only_symbols() { right } else { result };
                    continue;
                }
                Sign::Superset | Sign::Subset => return Some(Expr::Opaque),
                Sign::In | Sign::NotIn => return None,
            };
            result = chained(result, compare, right);
        }
        Some(result)
    }

    fn named_relation(&self, sign: Sign, names: &[Id], right: Id) -> Option<Expr> {
        let mut names = names.iter().map(|name| self.expr(*name)).collect::<Option<Vec<_>>>()?;
        let left = if names.len() == 1 { names.pop()? } else { Expr::Tuple(names) };
        let right = self.expr(right)?;
        let equal = Expr::Relation(Compare::Eq, Box::new(left), Box::new(right));
        Some(if sign == Sign::NotIn { Expr::Not(Box::new(equal)) } else { equal })
    }

    fn groups(&self, id: Id) -> Option<Vec<Vec<Expr>>> {
        match self.get(id) {
            Node::Elements(groups) => self.elements(groups),
            _ => None,
        }
    }

    fn elements(&self, groups: &[Vec<Id>]) -> Option<Vec<Vec<Expr>>> {
        groups
            .iter()
            .map(|group| {
                let mut values = Vec::with_capacity(group.len());
                for element in group {
                    self.element(*element, &mut values)?;
                }
                Some(values)
            })
            .collect()
    }

    fn element(&self, id: Id, values: &mut Vec<Expr>) -> Option<()> {
        match self.get(id) {
            Node::PlusMinus(None, right) => {
                let value = self.scalar(*right)?;
                values.push(minus(value.clone()));
                values.push(value);
            }
            Node::PlusMinus(Some(left), right) => {
                let (left, right) = (self.scalar(*left)?, self.scalar(*right)?);
                values.push(Expr::Add(vec![left.clone(), right.clone()]));
                values.push(Expr::Add(vec![left, minus(right)]));
            }
            _ => values.push(self.expr(id)?),
        }
        Some(())
    }

    fn tuple(&self, elements: Id) -> Option<Expr> {
        let mut elements: Vec<Expr> = self.groups(elements)?.into_iter().flatten().collect();
        if elements.len() == 1 { elements.pop() } else { Some(Expr::Tuple(elements)) }
    }

    fn set_name(&self, token: Option<u32>) -> Option<Expr> {
        let Some(token) = token else { return Some(Expr::EmptySet) };
        Some(Expr::NumberSet(match self.kind(token) {
            Kind::Naturals => NumberSet::Naturals,
            Kind::Integers => NumberSet::Integers,
            Kind::Rationals => NumberSet::Rationals,
            Kind::Reals => NumberSet::Reals,
            Kind::Complexes => NumberSet::Complexes,
            Kind::Empty => return Some(Expr::EmptySet),
            _ => return None,
        }))
    }

    fn set_binary(&self, operation: SetOp, left: Id, right: Id) -> Option<Expr> {
        let (mut left, mut right) = (self.expr(left)?, self.expr(right)?);
        let joined = match operation {
            SetOp::Union => Joined::Union,
            SetOp::Intersection => Joined::Intersection,
            SetOp::Minus => Joined::Complement,
        };
        if joined != Joined::Complement {
            left = opened_tuple(left);
            right = opened_tuple(right);
        }
        (left.is_set() && right.is_set()).then(|| Expr::Joined(joined, Box::new(left), Box::new(right)))
    }
}

fn opened_tuple(set: Expr) -> Expr {
    match set {
        Expr::Tuple(elements) => Expr::Set(elements),
        other => other,
    }
}

/// `-value` the way a plus-minus sign takes it.
fn minus(value: Expr) -> Expr {
    match value {
        Expr::Number(number) => Expr::Number(-number),
        other => Expr::Mul(vec![Expr::int(-1), other]),
    }
}

/// Extends a chain such as `a < b <= c`.
fn chained(left: Expr, compare: Compare, right: Expr) -> Expr {
    let next = |left: &Expr, right: Expr| match left {
        Expr::Relation(_, _, middle) => Expr::Relation(compare, middle.clone(), Box::new(right)),
        other => Expr::Relation(compare, Box::new(other.clone()), Box::new(right)),
    };
    match left {
        Expr::And(mut parts) => {
            if let Some(last) = parts.last() {
                let link = next(last, right);
                parts.push(link);
            }
            Expr::And(parts)
        }
        relation @ Expr::Relation(..) => {
            let link = next(&relation, right);
            Expr::And(vec![relation, link])
        }
        other => Expr::Relation(compare, Box::new(other), Box::new(right)),
    }
}

/// An interval; a pair where it would be empty, a point where it is one.
fn interval(from: Expr, to: Expr, left_open: bool, right_open: bool) -> Option<Expr> {
    let not_a_number = |end: &Expr| end.is_set() || matches!(end, Expr::Matrix { .. } | Expr::Tuple(_) | Expr::Opaque);
    if not_a_number(&from) || not_a_number(&to) {
        return None;
    }
    let order = eval::order(&from, &to);
    let both_open = left_open && right_open;
    let both_closed = !left_open && !right_open;
    if let Some(order) = order
        && ((both_open && order.is_ge()) || (both_closed && order.is_gt()))
    {
        return Some(Expr::Tuple(vec![from, to]));
    }
    if eval::is_not_real(&from) || eval::is_not_real(&to) {
        return None;
    }
    match order {
        Some(order) if order.is_gt() || (order.is_eq() && (left_open || right_open)) => return Some(Expr::EmptySet),
        Some(order) if order.is_eq() => return Some(Expr::Set(vec![to])),
        _ => {}
    }
    let infinite = |end: &Expr, constant| matches!(end, Expr::Constant(found) if *found == constant);
    if infinite(&from, Constant::Infinity) || infinite(&to, Constant::MinusInfinity) {
        return Some(Expr::EmptySet);
    }
    let left_open = left_open || infinite(&from, Constant::MinusInfinity);
    let right_open = right_open || infinite(&to, Constant::Infinity);
    Some(Expr::Interval(Box::new(Interval { from, to, left_open, right_open })))
}

/// Whether an exponent counts as given: zero does not.
pub(super) fn truthy(exponent: &Expr) -> bool {
    !matches!(exponent, Expr::Number(value) if value.is_zero())
}
