//! Compares an answer with the gold answer in the layers of the reference: same tree, relations, sets, names, rounded
//! numbers, identical functions.
//!
//! An error that the reference would raise is `None`: the comparison fails without trying further layers.

use num_traits::{Signed, Zero};

use super::eval::{Evaluator, constant, has_symbols};
use super::exact::{exact, is_singular};
use super::expr::{Compare, Constant, Expr, Fun};
use super::float::mixed;
use super::number::{Rat, from_dd, round_decimals};
use super::tidy::tidy;
use super::{relate, sets};

/// Whether `pred` equals `gold`, floats rounded to `places` decimals; `None` where the reference raises an error.
///
/// A gold relation may be answered by the set it describes, but not the other way round: Math-Verify compares a relation
/// with a gold set only under `allow_set_relation_comp`, which no benchmark sets.
pub(super) fn equal(gold: &Expr, pred: &Expr, places: i64) -> Option<bool> {
    if *gold == Expr::Opaque || *pred == Expr::Opaque {
        return Some(false);
    }
    let (mut gold, pred) = unwrapped(gold, pred);
    if gold.is_relation()
        && pred.is_set()
        && let Some(set) = relate::solution_set(&gold)
    {
        gold = set;
    }
    if is_singular(&gold) {
        return None;
    }
    if gold == pred {
        return Some(true);
    }
    let grouped = |expr: &Expr| expr.is_set() || matches!(expr, Expr::Tuple(_));
    if gold.is_relation() && pred.is_relation() {
        relate::equal(&gold, &pred, places)
    } else if grouped(&gold) || grouped(&pred) {
        sets::equal(&gold, &pred, places)
    } else if matches!(gold, Expr::Symbol(_)) || matches!(pred, Expr::Symbol(_)) {
        Some(same_name(&gold, &pred))
    } else {
        Some(numerically(&gold, &pred, places) || identical(&gold, &pred))
    }
}

/// Drops the left side of equations where the other answer has none: `x = 3` against `3`.
fn unwrapped(gold: &Expr, pred: &Expr) -> (Expr, Expr) {
    let (gold_assigns, pred_assigns) = (is_assignment(gold), is_assignment(pred));
    let (gold_equates, pred_equates) = (is_equation(gold), is_equation(pred));
    let shorten = |expr: &Expr, assigns: bool| match (first(expr), last(expr)) {
        (Some((left, _)), Some((_, right))) if assigns => {
            Expr::Relation(Compare::Eq, Box::new(left.clone()), Box::new(right.clone()))
        }
        _ => expr.clone(),
    };
    let (mut gold, mut pred) = (shorten(gold, gold_assigns), shorten(pred, pred_assigns));
    let right = |expr: &Expr| last(expr).map(|sides| sides.1.clone());
    if pred_equates && !gold_equates {
        if let Some(side) = right(&pred) {
            pred = side;
        }
    } else if gold_assigns
        && !pred_equates
        && let Some(side) = right(&gold)
    {
        gold = side;
    }
    (gold, pred)
}

fn sides(expr: &Expr) -> Option<(&Expr, &Expr)> {
    match expr {
        Expr::Relation(_, left, right) => Some((left, right)),
        _ => None,
    }
}

fn first(expr: &Expr) -> Option<(&Expr, &Expr)> {
    match expr {
        Expr::And(parts) => sides(parts.first()?),
        other => sides(other),
    }
}

pub(super) fn last(expr: &Expr) -> Option<(&Expr, &Expr)> {
    match expr {
        Expr::And(parts) => sides(parts.last()?),
        other => sides(other),
    }
}

fn is_equation(expr: &Expr) -> bool {
    let equates = |expr: &Expr| matches!(expr, Expr::Relation(Compare::Eq, ..));
    match expr {
        Expr::And(parts) => !parts.is_empty() && parts.iter().all(equates),
        other => equates(other),
    }
}

pub(super) fn is_assignment(expr: &Expr) -> bool {
    is_equation(expr) && first(expr).is_some_and(|sides| sides.0.only_symbols())
}

