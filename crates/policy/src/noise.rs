//! Random numbers for first weights: the same for the same seed on every device and in every version of libtorch, and
//! without touching libtorch's own generator. Refuses to know what the numbers are for.

use std::f32::consts::TAU;

use tch::{Device, Kind, Tensor};

use crate::error::Fallible;

/// A stream of normal numbers (splitmix64 and Box-Muller).
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A tensor of independent normal numbers.
    pub(crate) fn normal(
        &mut self,
        size: &[i64],
        deviation: f32,
        device: Device,
        kind: Kind,
    ) -> Fallible<Tensor> {
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

    /// A number above 0 and at most 1.
    fn uniform(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        ((word >> 40) + 1) as f32 / (1u64 << 24) as f32
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
