//! Mathematical objects as the reference builds them: mostly unevaluated trees of numbers, symbols, functions,
//! relations and sets.
//!
//! Data types and shallow constructors only.

use std::rc::Rc;

use num_traits::{One, Signed, Zero};

use super::number::{Float, Rat, integer};

/// A symbol: its name, and whether it is real. Symbols that differ in either are different.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) text: Rc<str>,
    pub(super) real: bool,
}

/// Constants with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Constant {
    Pi,
    E,
    EulerGamma,
    I,
    Infinity,
    MinusInfinity,
    /// Division by zero.
    ComplexInfinity,
    Undefined,
}

/// Known and unknown functions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fun {
    Sin,
    Cos,
    Tan,
    Csc,
    Sec,
    Cot,
    Asin,
    Acos,
    Atan,
    Acsc,
    Asec,
    Acot,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Exp,
    /// One argument, or an argument and a base.
    Log,
    Abs,
    Floor,
    Ceiling,
    Gamma,
    Factorial,
    Binomial,
    Max,
    Min,
    Mod,
    Gcd,
    Lcm,
    /// A sum over a variable: body, variable, first, last.
    Sum,
    Product,
    /// Body, variable, from, to; without bounds only the first two.
    Integral,
    /// Body, variable, limit point.
    Limit,
    Derivative,
    /// A function known by its name only.
    Named(Rc<str>),
}

/// The number sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NumberSet {
    Naturals,
    Integers,
    Rationals,
    Reals,
    Complexes,
}

/// Set operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Joined {
    Union,
    Intersection,
    Complement,
}

/// Relations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// A mathematical object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Expr {
    Number(Rat),
    Float(Float),
    Constant(Constant),
    Symbol(Name),
    Add(Vec<Expr>),
    Mul(Vec<Expr>),
    Pow(Box<Expr>, Box<Expr>),
    Apply(Fun, Vec<Expr>),
    /// An expression that is not merged with its surroundings: the hundredth in a percentage.
    Held(Box<Expr>),
    Matrix {
        rows: usize,
        columns: usize,
        cells: Vec<Expr>,
    },
    Tuple(Vec<Expr>),
    /// The elements in the order written, duplicates included.
    Set(Vec<Expr>),
    Interval(Box<Interval>),
    EmptySet,
    NumberSet(NumberSet),
    Joined(Joined, Box<Expr>, Box<Expr>),
    Relation(Compare, Box<Expr>, Box<Expr>),
    /// A chain of relations, in order.
    And(Vec<Expr>),
    Not(Box<Expr>),
    /// An object of the reference that equals nothing, not even itself.
    Opaque,
}

/// An interval of numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Interval {
    pub(super) from: Expr,
    pub(super) to: Expr,
    pub(super) left_open: bool,
    pub(super) right_open: bool,
}

impl Expr {
    pub(super) fn int(value: i64) -> Self {
        Self::Number(integer(value))
    }

    pub(super) fn is_integer(&self) -> bool {
        matches!(self, Self::Number(value) if value.is_integer())
    }

    /// A number node: rational, float, or an infinity.
    pub(super) fn is_number_node(&self) -> bool {
        match self {
            Self::Number(_) | Self::Float(_) => true,
            Self::Constant(constant) => matches!(
                constant,
                Constant::Infinity | Constant::MinusInfinity | Constant::Undefined
            ),
            _ => false,
        }
    }

