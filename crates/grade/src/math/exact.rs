//! Exact rational values of expressions that have one: arithmetic, integer and perfect powers, factorials,
//! binomials, floors, finite sums and products.
//!
//! Sizes are bounded; larger or irrational values are `None`.

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::convert_atoms::small;
use super::eval::substitute;
use super::expr::{Constant, Expr, Fun};
use super::number::{Rat, integer};

/// Largest integer, in bits.
const MOST_BITS: u64 = 60_000;
/// Largest numerator or denominator of a fraction, in bits; reducing it takes quadratic time.
const MOST_FRACTION_BITS: u64 = 6_000;
/// Most operations for one value.
const MOST_STEPS: u64 = 20_000;
/// Most terms of a sum or product.
pub(super) const MOST_TERMS: i64 = 1000;

/// The exact value of `expr`, floats taken at their binary value.
pub(super) fn exact(expr: &Expr) -> Option<Rat> {
    match expr {
        Expr::Number(value) => return Some(value.clone()),
        Expr::Symbol(_) | Expr::Constant(_) => return None,
        _ => {}
    }
    if steps(expr, 0)? > MOST_STEPS { None } else { value(expr) }
}

/// Number of operations of an evaluation, each term of a sum counted.
fn steps(expr: &Expr, depth: usize) -> Option<u64> {
    if depth > 1500 {
        return None;
    }
    if let Expr::Apply(Fun::Sum | Fun::Product, args) = expr {
        let [body, Expr::Symbol(_), from, to] = args.as_slice() else { return None };
        // Bounds that depend on an outer variable count as the worst case.
        let count = match (exact(from).as_ref().and_then(small), exact(to).as_ref().and_then(small))
        {
            (Some(from), Some(to)) => u64::try_from(to.checked_sub(from)?.max(0)).ok()?,
            _ => 1000,
        };
        return (count + 1).checked_mul(steps(body, depth + 1)?.checked_mul(2)?);
    }
    let mut total = 1_u64;
    for part in expr.parts() {
        total = total.checked_add(steps(part, depth + 1)?)?;
    }
    Some(total)
}

fn add(a: &Rat, b: &Rat) -> Rat {
    if a.is_integer() && b.is_integer() { Rat::from_integer(a.numer() + b.numer()) } else { a + b }
}

fn multiply(a: &Rat, b: &Rat) -> Rat {
    if a.is_integer() && b.is_integer() { Rat::from_integer(a.numer() * b.numer()) } else { a * b }
}

fn value(expr: &Expr) -> Option<Rat> {
    let value = match expr {
        Expr::Number(value) => value.clone(),
        Expr::Float(float) => float.value.clone(),
        Expr::Add(terms) => {
            let mut sum = Rat::zero();
            for term in terms {
                sum = add(&sum, &value(term)?);
                bounded(&sum)?;
            }
            sum
        }
        Expr::Mul(factors) => {
            let mut product = Rat::one();
            for factor in factors {
                product = multiply(&product, &value(factor)?);
                bounded(&product)?;
            }
            product
        }
        Expr::Pow(base, exponent) => power(&value(base)?, &value(exponent)?)?,
        Expr::Held(inner) => value(inner)?,
        Expr::Apply(fun, args) => apply(fun, args)?,
        _ => return None,
    };
    bounded(&value)?;
    Some(value)
}

fn bounded(value: &Rat) -> Option<()> {
    let most = if value.is_integer() { MOST_BITS } else { MOST_FRACTION_BITS };
    (value.numer().bits() < most && value.denom().bits() < most).then_some(())
}

fn power(base: &Rat, exponent: &Rat) -> Option<Rat> {
    if exponent.is_integer() {
        let exponent = exponent.to_integer().to_i64()?;
        if base.is_zero() {
            return match exponent {
                0 => Some(Rat::one()),
                1.. => Some(Rat::zero()),
                _ => None,
            };
        }
        let size = base.numer().bits().max(base.denom().bits());
        if size > 1 && size.checked_mul(exponent.unsigned_abs())? > MOST_BITS {
            return None;
        }
        let exponent = if size > 1 {
            i32::try_from(exponent).ok()?
        } else {
            i32::try_from(exponent % 2).ok()?
        };
        return Some(base.pow(exponent));
    }
    let degree = u32::try_from(exponent.denom().to_i64()?).ok().filter(|degree| *degree <= 64)?;
    if base.is_negative() {
        return None;
    }
    let (top, bottom) = (base.numer().nth_root(degree), base.denom().nth_root(degree));
    if top.pow(degree) != *base.numer() || bottom.pow(degree) != *base.denom() {
        return None;
    }
    power(&Rat::new(top, bottom), &Rat::from_integer(exponent.numer().clone()))
}

