//! Compares equations and inequalities, and turns a relation in one unknown into the set it describes.
//!
//! Solves linear and quadratic equations only.

use std::cmp::Ordering;

use super::compare::{equal as equal_objects, identical};
use super::dd::Cx;
use super::eval::{Evaluator, constant, has_symbols, order, substitute};
use super::expr::{Compare, Constant, Expr, Fun, Interval, Joined, Name};
use super::number::Rat;
use super::tidy::tidy;

/// Whether two relations, or chains of them, are equivalent.
pub(super) fn equal(gold: &Expr, pred: &Expr, places: i64) -> Option<bool> {
    if let (Expr::And(golds), Expr::And(preds)) = (gold, pred) {
        for (at, gold) in golds.iter().enumerate() {
            if !equal(gold, preds.get(at)?, places)? {
                return Some(false);
            }
        }
        return if golds.len() == preds.len() { Some(true) } else { None };
    }
    let (Expr::Relation(gold_sign, a, b), Expr::Relation(pred_sign, c, d)) = (gold, pred) else {
        return Some(false);
    };
    let differs = |parts: [&Expr; 2]| {
        parts
            .iter()
            .any(|part| part.is_set() || matches!(part, Expr::Tuple(_) | Expr::Matrix { .. }))
    };
    let plain = !differs([a, b]) && !differs([c, d]);
    if gold_sign == pred_sign && plain && same_difference(&minus(a, b), &minus(c, d), places) {
        return Some(true);
    }
    let inverse = match gold_sign {
        Compare::Gt => Compare::Lt,
        Compare::Lt => Compare::Gt,
        Compare::Ge => Compare::Le,
        Compare::Le => Compare::Ge,
        Compare::Eq => Compare::Eq,
        Compare::Ne => return None,
    };
    if inverse == *pred_sign && plain && same_difference(&minus(a, b), &minus(d, c), places) {
        return Some(true);
    }
    Some(
        *gold_sign == Compare::Eq
            && *pred_sign == Compare::Eq
            && plain
            && same_solutions(&minus(a, b), &minus(c, d)),
    )
}

fn same_difference(a: &Expr, b: &Expr, places: i64) -> bool {
    equal_objects(a, b, places) == Some(true)
}

/// `a - b` in its standard form.
fn minus(a: &Expr, b: &Expr) -> Expr {
    tidy(&Expr::plus(a.clone(), b.clone().negated()))
}

/// A polynomial of degree two at most in one symbol, its coefficients at one point.
struct Parabola {
    a: Cx,
    b: Cx,
    c: Cx,
}

fn close(x: Cx, y: Cx) -> bool {
    (x - y).abs().hi <= 1e-18 * x.abs().hi.max(y.abs().hi).max(1.0)
}

/// Fits a parabola in `name` at a point of the other symbols and checks it elsewhere.
fn parabola(expr: &Expr, name: &Name, point: u64) -> Option<Parabola> {
    let mut evaluator = Evaluator::at(point);
    let mut at = |value: f64| {
        evaluator.bind(name, Cx::from_f64(value));
        let found = evaluator.value(expr);
        evaluator.unbind();
        found
    };
    let (zero, plus, minus) = (at(0.0)?, at(1.0)?, at(-1.0)?);
    let half = Cx::from_f64(0.5);
    let found = Parabola { a: (plus + minus) * half - zero, b: (plus - minus) * half, c: zero };
    for point in [2.5, -3.75] {
        let x = Cx::from_f64(point);
        if !close(found.a * x * x + found.b * x + found.c, at(point)?) {
            return None;
        }
    }
    Some(found)
}

fn vanishes(value: Cx) -> bool {
    value.abs().hi < 1e-20
}

/// Whether two equations `a = 0` and `b = 0` have the same solutions, as the reference would find them.
fn same_solutions(a: &Expr, b: &Expr) -> bool {
    let (names, more) = (a.symbols(), b.symbols());
    let none = |expr: &Expr, names: &[Name]| match names {
        // Nothing to solve for, whether the equation is true or false.
        [] => true,
        [name] => has_no_solution(expr, name),
        _ => false,
    };
    match (names.len(), more.len()) {
        // Solutions in one unknown are never compared, except that none equals none.
        (0 | 1, 0 | 1) => none(a, &names) && none(b, &more),
        (0 | 1, _) | (_, 0 | 1) => false,
        _ => names == more && names.iter().any(|name| same_roots(a, b, name)),
    }
}

