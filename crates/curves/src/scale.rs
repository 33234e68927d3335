//! From numbers to places on a sheet, and round numbers to mark them by.

/// A linear scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// One that puts `low` at `from` and `high` at `to`.
    pub(crate) fn new([low, high]: [f64; 2], [from, to]: [f64; 2]) -> Self {
        match high > low {
            true => Self { low, high, from, to },
            // One number alone lies in the middle.
            false => {
                let air = (0.1 * low.abs()).max(1e-9);
                Self { low: low - air, high: low + air, from, to }
            }
        }
    }

    /// Where a number lies; what is outside lies at the edge.
    pub(crate) fn at(&self, number: f64) -> f64 {
        let share = ((number - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// About so many round numbers from end to end.
    pub(crate) fn ticks(&self, about: f64) -> Vec<f64> {
        let step = round((self.high - self.low) / about);
        let first = (self.low / step - 1e-9).ceil();
        let many = ((self.high / step + 1e-9).floor() - first).clamp(0.0, 50.0) as usize;
        (0..=many).map(|at| (first + at as f64) * step).collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least this large.
fn round(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_inside() {
        assert_eq!(Scale::new([0.0, 10.0], [0.0, 1.0]).ticks(5.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Scale::new([-0.13, 0.27], [0.0, 1.0]).ticks(4.0), [-0.1, 0.0, 0.1, 0.2]);
        let tiny = Scale::new([1e-6, 1e-6], [0.0, 1.0]);
        assert!((1..=50).contains(&tiny.ticks(5.0).len()) && (tiny.at(1e-6) - 0.5).abs() < 1e-6);
        let huge = Scale::new([-f64::MAX / 4.0, f64::MAX / 4.0], [0.0, 1.0]);
        assert!((1..=51).contains(&huge.ticks(5.0).len()));
    }

    #[test]
    fn what_is_outside_lies_at_the_edge() {
        let scale = Scale::new([0.0, 10.0], [200.0, 100.0]);
        assert_eq!([scale.at(-5.0), scale.at(5.0), scale.at(50.0)], [200.0, 150.0, 100.0]);
    }
}