fn apply(fun: &Fun, args: &[Expr]) -> Option<Rat> {
    match fun {
        Fun::Sum | Fun::Product => return series(fun, args),
        Fun::Log => return logarithm(args),
        _ => {}
    }
    let values = args.iter().map(value).collect::<Option<Vec<_>>>()?;
    let first = values.first()?;
    Some(match fun {
        Fun::Abs => first.abs(),
        Fun::Floor => first.floor(),
        Fun::Ceiling => first.ceil(),
        Fun::Factorial => factorial(small(first)?)?,
        Fun::Gamma => factorial(small(first)?.checked_sub(1)?)?,
        Fun::Binomial => binomial(first, small(values.get(1)?)?)?,
        Fun::Max => values.iter().max()?.clone(),
        Fun::Min => values.iter().min()?.clone(),
        Fun::Mod => {
            let by = values.get(1).filter(|by| !by.is_zero())?;
            first - by * (first / by).floor()
        }
        Fun::Gcd => Rat::from_integer(fold_integers(&values, |a, b| a.gcd(&b))?),
        Fun::Lcm => Rat::from_integer(fold_integers(&values, |a, b| a.lcm(&b))?),
        Fun::Sin
        | Fun::Tan
        | Fun::Asin
        | Fun::Atan
        | Fun::Sinh
        | Fun::Tanh
        | Fun::Asinh
        | Fun::Atanh
            if first.is_zero() =>
        {
            Rat::zero()
        }
        Fun::Cos | Fun::Cosh | Fun::Exp if first.is_zero() => Rat::one(),
        _ => return None,
    })
}

fn fold_integers(values: &[Rat], join: impl Fn(BigInt, BigInt) -> BigInt) -> Option<BigInt> {
    let whole = |value: &Rat| value.is_integer().then(|| value.to_integer());
    let mut result = whole(values.first()?)?.abs();
    for value in values {
        result = join(result, whole(value)?);
        if result.bits() > MOST_BITS {
            return None;
        }
    }
    Some(result)
}

fn factorial(n: i64) -> Option<Rat> {
    if !(0..=4000).contains(&n) {
        return None;
    }
    Some(Rat::from_integer((1..=n).map(BigInt::from).product()))
}

fn binomial(n: &Rat, k: i64) -> Option<Rat> {
    if k < 0 {
        return Some(Rat::zero());
    }
    // By symmetry the smaller side gives the same integer with less work.
    let k = match small(n) {
        Some(whole) if whole >= k => k.min(whole - k),
        _ => k,
    };
    if k > if n.is_integer() { 1000 } else { 60 } || n.numer().bits() > 64 || n.denom().bits() > 16
    {
        return None;
    }
    let (mut top, mut bottom) = (BigInt::one(), BigInt::one());
    for step in 0..k {
        top *= n.numer() - n.denom() * step;
        bottom *= n.denom() * (step + 1);
    }
    Some(if n.is_integer() { Rat::from_integer(top / bottom) } else { Rat::new(top, bottom) })
}

/// Logarithm of a power to the base of another power of the same number.
fn logarithm(args: &[Expr]) -> Option<Rat> {
    let number = value(args.first()?)?;
    if number.is_one() {
        return Some(Rat::zero());
    }
    let base = value(args.get(1)?)?;
    if !number.is_positive() || !base.is_positive() || base.is_one() {
        return None;
    }
    let (mut a, mut b) = (number, base);
    let mut sign = Rat::one();
    if a < Rat::one() {
        a = a.recip();
        sign = -sign;
    }
    if b < Rat::one() {
        b = b.recip();
        sign = -sign;
    }
    let ratio = logarithm_f64(&a) / logarithm_f64(&b);
    for bottom in 1..=12_i32 {
        let top = (ratio * f64::from(bottom)).round();
        if (ratio * f64::from(bottom) - top).abs() < 1e-9 * f64::from(bottom) && top <= 4000.0 {
            let top = integer(top as i64);
            let bottom = integer(i64::from(bottom));
            if power(&a, &bottom)? == power(&b, &top)? {
                return Some(sign * top / bottom);
            }
            return None;
        }
    }
    None
}

fn logarithm_f64(value: &Rat) -> f64 {
    let bits = value.numer().bits() as f64 - value.denom().bits() as f64;
    match value.to_f64() {
        Some(value) if value.is_finite() && value > 0.0 => value.ln(),
        _ => bits * std::f64::consts::LN_2,
    }
}

fn series(fun: &Fun, args: &[Expr]) -> Option<Rat> {
    let [body, Expr::Symbol(variable), from, to] = args else { return None };
    let (from, to) = (small(&value(from)?)?, small(&value(to)?)?);
    if to.checked_sub(from)? > MOST_TERMS {
        return None;
    }
    let mut result = if *fun == Fun::Sum { Rat::zero() } else { Rat::one() };
    for at in from..=to {
        let term = value(&substitute(body, variable, &Expr::int(at)))?;
        if *fun == Fun::Sum {
            result = add(&result, &term);
        } else {
            result = multiply(&result, &term);
        }
        bounded(&result)?;
    }
    Some(result)
}

/// Whether an expression is an infinity or undefined as it stands.
pub(super) fn is_singular(expr: &Expr) -> bool {
    matches!(expr, Expr::Constant(Constant::ComplexInfinity | Constant::Undefined))
}