/// Whether there is no solution in the domain of the unknown, real or complex.
fn has_no_solution(expr: &Expr, name: &Name) -> bool {
    let Some(Parabola { a, b, c }) = parabola(expr, name, 0) else { return false };
    // Beside a number this large the others are lost to rounding.
    if c.abs().hi > 1e10 {
        return false;
    }
    if vanishes(a) {
        return vanishes(b) || (!name.real && (c / b).is_real());
    }
    let discriminant = b * b - Cx::from_f64(4.0) * a * c;
    if name.real {
        return discriminant.is_real() && discriminant.re.hi < -1e-20;
    }
    [b / a, discriminant / (a * a)].iter().all(|value| value.is_real())
        && (discriminant / (a * a)).re.hi >= -1e-20
}

fn same_roots(a: &Expr, b: &Expr, name: &Name) -> bool {
    (0..4).all(|point| {
        let (Some(p), Some(q)) = (parabola(a, name, point), parabola(b, name, point)) else {
            return false;
        };
        // Proportional coefficients have the same roots.
        let lead = |p: &Parabola| if vanishes(p.a) { p.b } else { p.a };
        vanishes(p.a) == vanishes(q.a)
            && !vanishes(lead(&p))
            && !vanishes(lead(&q))
            && close(p.a / lead(&p), q.a / lead(&q))
            && close(p.b / lead(&p), q.b / lead(&q))
            && close(p.c / lead(&p), q.c / lead(&q))
    })
}

