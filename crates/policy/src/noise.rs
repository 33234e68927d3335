//! Random initial weights: the same for the same seed on every device and in every version of libtorch, without using
//! libtorch's global generator.

use std::f32::consts::TAU;

use seeded::SplitMix64;
use tch::{Device, Kind, Tensor};

use crate::error::TchResult;

/// A stream of normally distributed numbers (SplitMix64 and Box-Muller).
pub(crate) struct Noise(SplitMix64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A tensor of independent normally distributed numbers.
    pub(crate) fn normal(
        &mut self,
        size: &[i64],
        deviation: f32,
        device: Device,
        kind: Kind,
    ) -> TchResult<Tensor> {
        let count = size.iter().product::<i64>() as usize;
        let mut numbers = Vec::with_capacity(count + 1);
        while numbers.len() < count {
            let radius = deviation * (-2.0 * self.uniform().ln()).sqrt();
            let (sin, cos) = (TAU * self.uniform()).sin_cos();
            numbers.extend([radius * cos, radius * sin]);
        }
        numbers.truncate(count);
        Tensor::f_from_slice(&numbers)?.f_view(size)?.f_to_kind(kind)?.f_to_device(device)
    }

    /// A number from 0 (excluded) to 1 (included).
    fn uniform(&mut self) -> f32 {
        ((self.0.next_u64() >> 40) + 1) as f32 / (1u64 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::Noise;

    #[test]
    fn numbers_are_normal_and_follow_from_the_seed() {
        let draw =
            |seed| Noise::new(seed).normal(&[3, 4001], 0.5, Device::Cpu, Kind::Float).unwrap();
        let numbers = draw(1);
        assert_eq!(numbers, draw(1));
        assert_ne!(numbers, draw(2));
        assert!(numbers.mean(Kind::Float).double_value(&[]).abs() < 0.02);
        assert!((numbers.std(false).double_value(&[]) - 0.5).abs() < 0.02);
        let far = numbers.abs().gt(1.0).to_kind(Kind::Float).mean(Kind::Float).double_value(&[]);
        assert!((far - 0.0455).abs() < 0.01, "{far}");
        assert!(numbers.isfinite().all().int64_value(&[]) == 1);
    }
}
