//! Evaluates expressions numerically, over complex numbers, at given or pseudo-random values of their symbols.

use std::cell::Cell;
use std::cmp::Ordering;

use super::dd::{Cx, Dd, EULER_DD, PI_DD};
pub(super) use super::exact::exact;
use super::exact::{MOST_TERMS, is_singular};
use super::expr::{Constant, Expr, Fun, Name};
use super::functions::{asin, atan, gamma, near_integer, trigonometric};
pub(super) use super::matrix::{determinant, matrix_operation, norm, trace, transposed};
use super::number::to_dd;

/// Most steps of one evaluation; sums and integrals multiply them.
const BUDGET: u32 = 40_000;

/// Evaluates expressions at one point.
pub(super) struct Evaluator {
    /// Index of the pseudo-random point; at the first two all symbols are positive or all negative.
    point: u64,
    bound: Vec<(Name, Cx)>,
    steps: Cell<u32>,
    /// Whether a step had double precision only.
    pub(super) loose: Cell<bool>,
}

impl Evaluator {
    pub(super) fn at(point: u64) -> Self {
        Self { point, bound: Vec::new(), steps: Cell::new(0), loose: Cell::new(false) }
    }

    /// Whether the last evaluation exceeded its limit.
    pub(super) fn exhausted(&self) -> bool {
        self.steps.get() > BUDGET
    }

    /// With one symbol given a value.
    pub(super) fn bind(&mut self, name: &Name, value: Cx) {
        self.bound.push((name.clone(), value));
    }

    pub(super) fn unbind(&mut self) {
        self.bound.pop();
    }