/// The set a relation in one real unknown describes.
pub(super) fn solution_set(relation: &Expr) -> Option<Expr> {
    match relation {
        Expr::And(parts) => {
            let mut sets = parts.iter().map(solution_set);
            let first = sets.next()??;
            sets.try_fold(first, |set, next| both(set, next?))
        }
        Expr::Relation(compare, left, right) => {
            let difference = named_functions(&minus(left, right));
            match difference.symbols().as_slice() {
                [name] => solve(*compare, &difference, name),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Unknown functions count as unknowns of their own.
fn named_functions(expr: &Expr) -> Expr {
    match expr {
        Expr::Apply(Fun::Named(name), args) => {
            let text = format!("{name}_{args:?}");
            Expr::Symbol(Name { text: text.into(), real: true })
        }
        Expr::Add(parts) => Expr::Add(parts.iter().map(named_functions).collect()),
        Expr::Mul(parts) => Expr::Mul(parts.iter().map(named_functions).collect()),
        Expr::Pow(base, exponent) => Expr::pow(named_functions(base), named_functions(exponent)),
        other => other.clone(),
    }
}

fn solve(compare: Compare, expr: &Expr, name: &Name) -> Option<Expr> {
    let (roots, poles) = roots(expr, name)?;
    let sign_at = |x: f64| {
        let mut evaluator = Evaluator::at(0);
        evaluator.bind(name, Cx::from_f64(x));
        evaluator.value(expr).filter(|value| value.is_real()).map(|value| value.re.hi)
    };
    let wanted = |value: f64| match compare {
        Compare::Lt | Compare::Le => value < 0.0,
        Compare::Gt | Compare::Ge => value > 0.0,
        Compare::Ne => value != 0.0,
        Compare::Eq => false,
    };
    let closed = matches!(compare, Compare::Le | Compare::Ge | Compare::Eq);
    // Marks on the line: roots, where the value is zero, and poles, where there is none.
    let mut marks: Vec<(f64, Expr, bool)> = Vec::new();
    for (at, is_root) in
        roots.into_iter().map(|at| (at, true)).chain(poles.into_iter().map(|at| (at, false)))
    {
        let value = constant(&at).filter(|value| value.is_real())?.re.hi;
        marks.push((value, at, is_root));
    }
    marks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let infinity = |constant| (Expr::Constant(constant), false);
    let mut set: Option<Expr> = None;
    let mut before = infinity(Constant::MinusInfinity);
    let mut before_value = f64::NEG_INFINITY;
    let ends =
        marks.into_iter().chain([(f64::INFINITY, Expr::Constant(Constant::Infinity), false)]);
    for (value, at, is_root) in ends {
        let middle = match (before_value.is_finite(), value.is_finite()) {
            (false, false) => 0.123,
            (false, true) => value - 1.0,
            (true, false) => before_value + 1.0,
            (true, true) => f64::midpoint(before_value, value),
        };
        if sign_at(middle).is_some_and(wanted) {
            let piece = Interval {
                from: before.0.clone(),
                to: at.clone(),
                left_open: !(closed && before.1),
                right_open: !(closed && is_root),
            };
            set = joined(set, Expr::Interval(Box::new(piece)));
        } else if closed && is_root {
            set = joined(set, Expr::Set(vec![at.clone()]));
        }
        before = (at, is_root);
        before_value = value;
    }
    Some(gathered(set.unwrap_or(Expr::EmptySet), compare))
}

/// The solutions of an equation as one finite set.
fn gathered(set: Expr, compare: Compare) -> Expr {
    fn points(set: &Expr, found: &mut Vec<Expr>) {
        match set {
            Expr::Joined(_, a, b) => {
                points(a, found);
                points(b, found);
            }
            Expr::Set(elements) => found.extend(elements.iter().cloned()),
            _ => {}
        }
    }
    if compare != Compare::Eq || set == Expr::EmptySet {
        return set;
    }
    let mut found = Vec::new();
    points(&set, &mut found);
    Expr::Set(found)
}

fn joined(set: Option<Expr>, more: Expr) -> Option<Expr> {
    Some(match set {
        None => more,
        Some(set) => Expr::Joined(Joined::Union, Box::new(set), Box::new(more)),
    })
}

/// The roots and poles of an expression that is a line, a parabola, one of these of `|x|`, or a reciprocal of one.
fn roots(expr: &Expr, name: &Name) -> Option<(Vec<Expr>, Vec<Expr>)> {
    if let Some(found) = polynomial_roots(expr, name) {
        return Some((found, Vec::new()));
    }
    // Even in x and linear or quadratic to the right of zero: roots come in pairs.
    let mirrored =
        substitute(expr, name, &Expr::Mul(vec![Expr::int(-1), Expr::Symbol(name.clone())]));
    if identical(expr, &mirrored) {
        let absolute = Expr::Apply(Fun::Abs, vec![Expr::Symbol(name.clone())]);
        let positive = replace(expr, &absolute, &Expr::Symbol(name.clone()));
        let found = polynomial_roots(&positive, name)?;
        let mut both = Vec::new();
        for root in found {
            if order(&root, &Expr::int(0))?.is_ge() {
                both.push(root.clone().negated());
                both.push(root);
            }
        }
        both.dedup();
        return Some((both, Vec::new()));
    }
    let poles = polynomial_roots(&divisor(expr)?, name)?;
    Some((Vec::new(), poles))
}

/// The divisor of `c / divisor`.
fn divisor(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Pow(base, exponent) if **exponent == Expr::int(-1) => Some((**base).clone()),
        Expr::Mul(factors) => {
            let mut only = None;
            for factor in factors {
                match divisor(factor) {
                    Some(found) if only.is_none() => only = Some(found),
                    None if !has_symbols(factor) => {}
                    _ => return None,
                }
            }
            only
        }
        _ => None,
    }
}

fn replace(expr: &Expr, what: &Expr, with: &Expr) -> Expr {
    if expr == what {
        return with.clone();
    }
    match expr {
        Expr::Add(parts) => Expr::Add(parts.iter().map(|part| replace(part, what, with)).collect()),
        Expr::Mul(parts) => Expr::Mul(parts.iter().map(|part| replace(part, what, with)).collect()),
        Expr::Pow(base, exponent) => {
            Expr::pow(replace(base, what, with), replace(exponent, what, with))
        }
        Expr::Apply(fun, parts) => {
            Expr::Apply(fun.clone(), parts.iter().map(|part| replace(part, what, with)).collect())
        }
        other => other.clone(),
    }
}

fn polynomial_roots(expr: &Expr, name: &Name) -> Option<Vec<Expr>> {
    let fit = parabola(expr, name, 0)?;
    let at = |value: i64| {
        let found = substitute(expr, name, &Expr::int(value));
        super::eval::exact(&found).map_or(found, Expr::Number)
    };
    let half = |expr: Expr| Expr::Mul(vec![Expr::Number(Rat::new(1.into(), 2.into())), expr]);
    let (zero, one, minus_one) = (at(0), at(1), at(-1));
    let b = half(Expr::plus(one.clone(), minus_one.clone().negated()));
    let quotient = |top: Expr, bottom: Expr| {
        let found = Expr::Mul(vec![top, Expr::pow(bottom, Expr::int(-1))]);
        super::eval::exact(&found).map_or(found, Expr::Number)
    };
    if vanishes(fit.a) {
        if vanishes(fit.b) {
            return Some(Vec::new());
        }
        return Some(vec![quotient(zero.negated(), b)]);
    }
    let a = Expr::plus(half(Expr::plus(one, minus_one)), zero.clone().negated());
    let square = Expr::Mul(vec![b.clone(), b.clone()]);
    let discriminant = Expr::plus(square, Expr::Mul(vec![Expr::int(-4), a.clone(), zero]));
    let size = constant(&discriminant).filter(|value| value.is_real())?;
    if size.re.hi < -1e-25 {
        return Some(Vec::new());
    }
    let twice = Expr::Mul(vec![Expr::int(2), a]);
    if size.re.hi.abs() <= 1e-25 {
        return Some(vec![quotient(b.negated(), twice)]);
    }
    let root = Expr::pow(discriminant, Expr::Number(Rat::new(1.into(), 2.into())));
    let one = quotient(Expr::plus(b.clone().negated(), root.clone()), twice.clone());
    let other = quotient(Expr::plus(b.negated(), root.negated()), twice);
    Some(vec![one, other])
}

/// The common part of two unions of intervals.
fn both(a: Expr, b: Expr) -> Option<Expr> {
    fn intervals(set: Expr, found: &mut Vec<Interval>) -> Option<()> {
        match set {
            Expr::Joined(Joined::Union, a, b) => intervals(*a, found).and(intervals(*b, found)),
            Expr::Interval(interval) => {
                found.push(*interval);
                Some(())
            }
            Expr::Set(points) => {
                found.extend(points.into_iter().map(|point| Interval {
                    from: point.clone(),
                    to: point,
                    left_open: false,
                    right_open: false,
                }));
                Some(())
            }
            Expr::EmptySet => Some(()),
            _ => None,
        }
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    intervals(a, &mut left)?;
    intervals(b, &mut right)?;
    let mut result = None;
    for one in &left {
        for other in &right {
            match common(one, other)? {
                Expr::EmptySet => {}
                part => result = joined(result, part),
            }
        }
    }
    Some(result.unwrap_or(Expr::EmptySet))
}

fn common(a: &Interval, b: &Interval) -> Option<Expr> {
    let (from, left_open) = match order(&a.from, &b.from)? {
        Ordering::Less => (b.from.clone(), b.left_open),
        Ordering::Greater => (a.from.clone(), a.left_open),
        Ordering::Equal => (a.from.clone(), a.left_open || b.left_open),
    };
    let (to, right_open) = match order(&a.to, &b.to)? {
        Ordering::Less => (a.to.clone(), a.right_open),
        Ordering::Greater => (b.to.clone(), b.right_open),
        Ordering::Equal => (a.to.clone(), a.right_open || b.right_open),
    };
    Some(match order(&from, &to)? {
        Ordering::Less => Expr::Interval(Box::new(Interval { from, to, left_open, right_open })),
        Ordering::Equal if !left_open && !right_open => Expr::Set(vec![from]),
        _ => Expr::EmptySet,
    })
}
