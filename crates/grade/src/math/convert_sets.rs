//! Interprets relations, element lists, intervals and sets as the reference does.

use super::ast::{Id, Node, SetOp, Sign};
use super::convert::Converter;
use super::eval;
use super::expr::{Compare, Constant, Expr, Interval, Joined, NumberSet};
use super::lex::Kind;

/// Most relations in one chain.
const MOST_LINKS: usize = 960;

impl Converter<'_> {
    pub(super) fn relation(&self, sign: Sign, left: Id, right: Id) -> Option<Expr> {
        if let Node::Names(names) = self.get(left) {
            return self.named_relation(sign, names, right);
        }
        let mut operations = vec![(sign, right)];
        let mut first = left;
        while let Node::Relation(sign, left, right) = self.get(first) {
            operations.push((*sign, *right));
            first = *left;
        }
        if operations.len() > MOST_LINKS {
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
        if let Expr::And(parts) = &result
            && collapses(parts)
        {
            return None;
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

    pub(super) fn groups(&self, id: Id) -> Option<Vec<Vec<Expr>>> {
        match self.get(id) {
            Node::Elements(groups) => self.elements(groups),
            _ => None,
        }
    }

    pub(super) fn elements(&self, groups: &[Vec<Id>]) -> Option<Vec<Vec<Expr>>> {
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

    pub(super) fn tuple(&self, elements: Id) -> Option<Expr> {
        let mut elements: Vec<Expr> = self.groups(elements)?.into_iter().flatten().collect();
        if elements.len() == 1 { elements.pop() } else { Some(Expr::Tuple(elements)) }
    }

    pub(super) fn set_name(&self, token: Option<u32>) -> Option<Expr> {
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

    pub(super) fn set_binary(&self, operation: SetOp, left: Id, right: Id) -> Option<Expr> {
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
        (left.is_set() && right.is_set())
            .then(|| Expr::Joined(joined, Box::new(left), Box::new(right)))
    }
}

fn opened_tuple(set: Expr) -> Expr {
    match set {
        Expr::Tuple(elements) => Expr::Set(elements),
        other => other,
    }
}

/// `-value` as built by a plus-minus sign.
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

/// Whether a chain contradicts itself literally, or starts with the same relation twice; the reference raises an error
/// for both.
fn collapses(parts: &[Expr]) -> bool {
    let forward = |part: &Expr| match part {
        Expr::Relation(Compare::Gt, a, b) => Some((Compare::Lt, (**b).clone(), (**a).clone())),
        Expr::Relation(Compare::Ge, a, b) => Some((Compare::Le, (**b).clone(), (**a).clone())),
        Expr::Relation(compare, a, b) => Some((*compare, (**a).clone(), (**b).clone())),
        _ => None,
    };
    let same = |one: (Compare, &Expr, &Expr), other: (Compare, &Expr, &Expr)| {
        let swapped = matches!(one.0, Compare::Eq | Compare::Ne)
            && (one.0, one.2, one.1) == (other.0, other.1, other.2);
        one == other || swapped
    };
    let parts: Vec<_> = parts.iter().filter_map(forward).collect();
    let parts: Vec<_> = parts.iter().map(|(compare, a, b)| (*compare, a, b)).collect();
    let repeats = matches!(parts.as_slice(), [one, two, ..] if same(*one, *two));
    let denied = |(compare, a, b)| match compare {
        Compare::Lt => (Compare::Le, b, a),
        Compare::Le => (Compare::Lt, b, a),
        Compare::Eq => (Compare::Ne, a, b),
        _ => (Compare::Eq, a, b),
    };
    let pairs = |at: usize| parts.iter().skip(at + 1).take(20);
    let contradicts = |(at, part): (usize, _)| pairs(at).any(|other| same(denied(part), *other));
    repeats || parts.iter().copied().enumerate().any(contradicts)
}

/// An interval; a pair where it would be empty, a point where it is one.
pub(super) fn interval(from: Expr, to: Expr, left_open: bool, right_open: bool) -> Option<Expr> {
    let not_a_number = |end: &Expr| {
        end.is_set() || matches!(end, Expr::Matrix { .. } | Expr::Tuple(_) | Expr::Opaque)
    };
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
        Some(order) if order.is_gt() || (order.is_eq() && (left_open || right_open)) => {
            return Some(Expr::EmptySet);
        }
        Some(order) if order.is_eq() => return Some(Expr::Set(vec![to])),
        _ => {}
    }
    let infinite =
        |end: &Expr, constant| matches!(end, Expr::Constant(found) if *found == constant);
    if infinite(&from, Constant::Infinity) || infinite(&to, Constant::MinusInfinity) {
        return Some(Expr::EmptySet);
    }
    let left_open = left_open || infinite(&from, Constant::MinusInfinity);
    let right_open = right_open || infinite(&to, Constant::Infinity);
    Some(Expr::Interval(Box::new(Interval { from, to, left_open, right_open })))
}