    /// The value of `expr`, if it has a finite one here.
    pub(super) fn value(&mut self, expr: &Expr) -> Option<Cx> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > BUDGET {
            return None;
        }
        let value = match expr {
            Expr::Number(value) => Cx::real(to_dd(value)),
            Expr::Float(float) => Cx::real(to_dd(&float.value)),
            Expr::Constant(constant) => match constant {
                Constant::Pi => Cx::real(PI_DD),
                Constant::E => Cx::real(Dd::ONE.exp()),
                Constant::EulerGamma => Cx::real(EULER_DD),
                Constant::I => Cx::I,
                _ => return None,
            },
            Expr::Symbol(name) => self.symbol(name),
            Expr::Add(terms) => {
                let mut sum = Cx::ZERO;
                for term in terms {
                    sum = sum + self.value(term)?;
                }
                sum
            }
            Expr::Mul(factors) => {
                let mut product = Cx::ONE;
                for factor in factors {
                    product = product * self.value(factor)?;
                }
                product
            }
            Expr::Pow(base, exponent) => self.power(base, exponent)?,
            Expr::Held(inner) => self.value(inner)?,
            Expr::Apply(fun, args) => self.apply(fun, args)?,
            _ => return None,
        };
        value.is_finite().then_some(value)
    }

    fn symbol(&self, name: &Name) -> Cx {
        if let Some((_, value)) = self.bound.iter().rev().find(|bound| bound.0 == *name) {
            return *value;
        }
        let seed = mix(&[seed(&name.text), u64::from(name.real)]);
        let size = 0.35 + unit(mix(&[seed, self.point])) * 1.9;
        let negative = match self.point {
            0 => false,
            1 => true,
            point => mix(&[seed, point, 3]) & 1 == 1,
        };
        let real = Dd::new(if negative { -size } else { size });
        if name.real {
            return Cx::real(real);
        }
        Cx { re: real, im: Dd::new(unit(mix(&[seed, self.point, 5])) - 0.4) }
    }

    fn power(&mut self, base: &Expr, exponent: &Expr) -> Option<Cx> {
        let exact_exponent = exact(exponent);
        let base = self.value(base)?;
        if let Some(exponent) = &exact_exponent {
            if exponent.is_integer() {
                let exponent = i64::try_from(exponent.to_integer()).ok()?;
                if base == Cx::ZERO && exponent < 0 {
                    return None;
                }
                return Some(base.powi(exponent));
            }
            if *exponent == num_rational::BigRational::new(1.into(), 2.into()) {
                return Some(base.sqrt());
            }
        }
        let exponent = self.value(exponent)?;
        if base == Cx::ZERO {
            return (exponent.re.hi > 0.0).then_some(Cx::ZERO);
        }
        Some((base.ln() * exponent).exp())
    }

    fn apply(&mut self, fun: &Fun, args: &[Expr]) -> Option<Cx> {
        match fun {
            Fun::Sum | Fun::Product => return self.series(fun, args),
            Fun::Integral => return self.integral(args),
            Fun::Limit => return self.limit(args),
            Fun::Derivative => return self.derivative(args),
            _ => {}
        }
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            match fun {
                // Arguments of an unknown function need not be numbers.
                Fun::Named(_) => values
                    .push(self.value(arg).unwrap_or(Cx::from_f64(unit(seed(&format!("{arg:?}")))))),
                _ => values.push(self.value(arg)?),
            }
        }
        let first = *values.first()?;
        let second = values.get(1).copied();
        Some(match fun {
            Fun::Sin => first.sin_cos().0,
            Fun::Cos => first.sin_cos().1,
            Fun::Tan | Fun::Sec | Fun::Csc | Fun::Cot => trigonometric(fun, first)?,
            Fun::Asin => asin(first),
            Fun::Acos => Cx::real(PI_DD.scale(0.5)) - asin(first),
            Fun::Atan => atan(first),
            Fun::Acsc => asin(Cx::ONE / first),
            Fun::Asec => Cx::real(PI_DD.scale(0.5)) - asin(Cx::ONE / first),
            Fun::Acot if first == Cx::ZERO => Cx::real(PI_DD.scale(0.5)),
            Fun::Acot => atan(Cx::ONE / first),
            Fun::Sinh => (first.exp() - (-first).exp()) * Cx::from_f64(0.5),
            Fun::Cosh => (first.exp() + (-first).exp()) * Cx::from_f64(0.5),
            Fun::Tanh => (first.exp() - (-first).exp()) / (first.exp() + (-first).exp()),
            Fun::Asinh => (first + (first * first + Cx::ONE).sqrt()).ln(),
            Fun::Acosh => (first + (first + Cx::ONE).sqrt() * (first - Cx::ONE).sqrt()).ln(),
            Fun::Atanh => ((Cx::ONE + first).ln() - (Cx::ONE - first).ln()) * Cx::from_f64(0.5),
            Fun::Exp => first.exp(),
            Fun::Log => match second {
                _ if first == Cx::ZERO => return None,
                Some(base) => first.ln() / base.ln(),
                None => first.ln(),
            },
            Fun::Abs => Cx::real(first.abs()),
            Fun::Floor => Cx::real(near_integer(first)?.floor()),
            Fun::Ceiling => Cx::real(-(-near_integer(first)?).floor()),
            Fun::Max => *values.iter().max_by(|a, b| a.re.hi.total_cmp(&b.re.hi))?,
            Fun::Min => *values.iter().min_by(|a, b| a.re.hi.total_cmp(&b.re.hi))?,
            Fun::Mod => {
                let by = second.filter(|by| by.re.hi != 0.0)?;
                first - by * Cx::real(near_integer(first / by)?.floor())
            }
            Fun::Gamma => self.gamma(first)?,
            Fun::Factorial => self.gamma(first + Cx::ONE)?,
            Fun::Binomial => self.binomial(first, second?)?,
            Fun::Named(name) => {
                let place = |part: Dd| ((part.hi * 1e10).round() as i64).cast_unsigned();
                let mut key = vec![seed(name), self.point];
                key.extend(values.iter().flat_map(|value| [place(value.re), place(value.im)]));
                Cx::from_f64(0.3 + unit(mix(&key)))
            }
            _ => return None,
        })
    }

    fn gamma(&self, z: Cx) -> Option<Cx> {
        if !z.is_real() {
            return None;
        }
        let x = z.re.hi;
        if x == x.round() && z.re.lo == 0.0 {
            if x <= 0.0 || x > 170.0 {
                return None;
            }
            let mut product = Dd::ONE;
            for n in 1..(x as i64) {
                product = product * Dd::new(n as f64);
            }
            return Some(Cx::real(product));
        }
        self.loose.set(true);
        Some(Cx::from_f64(gamma(x)))
    }

    fn binomial(&self, n: Cx, k: Cx) -> Option<Cx> {
        let whole = k.re.hi;
        if k.is_real() && whole == whole.round() && k.re.lo == 0.0 && whole < 200.0 {
            if whole < 0.0 {
                return Some(Cx::ZERO);
            }
            let mut result = Cx::ONE;
            for step in 0..(whole as i64) {
                result = result * (n - Cx::from_f64(step as f64)) / Cx::from_f64(step as f64 + 1.0);
            }
            return Some(result);
        }
        Some(self.gamma(n + Cx::ONE)? / (self.gamma(k + Cx::ONE)? * self.gamma(n - k + Cx::ONE)?))
    }

    fn series(&mut self, fun: &Fun, args: &[Expr]) -> Option<Cx> {
        let [body, Expr::Symbol(variable), from, to] = args else { return None };
        let from = self.value(from)?.re.hi;
        let endless = *to == Expr::Constant(Constant::Infinity);
        let to = if endless { from + 3000.0 } else { self.value(to)?.re.hi };
        if from != from.round() || to != to.round() || (!endless && to - from > MOST_TERMS as f64) {
            return None;
        }
        let mut result = if *fun == Fun::Sum { Cx::ZERO } else { Cx::ONE };
        let mut at = from;
        while at <= to {
            self.bind(variable, Cx::from_f64(at));
            let term = self.value(body);
            self.unbind();
            let term = term?;
            let before = result;
            result = if *fun == Fun::Sum { result + term } else { result * term };
            if endless && (result - before).abs().hi <= 1e-34 * result.abs().hi && at > from + 5.0 {
                return Some(result);
            }
            at += 1.0;
        }
        (!endless).then_some(result)
    }

    /// Gauss-Legendre quadrature over panels: smooth integrands to about twelve digits.
    fn integral(&mut self, args: &[Expr]) -> Option<Cx> {
        const NODES: [(f64, f64); 5] = [
            (0.148_874_338_981_631_2, 0.295_524_224_714_752_9),
            (0.433_395_394_129_247_2, 0.269_266_719_309_996_36),
            (0.679_409_568_299_024_4, 0.219_086_362_515_982_04),
            (0.865_063_366_688_984_5, 0.149_451_349_150_580_6),
            (0.973_906_528_517_171_7, 0.066_671_344_308_688_14),
        ];
        let [body, Expr::Symbol(variable), from, to] = args else { return None };
        let (from, to) = (self.value(from)?, self.value(to)?);
        self.loose.set(true);
        let panels = 32.0;
        let half = (to.re.hi - from.re.hi) / panels / 2.0;
        let mut sum = Cx::ZERO;
        let mut panel = 0.0;
        while panel < panels {
            let middle = from.re.hi + half * (2.0 * panel + 1.0);
            for (place, weight) in NODES {
                for side in [-place, place] {
                    self.bind(variable, Cx::from_f64(middle + half * side));
                    let value = self.value(body);
                    self.unbind();
                    sum = sum + value? * Cx::from_f64(weight * half);
                }
            }
            panel += 1.0;
        }
        Some(sum)
    }

    fn limit(&mut self, args: &[Expr]) -> Option<Cx> {
        let [body, Expr::Symbol(variable), place] = args else { return None };
        let place = match place {
            Expr::Constant(Constant::Infinity) => Cx::from_f64(1e10),
            Expr::Constant(Constant::MinusInfinity) => Cx::from_f64(-1e10),
            other => self.value(other)? + Cx::from_f64(1e-9),
        };
        self.loose.set(true);
        self.bind(variable, place);
        let value = self.value(body);
        self.unbind();
        // Takes a nearby number with few digits as the limit.
        let value = value?;
        Some(Cx {
            re: Dd::new((value.re.hi * 1e7).round() / 1e7),
            im: Dd::new((value.im.hi * 1e7).round() / 1e7),
        })
    }

    fn derivative(&mut self, args: &[Expr]) -> Option<Cx> {
        let [body, Expr::Symbol(variable)] = args else { return None };
        let here = self.symbol(variable);
        self.loose.set(true);
        let mut around = [Cx::ZERO; 2];
        for (value, step) in around.iter_mut().zip([-1e-9, 1e-9]) {
            self.bind(variable, here + Cx::from_f64(step));
            let found = self.value(body);
            self.unbind();
            *value = found?;
        }
        Some((around[1] - around[0]) / Cx::from_f64(2e-9))
    }
}