/// Compares where at least one side is a bare symbol: by name, letters of a product joined.
fn same_name(gold: &Expr, pred: &Expr) -> bool {
    for (one, other) in [(gold, pred), (pred, gold)] {
        let Expr::Symbol(name) = one else { continue };
        if *other == Expr::Constant(Constant::E) && name.text.to_lowercase() == "e" {
            return true;
        }
        if let Expr::Mul(factors) = other
            && let Some(joined) = joined(factors)
        {
            return name.text.to_lowercase() == joined.to_lowercase();
        }
    }
    match (gold, pred) {
        (Expr::Symbol(gold), Expr::Symbol(pred)) => {
            let folded = |text: &str| {
                if text.chars().nth(1).is_some() { text.to_lowercase() } else { text.to_owned() }
            };
            folded(&gold.text) == folded(&pred.text)
        }
        (Expr::Symbol(name), other) | (other, Expr::Symbol(name)) => {
            printed(other).is_some_and(|text| *text == *name.text)
        }
        _ => false,
    }
}

fn joined(factors: &[Expr]) -> Option<String> {
    factors
        .iter()
        .map(|factor| match factor {
            Expr::Symbol(name) => Some(name.text.as_ref()),
            Expr::Constant(Constant::E) => Some("e"),
            _ => None,
        })
        .collect()
}

/// How the reference prints the simplest objects.
fn printed(expr: &Expr) -> Option<String> {
    Some(match expr {
        Expr::Number(value) => value.to_string(),
        Expr::Constant(Constant::Infinity) => "oo".to_owned(),
        Expr::Constant(Constant::ComplexInfinity) => "zoo".to_owned(),
        Expr::Constant(Constant::Undefined) => "nan".to_owned(),
        Expr::Constant(Constant::I) => "I".to_owned(),
        Expr::Constant(Constant::E) => "E".to_owned(),
        _ => return None,
    })
}

/// The number of an atom, with or without a percent sign.
fn atom(expr: &Expr) -> Option<&Expr> {
    if expr.is_number_node() {
        return Some(expr);
    }
    expr.percent_value().filter(|value| value.is_number_node())
}

/// Equality of numbers, floats rounded.
pub(super) fn numerically(a: &Expr, b: &Expr, places: i64) -> bool {
    if let (
        Expr::Matrix { rows, columns, cells },
        Expr::Matrix { rows: more_rows, columns: more_columns, cells: more },
    ) = (a, b)
    {
        return (rows, columns) == (more_rows, more_columns)
            && cells.iter().zip(more).all(|(a, b)| numerically(a, b, places));
    }
    let (left, right) = (atom(a), atom(b));
    if left.is_some() || right.is_some() {
        let float = |side: Option<&Expr>| matches!(side, Some(Expr::Float(_)));
        if float(left) || float(right) {
            return match (rounded(a, places), rounded(b, places)) {
                (Some(a), Some(b)) => a == b,
                _ => false,
            };
        }
        if let (Some(left), Some(right)) = (left, right)
            && left.is_integer()
            && right.is_integer()
        {
            return left == right;
        }
        return matches!((mixed(a), mixed(b)), (Some(x), Some(y)) if x == y);
    }
    if has_symbols(a) || has_symbols(b) {
        return false;
    }
    match (mixed(a), mixed(b)) {
        (Some(x), Some(y)) => {
            let off = x.minus(y);
            off.value.is_zero()
                || off.bits.is_some() && off.value.abs() < Rat::new(1.into(), (1_i64 << 49).into())
        }
        _ => match (constant(a), constant(b)) {
            (Some(x), Some(y)) => {
                let off = x - y;
                off.re.hi.abs() < 2f64.powi(-49) && off.im.hi.abs() < 2f64.powi(-49)
            }
            _ => false,
        },
    }
}

fn has_float(expr: &Expr) -> bool {
    float_bits(expr).is_some()
}

/// The highest precision among the floats of an expression.
fn float_bits(expr: &Expr) -> Option<u32> {
    let mut bits = None;
    expr.walk(&mut |part| {
        if let Expr::Float(float) = part {
            bits = bits.max(Some(float.bits));
        }
    });
    bits
}

/// A rounded number: integers stay integers, and never equal a float.
#[derive(Debug, PartialEq, Eq)]
enum Rounded {
    Whole(Rat),
    Float(Rat),
    Constant(Constant),
}

