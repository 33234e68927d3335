//! Arithmetic on numbers that may be floats, rounded after every step as the reference's arithmetic is.
//!
//! Exact without floats. Numbers only: no symbols, no irrational functions.

use num_traits::{One, Zero};

use super::convert_atoms::small;
use super::exact::exact;
use super::expr::Expr;
use super::number::{Rat, round_to_bits};

/// A number, and the precision in bits if it is a float.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mixed {
    pub(super) value: Rat,
    pub(super) bits: Option<u32>,
}

impl Mixed {
    fn whole(value: Rat) -> Self {
        Self { value, bits: None }
    }

    fn join(self, other: Self, operation: impl Fn(Rat, Rat) -> Rat) -> Self {
        let Some(bits) = self.bits.or(other.bits) else {
            return Self::whole(operation(self.value, other.value));
        };
        // A rational becomes a float of the same precision first.
        let read = |side: Self| {
            if side.bits.is_some() { side.value } else { round_to_bits(&side.value, bits) }
        };
        let value = operation(read(self), read(other));
        Self { value: round_to_bits(&value, bits), bits: Some(bits) }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        self.join(other, |a, b| a - b)
    }
}

/// The value of an expression of rationals and floats.
pub(super) fn mixed(expr: &Expr) -> Option<Mixed> {
    match expr {
        Expr::Float(float) => Some(Mixed { value: float.value.clone(), bits: Some(float.bits) }),
        Expr::Add(terms) => terms.iter().try_fold(Mixed::whole(Rat::zero()), |sum, term| {
            let term = mixed(term)?;
            // Zero is dropped, not converted.
            Some(if sum.bits.is_none() && sum.value.is_zero() {
                term
            } else {
                sum.join(term, |a, b| a + b)
            })
        }),
        Expr::Mul(factors) => {
            factors.iter().try_fold(Mixed::whole(Rat::one()), |product, factor| {
                let factor = mixed(factor)?;
                Some(if product.bits.is_none() && product.value.is_one() {
                    factor
                } else {
                    product.join(factor, |a, b| a * b)
                })
            })
        }
        Expr::Held(inner) => mixed(inner),
        Expr::Pow(base, exponent) => {
            let (base, exponent) = (mixed(base)?, mixed(exponent)?);
            match base.bits {
                Some(bits) if small(&exponent.value).is_some() => {
                    let power =
                        exact(&Expr::pow(Expr::Number(base.value), Expr::Number(exponent.value)))?;
                    Some(Mixed { value: round_to_bits(&power, bits), bits: Some(bits) })
                }
                Some(_) => None,
                None if exponent.bits.is_some() => None,
                None => exact(expr).map(Mixed::whole),
            }
        }
        _ => exact(expr).map(Mixed::whole),
    }
}