/// A number determined by `parts` alone.
fn mix(parts: &[u64]) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for part in parts {
        state = (state ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 32;
    }
    state
}

fn seed(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// `expr` with `name` replaced.
pub(super) fn substitute(expr: &Expr, name: &Name, with: &Expr) -> Expr {
    let all = |parts: &[Expr]| parts.iter().map(|part| substitute(part, name, with)).collect();
    match expr {
        Expr::Symbol(found) if found == name => with.clone(),
        Expr::Add(parts) => Expr::Add(all(parts)),
        Expr::Mul(parts) => Expr::Mul(all(parts)),
        Expr::Pow(base, exponent) => {
            Expr::pow(substitute(base, name, with), substitute(exponent, name, with))
        }
        // The variable of a sum is bound.
        Expr::Apply(Fun::Sum | Fun::Product | Fun::Integral, parts)
            if parts.get(1) == Some(&Expr::Symbol(name.clone())) =>
        {
            expr.clone()
        }
        Expr::Apply(fun, parts) => Expr::Apply(fun.clone(), all(parts)),
        Expr::Held(inner) => Expr::Held(Box::new(substitute(inner, name, with))),
        other => other.clone(),
    }
}

/// Order of two real numbers, infinities included; `None` with symbols or complex values.
pub(super) fn order(left: &Expr, right: &Expr) -> Option<Ordering> {
    let infinite = |expr: &Expr| match expr {
        Expr::Constant(Constant::Infinity) => 1,
        Expr::Constant(Constant::MinusInfinity) => -1,
        _ => 0,
    };
    let (a, b) = (infinite(left), infinite(right));
    if a != 0 || b != 0 {
        return (a != 0 || is_real(left))
            .then_some(())
            .and((b != 0 || is_real(right)).then_some(a.cmp(&b)));
    }
    if let (Some(a), Some(b)) = (exact(left), exact(right)) {
        return Some(a.cmp(&b));
    }
    let (a, b) = (constant(left)?, constant(right)?);
    if !a.is_real() || !b.is_real() {
        return None;
    }
    let difference = (a - b).re.hi;
    if difference.abs() <= 1e-25 * a.re.hi.abs().max(1e-6) {
        return Some(Ordering::Equal);
    }
    difference.partial_cmp(&0.0)
}

fn is_real(expr: &Expr) -> bool {
    constant(expr).is_some_and(Cx::is_real)
}

/// The value of an expression without symbols.
pub(super) fn constant(expr: &Expr) -> Option<Cx> {
    if has_symbols(expr) {
        return None;
    }
    Evaluator::at(0).value(expr)
}

/// Whether free symbols or unknown functions occur.
pub(super) fn has_symbols(expr: &Expr) -> bool {
    match expr {
        Expr::Symbol(_) | Expr::Apply(Fun::Named(_) | Fun::Derivative, _) => true,
        Expr::Apply(Fun::Sum | Fun::Product | Fun::Integral | Fun::Limit, parts) => {
            let Some(Expr::Symbol(variable)) = parts.get(1) else { return true };
            if parts.len() == 2 {
                return true;
            }
            has_symbols(&substitute(&parts[0], variable, &Expr::int(1)))
                || parts[2..].iter().any(has_symbols)
        }
        other => other.parts().into_iter().any(has_symbols),
    }
}

/// Whether `expr` is certainly not a real number.
pub(super) fn is_not_real(expr: &Expr) -> bool {
    is_singular(expr) || constant(expr).is_some_and(|value| value.im.hi.abs() > 1e-25)
}
