//! Exact rationals and SymPy's floating-point numbers: the precision of a decimal grows with its digits, and rounding to
//! decimals follows SymPy.
//!
//! Sizes are bounded by the callers' limits on digits and bits.

use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::dd::Dd;

/// An exact rational.
pub(super) type Rat = BigRational;

/// Longest number, in digits; Python rejects longer ones.
const MOST_DIGITS: usize = 4300;

/// A binary number with its precision in bits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Float {
    pub(super) value: Rat,
    pub(super) bits: u32,
}

pub(super) fn integer(value: i64) -> Rat {
    Rat::from_integer(BigInt::from(value))
}

/// A number as written: digits without a point are an integer, anything else a float.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Whole(Rat),
    Decimal(Float),
}

/// Parses `-12`, `3.50`, `.5`, `1.2E-7`; nothing else.
pub(super) fn read(text: &str) -> Option<Literal> {
    let text = text.trim_matches(super::is_space);
    let (mantissa, exponent) = match text.split_once(['E', 'e']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.parse::<i64>().ok()?)),
        None => (text, None),
    };
    let (negative, unsigned) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, decimals) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{decimals}");
    if digits.is_empty()
        || digits.len() > MOST_DIGITS
        || !digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let mut value = Rat::from_integer(BigInt::parse_bytes(digits.as_bytes(), 10)?);
    if negative {
        value = -value;
    }
    if exponent.is_none() && !unsigned.contains('.') {
        return Some(Literal::Whole(value));
    }
    let shift = exponent.unwrap_or(0) - i64::try_from(decimals.len()).ok()?;
    if shift.abs() > 5000 {
        return None;
    }
    value *= power_of_ten(shift);
    let mut significant = digits.trim_start_matches('0').len().max(1);
    if value.is_integer() && !unsigned.contains('.') {
        significant = significant.max(value.to_integer().magnitude().to_string().len());
    }
    let bits = bits_for(significant.max(15));
    Some(Literal::Decimal(Float { value: round_to_bits(&value, bits), bits }))
}

/// Binary precision for a number of decimal digits.
pub(super) fn bits_for(digits: usize) -> u32 {
    let bits = ((digits as f64 + 1.0) * 3.321_928_094_887_362_6).round_ties_even();
    (bits as u32).max(1)
}

fn digits_for(bits: u32) -> i64 {
    ((f64::from(bits) / 3.321_928_094_887_362_6).round_ties_even() as i64 - 1).max(1)
}

pub(super) fn power_of_ten(exponent: i64) -> Rat {
    let size =
        BigInt::from(10).pow(u32::try_from(exponent.unsigned_abs().min(20_000)).unwrap_or(0));
    if exponent < 0 { Rat::new(BigInt::one(), size) } else { Rat::from_integer(size) }
}

/// The nearest number with this many bits, ties to even.
pub(super) fn round_to_bits(value: &Rat, bits: u32) -> Rat {
    if value.is_zero() {
        return value.clone();
    }
    let (top, bottom) = (value.numer().magnitude(), value.denom().magnitude());
    let mut shift = i64::from(bits) - (top.bits() as i64 - bottom.bits() as i64);
    for _ in 0..2 {
        let (top, bottom) = if shift >= 0 {
            (top << shift as u64, bottom.clone())
        } else {
            (top.clone(), bottom << (-shift) as u64)
        };
        let (mut quotient, rest) = top.div_rem(&bottom);
        if quotient.bits() > u64::from(bits) {
            shift -= 1;
            continue;
        }
        let twice = rest << 1_u32;
        if twice > bottom || (twice == bottom && quotient.is_odd()) {
            quotient += 1_u32;
        }
        let sign = if value.is_negative() { Sign::Minus } else { Sign::Plus };
        let quotient = BigInt::from_biguint(sign, quotient);
        return if shift >= 0 {
            Rat::new(quotient, BigInt::one() << shift as u64)
        } else {
            Rat::from_integer(quotient << (-shift) as u64)
        };
    }
    value.clone()
}

/// Decimal digits before the point, or minus the zeros after it.
fn magnitude(value: &Rat) -> i64 {
    let size = value.abs();
    let (top, bottom) = (size.numer().bits() as f64, size.denom().bits() as f64);
    let mut guess = ((top - bottom) * std::f64::consts::LOG10_2).floor() as i64 - 1;
    while size >= power_of_ten(guess) {
        guess += 1;
    }
    guess
}

