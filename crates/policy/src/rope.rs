//! Rotary positions: the tables of cosines and sines, and turning heads by them. Angles are computed in single
//! precision whatever the net computes in, as the reference implementation does. Refuses to know layers and caches.

use std::f64::consts::PI;

use tch::{Device, Kind, Tensor};

use crate::error::Fallible;
use crate::layer::split;
use crate::shape::{Scaling, Shape};

/// Cosines and sines of positions. The sines of the first half of a head are negated, so that turning is one product
/// with the head, one with the head rolled by half, and their sum.
#[derive(Debug)]
pub(crate) struct Tables {
    /// `[length, 1, head_dim]`, or anything else that broadcasts over `[batch, length, heads, head_dim]`.
    pub(crate) cos: Tensor,
    /// The same shape as `cos`.
    pub(crate) sin: Tensor,
}

impl Tables {
    /// The tables of positions `0..length`, each `[length, 1, head_dim]`.
    pub(crate) fn new(shape: &Shape, length: i64, kind: Kind, device: Device) -> Fallible<Self> {
        let options = (if kind == Kind::Double { Kind::Double } else { Kind::Float }, device);
        let positions = Tensor::f_arange(length, options)?.f_unsqueeze(1)?;
        let frequencies =
            Tensor::f_from_slice(&frequencies(shape))?.f_to_device(device)?.f_to_kind(options.0)?;
        let angles = positions.f_mul(&frequencies.f_unsqueeze(0)?)?;
        let (cos, sin) = (angles.f_cos()?, angles.f_sin()?);
        let shaped = |left: &Tensor, right: &Tensor| {
            Tensor::f_cat(&[left, right], -1)?.f_unsqueeze(1)?.f_to_kind(kind)
        };
        Ok(Self { cos: shaped(&cos, &cos)?, sin: shaped(&sin.f_neg()?, &sin)? })
    }

    /// Heads `[batch, length, heads, head_dim]`, turned.
    pub(crate) fn turn(&self, heads: &Tensor) -> Fallible<Tensor> {
        let half = heads.size().last().copied().unwrap_or(0) / 2;
        let [left, right] = split(heads, [half, half], -1)?;
        heads.f_mul(&self.cos)?.f_addcmul(&Tensor::f_cat(&[right, left], -1)?, &self.sin)
    }
}

/// Radians per position of each pair of a head.
fn frequencies(shape: &Shape) -> Vec<f32> {
    let half = shape.head_dim / 2;
    let of_pair = |pair: i64| {
        // The reference computes these in single precision; at distant positions the difference would show.
        let exponent = (2 * pair) as f32 / shape.head_dim as f32;
        1.0 / (shape.rope_theta as f32).powf(exponent)
    };
    (0..half).map(|pair| stretched(of_pair(pair), shape.rope_scaling)).collect()
}

fn stretched(frequency: f32, scaling: Scaling) -> f32 {
    match scaling {
        Scaling::None => frequency,
        Scaling::Linear { factor } => frequency / factor as f32,
        Scaling::Llama3 { factor, low, high, original } => {
            let turns = original * f64::from(frequency) / (2.0 * PI);
            let slow = f64::from(frequency) / factor;
            let blend = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            (slow * (1.0 - blend) + f64::from(frequency) * blend) as f32
        }
    }
}
