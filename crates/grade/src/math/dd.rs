//! Double-double arithmetic: about 31 decimal digits from pairs of `f64`, with the elementary functions the
//! comparison needs, real and complex.
//!
//! Numbers only: no expressions, symbols or rounding rules.

use std::f64::consts::{LN_2, PI};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// An unevaluated sum of two `f64`, the second below half an ulp of the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dd {
    pub(super) hi: f64,
    pub(super) lo: f64,
}

pub(super) const PI_DD: Dd = Dd { hi: PI, lo: 1.224_646_799_147_353_2e-16 };
const LN2_DD: Dd = Dd { hi: LN_2, lo: 2.319_046_813_846_299_6e-17 };
pub(super) const EULER_DD: Dd = Dd { hi: 0.577_215_664_901_532_9, lo: -4.942_915_152_430_645e-18 };

impl Dd {
    pub(super) const ZERO: Self = Self { hi: 0.0, lo: 0.0 };
    pub(super) const ONE: Self = Self { hi: 1.0, lo: 0.0 };

    pub(super) fn new(value: f64) -> Self {
        Self { hi: value, lo: 0.0 }
    }

    pub(super) fn abs(self) -> Self {
        if self.hi < 0.0 { -self } else { self }
    }

    pub(super) fn is_finite(self) -> bool {
        self.hi.is_finite() && self.lo.is_finite()
    }

    pub(super) fn floor(self) -> Self {
        let whole = self.hi.floor();
        if whole == self.hi { quick_sum(whole, self.lo.floor()) } else { Self::new(whole) }
    }

    pub(super) fn sqrt(self) -> Self {
        if self.hi <= 0.0 {
            return Self::ZERO;
        }
        let guess = Self::new(self.hi.sqrt());
        let better = (guess + self / guess).scale(0.5);
        (better + self / better).scale(0.5)
    }

    /// Multiplies by a power of two.
    pub(super) fn scale(self, by: f64) -> Self {
        Self { hi: self.hi * by, lo: self.lo * by }
    }

    pub(super) fn exp(self) -> Self {
        if self.hi > 709.0 {
            return Self::new(f64::INFINITY);
        }
        if self.hi < -745.0 {
            return Self::ZERO;
        }
        let shift = (self.hi / LN_2).round();
        let rest = (self - LN2_DD * Self::new(shift)).scale(1.0 / 512.0);
        let mut term = rest;
        let mut sum = rest;
        for n in 2..12 {
            term = term * rest / Self::new(f64::from(n));
            sum = sum + term;
        }
        // exp(r) - 1 is squared up nine times in the form s -> 2s + s*s, which preserves the low digits.
        for _ in 0..9 {
            sum = sum.scale(2.0) + sum * sum;
        }
        let whole = sum + Self::ONE;
        let half = (shift / 2.0).trunc();
        whole.scale(half.exp2()).scale((shift - half).exp2())
    }

    /// The natural logarithm of a positive number.
    pub(super) fn ln(self) -> Self {
        let mut guess = Self::new(self.hi.ln());
        for _ in 0..2 {
            guess = guess + self * (-guess).exp() - Self::ONE;
        }
        guess
    }

    /// Sine and cosine together.
    pub(super) fn sin_cos(self) -> (Self, Self) {
        let quarter = PI_DD.scale(0.5);
        let turns = (self.hi / quarter.hi).round();
        let rest = self - quarter * Self::new(turns);
        let square = rest * rest;
        let (mut sin, mut cos) = (rest, Self::ONE);
        let (mut sin_term, mut cos_term) = (rest, Self::ONE);
        for n in 1..15 {
            let n = f64::from(n);
            cos_term = -(cos_term * square) / Self::new((2.0 * n - 1.0) * (2.0 * n));
            sin_term = -(sin_term * square) / Self::new((2.0 * n) * (2.0 * n + 1.0));
            cos = cos + cos_term;
            sin = sin + sin_term;
        }
        match turns.rem_euclid(4.0) {
            1.0 => (cos, -sin),
            2.0 => (-sin, -cos),
            3.0 => (-cos, sin),
            _ => (sin, cos),
        }
    }

    /// The angle of the point (`x`, `self`), in (-pi, pi].
    pub(super) fn atan2(self, x: Self) -> Self {
        if self.hi == 0.0 {
            return if x.hi < 0.0 { PI_DD } else { Self::ZERO };
        }
        let length = (self * self + x * x).sqrt();
        let mut angle = Self::new(self.hi.atan2(x.hi));
        for _ in 0..2 {
            let (sin, cos) = angle.sin_cos();
            angle = angle + (self * cos - x * sin) / length;
        }
        angle
    }
}

fn quick_sum(a: f64, b: f64) -> Dd {
    let hi = a + b;
    Dd { hi, lo: b - (hi - a) }
}

fn two_sum(a: f64, b: f64) -> Dd {
    let hi = a + b;
    let part = hi - a;
    Dd { hi, lo: (a - (hi - part)) + (b - part) }
}

fn split(a: f64) -> (f64, f64) {
    if a.abs() > 1e290 {
        let (hi, lo) = split(a * 2f64.powi(-28));
        return (hi * 2f64.powi(28), lo * 2f64.powi(28));
    }
    let spread = 134_217_729.0 * a;
    let hi = spread - (spread - a);
    (hi, a - hi)
}

fn two_prod(a: f64, b: f64) -> Dd {
    let hi = a * b;
    if !hi.is_finite() {
        return Dd::new(hi);
    }
    let (a1, a2) = split(a);
    let (b1, b2) = split(b);
    Dd { hi, lo: ((a1 * b1 - hi) + a1 * b2 + a2 * b1) + a2 * b2 }
}