/// Rounds a non-integer to `places` decimals; `float_bits` is the precision of the floats it was computed from, if any.
/// The result is a float whose own precision depends on the size of the number, and two results are equal only
/// if these agree too.
pub(super) fn round_decimals(value: &Rat, float_bits: Option<u32>, decimals: i64) -> Rat {
    if value.is_zero() {
        return value.clone();
    }
    let before = magnitude(value);
    let mut allow = before + decimals;
    let digits = match float_bits {
        Some(bits) => {
            let digits = digits_for(bits);
            allow = allow.min(digits);
            digits
        }
        None => allow.max(15),
    };
    let shift = digits - before;
    let scaled = value * power_of_ten(shift);
    let mut known = round_half_even(&scaled);
    let place = decimals - shift;
    if place < 0 {
        let unit = power_of_ten(-place);
        known = round_half_even(&(Rat::from_integer(known) / &unit)) * unit.to_integer();
    }
    let rounded = Rat::from_integer(known) / power_of_ten(shift);
    if rounded.is_integer() {
        return round_to_bits(&rounded, bits_for(usize::try_from(digits.max(1)).unwrap_or(15)));
    }
    if allow == 0 && rounded > *value {
        allow = 1;
    }
    round_to_bits(&rounded, bits_for(usize::try_from(allow.max(0)).unwrap_or(0)))
}

fn round_half_even(value: &Rat) -> BigInt {
    let floor = value.floor().to_integer();
    let twice = (value - Rat::from_integer(floor.clone())) * integer(2);
    let up = twice > Rat::one() || (twice.is_one() && floor.is_odd());
    if up { floor + 1 } else { floor }
}

/// The nearest double-double, infinite where it is out of range.
pub(super) fn to_dd(value: &Rat) -> Dd {
    if let (Some(top), Some(bottom)) = (value.numer().to_i64(), value.denom().to_i64())
        && top.unsigned_abs() < 1 << 53
        && bottom.unsigned_abs() < 1 << 53
    {
        return Dd::new(top as f64) / Dd::new(bottom as f64);
    }
    let close = round_to_bits(value, 106);
    let hi = ratio_to_f64(&close);
    match Rat::from_float(hi) {
        Some(high) => Dd { hi, lo: ratio_to_f64(&(close - high)) },
        None => Dd::new(hi),
    }
}

fn ratio_to_f64(value: &Rat) -> f64 {
    if value.is_zero() {
        return 0.0;
    }
    let shift = 64 - (value.numer().bits() as i64 - value.denom().bits() as i64);
    let top = if shift >= 0 { value.numer() << shift as u64 } else { value.numer().clone() };
    let bottom = if shift >= 0 { value.denom().clone() } else { value.denom() << (-shift) as u64 };
    let whole = (top / bottom).to_f64().unwrap_or(f64::NAN);
    if shift > 1100 {
        return 0.0;
    }
    // Scales in two steps, so that the factor stays in range.
    let half = shift / 2;
    whole * 2f64.powi(-(half as i32)) * 2f64.powi(-((shift - half) as i32))
}

/// The exact value of a double-double.
pub(super) fn from_dd(value: Dd) -> Option<Rat> {
    Some(Rat::from_float(value.hi)? + Rat::from_float(value.lo)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(text: &str) -> Float {
        match read(text) {
            Some(Literal::Decimal(float)) => float,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reads_with_the_precision_written() {
        assert_eq!(float("0.5").value, Rat::new(1.into(), 2.into()));
        assert_eq!(float("0.216").bits, 53);
        assert_eq!(float("0.21600000000000003").bits, 60);
        assert_eq!(read("007"), Some(Literal::Whole(integer(7))));
        assert_eq!(read("1 2"), None);
        assert_eq!(float("25.0000").value, integer(25));
        assert_eq!(ratio_to_f64(&float("0.1").value), 0.1);
    }

    #[test]
    fn rounds_like_the_reference() {
        let third = Rat::new(1.into(), 3.into());
        assert_eq!(
            round_decimals(&third, None, 6),
            round_decimals(&float("0.333333").value, Some(53), 6)
        );
        assert_ne!(
            round_decimals(&third, None, 6),
            round_decimals(&float("0.33333").value, Some(53), 6)
        );
        assert_eq!(
            round_decimals(&float("96.3").value, Some(53), 6),
            round_decimals(&float("96.30000009999999").value, Some(57), 6)
        );
    }
}
