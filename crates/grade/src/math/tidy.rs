//! The standard form of an expression: sums and products flattened, numbers computed, like terms and equal bases
//! collected, parts sorted. Expressions with the same standard form are equal.
//!
//! Does only what SymPy does automatically: nothing is expanded or factored.

use num_traits::{One, Zero};

use super::exact::exact;
use super::expr::Expr;
use super::number::Rat;

/// Deepest expression brought into standard form.
const DEPTH: usize = 60;

/// The standard form of `expr`.
pub(super) fn tidy(expr: &Expr) -> Expr {
    formed(expr, 0)
}

fn formed(expr: &Expr, depth: usize) -> Expr {
    if depth > DEPTH {
        return expr.clone();
    }
    let all = |parts: &[Expr]| -> Vec<Expr> {
        parts.iter().map(|part| formed(part, depth + 1)).collect()
    };
    match expr {
        Expr::Held(inner) => formed(inner, depth + 1),
        Expr::Add(terms) => sum(all(terms)),
        Expr::Mul(factors) => product(all(factors)),
        Expr::Pow(base, exponent) => power(formed(base, depth + 1), formed(exponent, depth + 1)),
        Expr::Apply(fun, args) => {
            let formed = Expr::Apply(fun.clone(), all(args));
            number(&formed).unwrap_or(formed)
        }
        Expr::Tuple(parts) => Expr::Tuple(all(parts)),
        Expr::Matrix { rows, columns, cells } => {
            Expr::Matrix { rows: *rows, columns: *columns, cells: all(cells) }
        }
        Expr::Relation(compare, left, right) => Expr::Relation(
            *compare,
            Box::new(formed(left, depth + 1)),
            Box::new(formed(right, depth + 1)),
        ),
        other => other.clone(),
    }
}

/// The exact value where there is one and no float takes part.
fn number(expr: &Expr) -> Option<Expr> {
    let mut floats = false;
    expr.walk(&mut |part| floats |= matches!(part, Expr::Float(_)));
    if floats { None } else { exact(expr).map(Expr::Number) }
}

/// A term as a number times the rest.
fn split(term: Expr) -> (Rat, Expr) {
    match term {
        Expr::Mul(mut factors) => match factors.first() {
            Some(Expr::Number(value)) => {
                let value = value.clone();
                factors.remove(0);
                let rest = if factors.len() == 1 { factors.remove(0) } else { Expr::Mul(factors) };
                (value, rest)
            }
            _ => (Rat::one(), Expr::Mul(factors)),
        },
        other => (Rat::one(), other),
    }
}

fn scaled(by: Rat, rest: Expr) -> Expr {
    if by.is_one() {
        return rest;
    }
    match rest {
        Expr::Mul(mut factors) => {
            factors.insert(0, Expr::Number(by));
            Expr::Mul(factors)
        }
        other => Expr::Mul(vec![Expr::Number(by), other]),
    }
}

fn sum(terms: Vec<Expr>) -> Expr {
    let mut total = Rat::zero();
    let mut kinds: Vec<(Expr, Rat)> = Vec::new();
    let mut open = terms;
    open.reverse();
    while let Some(term) = open.pop() {
        match term {
            Expr::Number(value) => total += value,
            Expr::Add(more) => open.extend(more.into_iter().rev()),
            other => {
                let (by, rest) = split(other);
                kinds.push((rest, by));
            }
        }
    }
    kinds.sort();
    let mut gathered: Vec<(Expr, Rat)> = Vec::with_capacity(kinds.len());
    for (rest, by) in kinds {
        match gathered.last_mut() {
            Some((last, count)) if *last == rest => *count += by,
            _ => gathered.push((rest, by)),
        }
    }
    let mut result: Vec<Expr> = gathered
        .into_iter()
        .filter(|(_, by)| !by.is_zero())
        .map(|(rest, by)| scaled(by, rest))
        .collect();
    if !total.is_zero() {
        result.push(Expr::Number(total));
    }
    match result.len() {
        0 => Expr::int(0),
        1 => result.swap_remove(0),
        _ => {
            result.sort();
            Expr::Add(result)
        }
    }
}

fn product(factors: Vec<Expr>) -> Expr {
    let mut total = Rat::one();
    let mut bases: Vec<(Expr, Expr)> = Vec::new();
    let mut open = factors;
    while let Some(factor) = open.pop() {
        match factor {
            Expr::Number(value) => total *= value,
            Expr::Mul(more) => open.extend(more),
            Expr::Pow(base, exponent) => bases.push((*base, *exponent)),
            other => bases.push((other, Expr::int(1))),
        }
    }
    if total.is_zero() {
        return Expr::int(0);
    }
    bases.sort();
    let mut gathered: Vec<(Expr, Vec<Expr>)> = Vec::with_capacity(bases.len());
    for (base, exponent) in bases {
        match gathered.last_mut() {
            Some((last, exponents)) if *last == base => exponents.push(exponent),
            _ => gathered.push((base, vec![exponent])),
        }
    }
    let mut result = Vec::with_capacity(gathered.len());
    for (base, exponents) in gathered {
        match power(base, sum(exponents)) {
            Expr::Number(value) => total *= value,
            Expr::Mul(more) => {
                for factor in more {
                    match factor {
                        Expr::Number(value) => total *= value,
                        other => result.push(other),
                    }
                }
            }
            other => result.push(other),
        }
    }
    result.sort();
    match (result.len(), total.is_one()) {
        (0, _) => Expr::Number(total),
        (1, true) => result.swap_remove(0),
        // A number is multiplied into a sum.
        (1, false) if matches!(result[0], Expr::Add(_)) => match result.swap_remove(0) {
            Expr::Add(terms) => sum(terms
                .into_iter()
                .map(|term| product(vec![Expr::Number(total.clone()), term]))
                .collect()),
            other => other,
        },
        _ => {
            scaled(total, if result.len() == 1 { result.swap_remove(0) } else { Expr::Mul(result) })
        }
    }
}

fn power(base: Expr, exponent: Expr) -> Expr {
    if let Expr::Number(value) = &exponent {
        if value.is_zero() {
            return Expr::int(1);
        }
        if value.is_one() {
            return base;
        }
        if value.is_integer() {
            match base {
                Expr::Pow(inner, first) => return power(*inner, product(vec![*first, exponent])),
                Expr::Mul(factors) => {
                    return product(
                        factors.into_iter().map(|factor| power(factor, exponent.clone())).collect(),
                    );
                }
                _ => {}
            }
        }
    }
    let result = Expr::pow(base, exponent);
    number(&result).unwrap_or(result)
}

#[cfg(test)]
mod tests {
    use super::super::convert::read_latex;
    use super::*;

    fn form(latex: &str) -> Expr {
        tidy(&read_latex(latex, true).expect(latex))
    }

    #[test]
    fn equal_at_sight() {
        for (a, b) in [
            ("x+1", "1+x"),
            ("2(x+1)", "2x+2"),
            ("\\frac{2b}{2}", "b"),
            ("x\\cdot x", "x^2"),
            ("x-x", "0"),
            ("\\frac{1}{x}x", "1"),
            ("(xy)^2", "x^2y^2"),
            ("x+(0+0)", "x"),
        ] {
            assert_eq!(form(a), form(b), "{a} {b}");
        }
        assert_ne!(form("(x-1)(x+1)"), form("x^2-1"));
    }
}