fn rounded(expr: &Expr, places: i64) -> Option<Rounded> {
    if let Expr::Constant(
        constant @ (Constant::Infinity | Constant::MinusInfinity | Constant::Undefined),
    ) = expr
    {
        return Some(Rounded::Constant(*constant));
    }
    let bits = float_bits(expr);
    let value = match mixed(expr) {
        Some(found) if found.bits.is_none() && found.value.is_integer() => {
            return Some(Rounded::Whole(found.value));
        }
        Some(found) => found.value,
        None => {
            let value = constant(expr).filter(|value| value.is_real())?;
            from_dd(value.re)?
        }
    };
    if value.is_zero() {
        return Some(Rounded::Float(value));
    }
    Some(Rounded::Float(round_decimals(&value, bits, places)))
}

/// Whether the difference of the two is zero for all values of their symbols.
pub(super) fn identical(a: &Expr, b: &Expr) -> bool {
    if let (
        Expr::Matrix { rows, columns, cells },
        Expr::Matrix { rows: more_rows, columns: more_columns, cells: more },
    ) = (a, b)
    {
        return (rows, columns) == (more_rows, more_columns)
            && cells.iter().zip(more).all(|(a, b)| identical(a, b));
    }
    let floats = has_float(a) || has_float(b);
    let symbolic = has_symbols(a) || has_symbols(b);
    if !floats && (symbolic || !(is_infinite(a) || is_infinite(b))) && tidy(a) == tidy(b) {
        return true;
    }
    if let (Some(x), Some(y)) = (mixed(a), mixed(b)) {
        return x.minus(y).value.is_zero();
    }
    let (mut agreed, mut largest) = (0, 1.0_f64);
    for point in 0..if symbolic { 12 } else { 1 } {
        let mut evaluator = Evaluator::at(point);
        let (Some(x), Some(y)) = (evaluator.value(a), evaluator.value(b)) else {
            if evaluator.exhausted() {
                return false;
            }
            continue;
        };
        let size = x.abs().hi.max(y.abs().hi).max(1.0);
        let tolerance = match (evaluator.loose.get(), floats) {
            (true, _) => 1e-9,
            (false, true) => 1.2e-16,
            (false, false) => 1e-22,
        };
        if (x - y).abs().hi > tolerance * size {
            return false;
        }
        agreed += 1;
        largest = largest.max(size);
        if agreed == 5 {
            break;
        }
    }
    agreed >= if symbolic { 2 } else { 1 }
        && (floats || !symbolic || largest < LARGE || cancels(a, b))
}

/// Values beyond this swamp the other terms of a sum.
const LARGE: f64 = 1e8;

/// Whether the difference of two formulas vanishes relative to its remaining terms, after large common terms, and the
/// rounding error they cause, have cancelled.
fn cancels(a: &Expr, b: &Expr) -> bool {
    let difference = tidy(&Expr::plus(a.clone(), b.clone().negated()));
    let terms = match &difference {
        Expr::Add(terms) => terms.as_slice(),
        other => std::slice::from_ref(other),
    };
    (0..3).all(|point| {
        let mut evaluator = Evaluator::at(point);
        let values: Option<Vec<_>> = terms.iter().map(|term| evaluator.value(term)).collect();
        // Points without a value were decided by the caller.
        let Some(values) = values else { return true };
        let size = values.iter().map(|value| value.abs().hi).fold(1.0, f64::max);
        let sum = values.into_iter().reduce(|sum, value| sum + value);
        sum.is_none_or(|sum| sum.abs().hi <= 1e-9 * size)
    })
}

/// Whether the expression contains something infinite, so that a difference with itself is not zero.
fn is_infinite(expr: &Expr) -> bool {
    let zero = |part: &Expr| exact(part).is_some_and(|value| value.is_zero());
    let mut found = false;
    expr.walk(&mut |part| {
        found |= match part {
            Expr::Apply(Fun::Log, args) => args.iter().any(zero),
            Expr::Pow(base, exponent) => {
                zero(base) && exact(exponent).is_some_and(|value| value.is_negative())
            }
            Expr::Constant(constant) => {
                matches!(
                    constant,
                    Constant::Infinity
                        | Constant::MinusInfinity
                        | Constant::ComplexInfinity
                        | Constant::Undefined
                )
            }
            _ => false,
        };
    });
    found
}
