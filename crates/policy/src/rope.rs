//! Rotary position embeddings: tables of cosines and sines, and the rotation of heads. Angles are computed in at least
//! single precision, as in the reference implementation.

use std::f64::consts::PI;

use tch::{Device, Kind, Tensor};

use crate::error::TchResult;
use crate::layer::split;
use crate::shape::{Scaling, Shape};

/// Cosines and sines of positions. The sines of the first half of a head are negated, so that the rotation is
/// `head * cos + roll(head, head_dim / 2) * sin`.
#[derive(Debug)]
pub(crate) struct Tables {
    /// `[length, 1, head_dim]`, or anything else that broadcasts over `[batch, length, heads, head_dim]`.
    pub(crate) cos: Tensor,
    /// The same shape as `cos`.
    pub(crate) sin: Tensor,
}

impl Tables {
    /// The tables of positions `0..length`, each `[length, 1, head_dim]`.
    pub(crate) fn new(shape: &Shape, length: i64, kind: Kind, device: Device) -> TchResult<Self> {
        let options = (if kind == Kind::Double { Kind::Double } else { Kind::Float }, device);
        let positions = Tensor::f_arange(length, options)?.f_unsqueeze(1)?;
        let frequencies = frequencies(shape, device)?.f_to_kind(options.0)?;
        let angles = positions.f_mul(&frequencies.f_unsqueeze(0)?)?;
        let (cos, sin) = (angles.f_cos()?, angles.f_sin()?);
        let shaped = |left: &Tensor, right: &Tensor| {
            Tensor::f_cat(&[left, right], -1)?.f_unsqueeze(1)?.f_to_kind(kind)
        };
        Ok(Self { cos: shaped(&cos, &cos)?, sin: shaped(&sin.f_neg()?, &sin)? })
    }

    /// The tables of these positions, `[positions, 1, head_dim]`.
    pub(crate) fn at(&self, positions: &Tensor) -> TchResult<Self> {
        let taken = |table: &Tensor| table.f_index_select(0, positions);
        Ok(Self { cos: taken(&self.cos)?, sin: taken(&self.sin)? })
    }

    /// Rotates heads `[batch, length, heads, head_dim]`, or `[length, heads, head_dim]`.
    pub(crate) fn rotate(&self, heads: &Tensor) -> TchResult<Tensor> {
        let half = heads.size().last().copied().unwrap_or(0) / 2;
        let [left, right] = split(heads, [half, half], -1)?;
        heads.f_mul(&self.cos)?.f_addcmul(&Tensor::f_cat(&[right, left], -1)?, &self.sin)
    }
}

/// The frequency of each pair of a head, in radians per position. Computed on the device, since a copy to it would
/// synchronise.
fn frequencies(shape: &Shape, device: Device) -> TchResult<Tensor> {
    let exponents = Tensor::f_arange(shape.head_dim / 2, (Kind::Float, device))?;
    let exponents = exponents.f_mul_scalar(2.0)?.f_div_scalar(shape.head_dim as f64)?;
    let plain = Tensor::f_pow_scalar(shape.rope_theta, &exponents)?.f_reciprocal()?;
    match shape.rope_scaling {
        Scaling::None => Ok(plain),
        Scaling::Linear { factor } => plain.f_div_scalar(factor),
        Scaling::Llama3 { factor, low, high, original } => {
            let turns = plain.f_mul_scalar(original / (2.0 * PI))?;
            let blend = turns.f_sub_scalar(low)?.f_div_scalar(high - low)?.f_clamp(0.0, 1.0)?;
            let slow = plain.f_div_scalar(factor)?;
            slow.f_lerp_tensor(&plain, &blend)
        }
    }
}
