//! A calm line through restless numbers, and fewer points where there are more than can be seen.

/// Fewer points are not smoothed.
const FEW: usize = 25;

/// How much of the former mean each new one keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smoothing(f64);

impl Default for Smoothing {
    fn default() -> Self {
        Self(0.7)
    }
}

impl Smoothing {
    /// From 0, which leaves all as it is, to below 1.
    pub fn new(kept: f64) -> Option<Self> {
        (0.0..1.0).contains(&kept).then_some(Self(kept))
    }

    /// An exponential moving mean whose beginning is not drawn towards zero. Few points, such as those of a validation
    /// now and then, are left as they are: a mean would come too late for them.
    pub(crate) fn line(self, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        if points.len() < FEW {
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

/// At most about so many points, each the mean of its neighbours; the last one stays as it is.
pub(crate) fn thin(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(most.max(1)).max(1);
    if size == 1 {
        return points.to_vec();
    }
    let mean = |some: &[(f64, f64)]| {
        let many = some.len() as f64;
        let sum = some.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / many, sum.1 / many)
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
    fn lines_are_calmer_and_begin_where_the_numbers_do() {
        let restless: Vec<(f64, f64)> =
            (0..100).map(|at| (f64::from(at), f64::from(5 + at % 2))).collect();
        let line = Smoothing::default().line(&restless);
        assert_eq!(line[0], (0.0, 5.0));
        assert!(line[50..].iter().all(|(_, value)| (5.2..5.8).contains(value)));
        assert_eq!(Smoothing::new(0.0).unwrap().line(&restless), restless);
        assert_eq!(Smoothing::default().line(&restless[..9]), restless[..9]);
        assert_eq!(
            (Smoothing::new(1.0), Smoothing::new(-0.1), Smoothing::new(f64::NAN)),
            (None, None, None)
        );
    }

    #[test]
    fn fewer_points_keep_the_last() {
        let many: Vec<(f64, f64)> = (0..1001).map(|at| (f64::from(at), f64::from(at))).collect();
        let few = thin(&many, 100);
        assert!(few.len() <= 100 && few.last() == Some(&(1000.0, 1000.0)));
        assert_eq!(thin(&many, 2000), many);
        assert_eq!(thin(&[], 5), []);
    }
}
