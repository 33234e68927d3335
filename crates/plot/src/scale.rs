//! Linear scales from numbers to positions, with ticks at round numbers.

/// A linear scale.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Maps `low..=high` to `from..=to`. Where `high` is not above `low`, that number lies in the middle.
    pub fn new([low, high]: [f64; 2], [from, to]: [f64; 2]) -> Self {
        match high > low {
            true => Self { low, high, from, to },
            false => {
                let margin = (0.1 * low.abs()).max(1e-9);
                Self { low: low - margin, high: low + margin, from, to }
            }
        }
    }

    /// Position of a number; numbers outside the range lie at its ends.
    pub fn at(&self, number: f64) -> f64 {
        let share = ((number - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// Round numbers within the range, about `count` of them.
    pub fn ticks(&self, count: f64) -> Vec<f64> {
        let step = round_up((self.high - self.low) / count);
        let first = (self.low / step - 1e-9).ceil();
        let last = ((self.high / step + 1e-9).floor() - first).clamp(0.0, 50.0) as usize;
        (0..=last).map(|at| (first + at as f64) * step).collect()
    }

    /// Positions and labels of about `count` ticks.
    pub fn labels(&self, count: f64, label: impl Fn(f64) -> String) -> Vec<(f64, String)> {
        self.ticks(count).into_iter().map(|tick| (self.at(tick), label(tick))).collect()
    }

    /// Like [`labels`](Self::labels), whole numbers only.
    pub fn whole_labels(&self, count: f64, label: impl Fn(f64) -> String) -> Vec<(f64, String)> {
        let ticks = self.ticks(count).into_iter().filter(|tick| tick.fract() == 0.0);
        ticks.map(|tick| (self.at(tick), label(tick))).collect()
    }
}

/// The least of 1, 2 and 5 times a power of ten that is not below `least`.
fn round_up(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Scale::new([0.0, 10.0], [0.0, 1.0]).ticks(5.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Scale::new([-0.13, 0.27], [0.0, 1.0]).ticks(4.0), [-0.1, 0.0, 0.1, 0.2]);
        let shares = Scale::new([0.0, 1.0], [0.0, 100.0]).ticks(5.0);
        assert!(shares.len() == 6 && (shares[5] - 1.0).abs() < 1e-12);
        let tiny = Scale::new([1e-6, 1e-6], [0.0, 1.0]);
        assert!((1..=50).contains(&tiny.ticks(5.0).len()) && (tiny.at(1e-6) - 0.5).abs() < 1e-6);
        let huge = Scale::new([-f64::MAX / 4.0, f64::MAX / 4.0], [0.0, 1.0]);
        assert!((1..=51).contains(&huge.ticks(5.0).len()));
        let whole = Scale::new([0.0, 1.0], [0.0, 100.0]).whole_labels(5.0, |tick| tick.to_string());
        assert_eq!(whole, [(0.0, "0".to_owned()), (100.0, "1".to_owned())]);
        assert_eq!(round_up(3.0), 5.0);
    }

    #[test]
    fn numbers_outside_lie_at_the_ends() {
        let scale = Scale::new([0.0, 10.0], [200.0, 100.0]);
        assert_eq!([scale.at(-5.0), scale.at(5.0), scale.at(50.0)], [200.0, 150.0, 100.0]);
    }
}
