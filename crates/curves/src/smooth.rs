//! Exponential smoothing of noisy metrics, and thinning to a number of points that can be drawn.

/// Series with fewer points are not smoothed.
const LEAST_POINTS: usize = 25;

/// Smoothing factor: the weight of the previous mean in each new one, from 0 (none) to below 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smoothing(f64);

impl Default for Smoothing {
    fn default() -> Self {
        Self(0.7)
    }
}

impl Smoothing {
    /// Returns `None` where the factor is not from 0 to below 1.
    pub fn new(factor: f64) -> Option<Self> {
        (0.0..1.0).contains(&factor).then_some(Self(factor))
    }

    /// Exponential moving average with bias correction. Short series, such as periodic validations, are returned as they
    /// are: an average would lag too far behind.
    pub(crate) fn smooth(self, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        if points.len() < LEAST_POINTS {
            return points.to_vec();
        }
        let (mut sum, mut weight) = (0.0, 0.0);
        let smooth = |(step, value): &(f64, f64)| {
            sum = self.0 * sum + (1.0 - self.0) * value;
            weight = self.0 * weight + (1.0 - self.0);
            (*step, sum / weight)
        };
        points.iter().map(smooth).collect()
    }
}

/// Averages neighboring points until at most about `most` are left; the last point stays as it is.
pub(crate) fn thin(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(most.max(1)).max(1);
    if size == 1 {
        return points.to_vec();
    }
    let mean = |chunk: &[(f64, f64)]| {
        let count = chunk.len() as f64;
        let sum = chunk.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / count, sum.1 / count)
    };
    let mut thinned: Vec<(f64, f64)> = points.chunks(size).map(mean).collect();
    if let (Some(last), Some(end)) = (thinned.last_mut(), points.last()) {
        *last = *end;
    }
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_starts_at_the_first_value() {
        let noisy: Vec<(f64, f64)> =
            (0..100).map(|at| (f64::from(at), f64::from(5 + at % 2))).collect();
        let line = Smoothing::default().smooth(&noisy);
        assert_eq!(line[0], (0.0, 5.0));
        assert!(line[50..].iter().all(|(_, value)| (5.2..5.8).contains(value)));
        assert_eq!(Smoothing::new(0.0).unwrap().smooth(&noisy), noisy);
        assert_eq!(Smoothing::default().smooth(&noisy[..9]), noisy[..9]);
        assert_eq!(
            (Smoothing::new(1.0), Smoothing::new(-0.1), Smoothing::new(f64::NAN)),
            (None, None, None)
        );
    }

    #[test]
    fn thinning_keeps_the_last_point() {
        let many: Vec<(f64, f64)> = (0..1001).map(|at| (f64::from(at), f64::from(at))).collect();
        let few = thin(&many, 100);
        assert!(few.len() <= 100 && few.last() == Some(&(1000.0, 1000.0)));
        assert_eq!(thin(&many, 2000), many);
        assert_eq!(thin(&[], 5), []);
    }
}