    /// `-self`, evaluated for number nodes and otherwise a product with -1.
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Number(value) => Self::Number(-value),
            Self::Float(float) => Self::Float(Float { value: -float.value, bits: float.bits }),
            Self::Constant(Constant::Infinity) => Self::Constant(Constant::MinusInfinity),
            Self::Constant(Constant::MinusInfinity) => Self::Constant(Constant::Infinity),
            other => Self::times(Self::int(-1), other),
        }
    }

    /// A sum; sums among the operands are flattened.
    pub(super) fn plus(left: Self, right: Self) -> Self {
        let mut terms = match left {
            Self::Add(terms) => terms,
            other => vec![other],
        };
        match right {
            Self::Add(more) => terms.extend(more),
            other => terms.push(other),
        }
        Self::Add(terms)
    }

    /// A product; products among the operands are flattened.
    pub(super) fn times(left: Self, right: Self) -> Self {
        let mut factors = match left {
            Self::Mul(factors) => factors,
            other => vec![other],
        };
        match right {
            Self::Mul(more) => factors.extend(more),
            other => factors.push(other),
        }
        Self::Mul(factors)
    }

    pub(super) fn pow(base: Self, exponent: Self) -> Self {
        Self::Pow(Box::new(base), Box::new(exponent))
    }

    /// A quotient: exact for integers, otherwise a product with a reciprocal.
    pub(super) fn over(top: Self, bottom: Self) -> Self {
        if let (Self::Number(a), Self::Number(b)) = (&top, &bottom)
            && a.is_integer()
            && b.is_integer()
        {
            return if !b.is_zero() {
                Self::Number(a / b)
            } else if a.is_zero() {
                Self::Constant(Constant::Undefined)
            } else {
                Self::Constant(Constant::ComplexInfinity)
            };
        }
        Self::Mul(vec![top, Self::pow(bottom, Self::int(-1))])
    }

    /// `number` percent.
    pub(super) fn percent(number: Self) -> Self {
        let hundredth = Rat::new(1.into(), 100.into());
        Self::Mul(vec![number, Self::Held(Box::new(Self::Number(hundredth)))])
    }

    /// The number in front of a percent sign.
    pub(super) fn percent_value(&self) -> Option<&Self> {
        match self {
            Self::Mul(factors) => match factors.as_slice() {
                [value, Self::Held(held)] if matches!(&**held, Self::Number(part) if (part * integer(100)).is_one()) => {
                    Some(value)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The parts of a node, in order.
    pub(super) fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Add(parts)
            | Self::Mul(parts)
            | Self::Apply(_, parts)
            | Self::Tuple(parts)
            | Self::Set(parts)
            | Self::And(parts) => parts.iter().collect(),
            Self::Matrix { cells, .. } => cells.iter().collect(),
            Self::Pow(a, b) | Self::Joined(_, a, b) | Self::Relation(_, a, b) => vec![a, b],
            Self::Held(inner) | Self::Not(inner) => vec![inner],
            Self::Interval(interval) => vec![&interval.from, &interval.to],
            _ => Vec::new(),
        }
    }

    /// Calls `visit` on this node and everything below it.
    pub(super) fn walk<'e>(&'e self, visit: &mut impl FnMut(&'e Self)) {
        visit(self);
        for part in self.parts() {
            part.walk(visit);
        }
    }

    /// The names of its symbols, sorted, each once.
    pub(super) fn symbols(&self) -> Vec<Name> {
        let mut names = Vec::new();
        self.walk(&mut |part| {
            if let Self::Symbol(name) = part {
                names.push(name.clone());
            }
        });
        names.sort();
        names.dedup();
        names
    }

    /// Whether it consists of symbols only: `x`, `ab`, `f(x)`, `A/S`.
    pub(super) fn only_symbols(&self) -> bool {
        match self {
            Self::Symbol(_) => true,
            Self::Pow(base, exponent) if matches!(&**exponent, Self::Number(n) if n.is_negative() && n.abs().is_one()) => {
                match &**base {
                    Self::Symbol(_) => true,
                    other => other.parts().into_iter().all(Self::only_symbols),
                }
            }
            other => {
                let parts = other.parts();
                !parts.is_empty() && parts.into_iter().all(Self::only_symbols)
            }
        }
    }

    pub(super) fn is_relation(&self) -> bool {
        match self {
            Self::Relation(..) => true,
            Self::And(parts) => {
                !parts.is_empty() && parts.iter().all(|part| matches!(part, Self::Relation(..)))
            }
            _ => false,
        }
    }

    /// Whether it is a set as in the reference.
    pub(super) fn is_set(&self) -> bool {
        matches!(
            self,
            Self::Set(_)
                | Self::Interval(_)
                | Self::EmptySet
                | Self::NumberSet(_)
                | Self::Joined(..)
        )
    }
}