impl Add for Dd {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let high = two_sum(self.hi, other.hi);
        if !high.hi.is_finite() {
            return Self::new(high.hi);
        }
        let low = two_sum(self.lo, other.lo);
        let sum = quick_sum(high.hi, high.lo + low.hi);
        quick_sum(sum.hi, sum.lo + low.lo)
    }
}

impl Neg for Dd {
    type Output = Self;
    fn neg(self) -> Self {
        Self { hi: -self.hi, lo: -self.lo }
    }
}

impl Sub for Dd {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for Dd {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let product = two_prod(self.hi, other.hi);
        if !product.hi.is_finite() {
            return product;
        }
        quick_sum(product.hi, product.lo + self.hi * other.lo + self.lo * other.hi)
    }
}

impl Div for Dd {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let first = self.hi / other.hi;
        if !first.is_finite() || first == 0.0 {
            return Self::new(first);
        }
        let rest = self - other * Self::new(first);
        let second = rest.hi / other.hi;
        let rest = rest - other * Self::new(second);
        quick_sum(first, second) + Self::new(rest.hi / other.hi)
    }
}

/// A complex number over [`Dd`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cx {
    pub(super) re: Dd,
    pub(super) im: Dd,
}

impl Cx {
    pub(super) const ZERO: Self = Self { re: Dd::ZERO, im: Dd::ZERO };
    pub(super) const ONE: Self = Self { re: Dd::ONE, im: Dd::ZERO };
    pub(super) const I: Self = Self { re: Dd::ZERO, im: Dd::ONE };

    pub(super) fn real(re: Dd) -> Self {
        Self { re, im: Dd::ZERO }
    }

    pub(super) fn from_f64(value: f64) -> Self {
        Self::real(Dd::new(value))
    }

    pub(super) fn is_finite(self) -> bool {
        self.re.is_finite() && self.im.is_finite()
    }

    pub(super) fn is_real(self) -> bool {
        self.im.hi == 0.0
    }

    pub(super) fn abs(self) -> Dd {
        if self.im.hi == 0.0 {
            return self.re.abs();
        }
        let big = self.re.hi.abs().max(self.im.hi.abs());
        if !big.is_finite() {
            return Dd::new(f64::INFINITY);
        }
        // Only a power of two scales without rounding.
        let up = big.log2().floor().clamp(-1000.0, 1000.0).exp2();
        let (re, im) = (self.re.scale(1.0 / up), self.im.scale(1.0 / up));
        (re * re + im * im).sqrt().scale(up)
    }

    pub(super) fn exp(self) -> Self {
        let size = self.re.exp();
        if self.is_real() {
            return Self::real(size);
        }
        let (sin, cos) = self.im.sin_cos();
        Self { re: size * cos, im: size * sin }
    }

    pub(super) fn ln(self) -> Self {
        Self { re: self.abs().ln(), im: self.im.atan2(self.re) }
    }

    pub(super) fn sqrt(self) -> Self {
        if self.is_real() {
            let root = self.re.abs().sqrt();
            return if self.re.hi < 0.0 {
                Self { re: Dd::ZERO, im: root }
            } else {
                Self::real(root)
            };
        }
        (self.ln() * Self::from_f64(0.5)).exp()
    }

    /// An integer power by squaring.
    pub(super) fn powi(self, exponent: i64) -> Self {
        let mut base = if exponent < 0 { Self::ONE / self } else { self };
        let mut left = exponent.unsigned_abs();
        let mut result = Self::ONE;
        while left > 0 {
            if left & 1 == 1 {
                result = result * base;
            }
            base = base * base;
            left >>= 1;
        }
        result
    }

    pub(super) fn sin_cos(self) -> (Self, Self) {
        let (sin, cos) = self.re.sin_cos();
        if self.is_real() {
            return (Self::real(sin), Self::real(cos));
        }
        let (up, down) = (self.im.exp(), (-self.im).exp());
        let (sinh, cosh) = ((up - down).scale(0.5), (up + down).scale(0.5));
        (Self { re: sin * cosh, im: cos * sinh }, Self { re: cos * cosh, im: -(sin * sinh) })
    }
}

impl Add for Cx {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl Neg for Cx {
    type Output = Self;
    fn neg(self) -> Self {
        Self { re: -self.re, im: -self.im }
    }
}

impl Sub for Cx {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for Cx {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        if self.is_real() && other.is_real() {
            return Self::real(self.re * other.re);
        }
        Self {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

impl Div for Cx {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        if other.is_real() {
            return Self {
                re: self.re / other.re,
                im: if self.is_real() { Dd::ZERO } else { self.im / other.re },
            };
        }
        let size = other.re * other.re + other.im * other.im;
        let top = self * Self { re: other.re, im: -other.im };
        Self { re: top.re / size, im: top.im / size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: Dd, b: Dd) {
        assert!((a - b).hi.abs() <= 1e-28 * b.hi.abs().max(1.0), "{a:?} {b:?}");
    }

    #[test]
    fn elementary_functions_hold_thirty_digits() {
        let two = Dd::new(2.0);
        close(two.sqrt() * two.sqrt(), two);
        close(two.ln().exp(), two);
        close(two.ln(), LN2_DD);
        let (sin, cos) = Dd::new(1.0).sin_cos();
        close(sin * sin + cos * cos, Dd::ONE);
        close(Dd::ONE.atan2(Dd::ONE).scale(4.0), PI_DD);
        close((PI_DD / Dd::new(6.0)).sin_cos().0, Dd::new(0.5));
    }

    #[test]
    fn complex_logarithm_inverts_the_exponential() {
        let z = Cx { re: Dd::new(0.3), im: Dd::new(-1.2) };
        let back = z.exp().ln();
        close(back.re, z.re);
        close(back.im, z.im);
    }
}
