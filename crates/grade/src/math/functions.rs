//! Functions of one complex number on their principal branches.

use super::dd::{Cx, Dd};
use super::expr::Fun;

pub(super) fn trigonometric(fun: &Fun, at: Cx) -> Option<Cx> {
    let (sin, cos) = at.sin_cos();
    let (top, bottom) = match fun {
        Fun::Tan => (sin, cos),
        Fun::Sec => (Cx::ONE, cos),
        Fun::Csc => (Cx::ONE, sin),
        _ => (cos, sin),
    };
    // At a pole the rounded angle leaves a tiny divisor.
    (bottom.abs().hi > 1e-28).then(|| top / bottom)
}

pub(super) fn asin(z: Cx) -> Cx {
    if z.is_real() && z.re.abs().hi <= 1.0 {
        let cos = (Dd::ONE - z.re * z.re).sqrt();
        return Cx::real(z.re.atan2(cos));
    }
    let inner = Cx::I * z + (Cx::ONE - z * z).sqrt();
    -(Cx::I * inner.ln())
}

pub(super) fn atan(z: Cx) -> Cx {
    if z.is_real() {
        return Cx::real(z.re.atan2(Dd::ONE));
    }
    let iz = Cx::I * z;
    Cx::I * Cx::from_f64(0.5) * ((Cx::ONE - iz).ln() - (Cx::ONE + iz).ln())
}

/// The real part, snapped to an integer within rounding error.
pub(super) fn near_integer(value: Cx) -> Option<Dd> {
    if !value.is_real() {
        return None;
    }
    let rounded = value.re.hi.round();
    let off = (value.re - Dd::new(rounded)).abs().hi;
    Some(if off < 1e-25 * rounded.abs().max(1.0) { Dd::new(rounded) } else { value.re })
}

pub(super) fn gamma(x: f64) -> f64 {
    const SERIES: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        return std::f64::consts::PI / ((std::f64::consts::PI * x).sin() * gamma(1.0 - x));
    }
    let x = x - 1.0;
    let mut sum = SERIES[0];
    let mut place = x;
    for term in &SERIES[1..] {
        place += 1.0;
        sum += term / place;
    }
    let t = x + 7.5;
    (2.0 * std::f64::consts::PI).sqrt() * t.powf(x + 0.5) * (-t).exp() * sum
}
