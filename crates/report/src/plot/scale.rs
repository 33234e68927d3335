//! From numbers to places on the sheet, and round numbers to mark them by.

use super::canvas::{Anchor, Canvas};

/// A linear scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    left: f64,
    right: f64,
}

impl Scale {
    /// One that puts `low` at the left and `high` at the right.
    pub(super) fn new([low, high]: [f64; 2], [left, right]: [f64; 2]) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { low, high, left, right }
    }

    /// Where a number lies; what is outside lies at the edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.left + share * (self.right - self.left)
    }

    /// Round numbers from end to end.
    pub(super) fn ticks(&self, about: f64) -> Vec<f64> {
        let step = round_step((self.high - self.low) / about);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last.min(first + 100)).map(|at| at as f64 * step).collect()
    }

    /// Vertical lines and numbers below a plot.
    pub(super) fn axis(
        &self,
        canvas: &mut Canvas,
        [top, bottom]: [f64; 2],
        name: impl Fn(f64) -> String,
    ) {
        for tick in self.ticks(5.0) {
            let x = self.at(tick);
            canvas.line("grid", [x, top], [x, bottom]);
            canvas.text("tick", [x, bottom + 13.0], Anchor::Middle, &name(tick));
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least this large.
pub(super) fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-12).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_inside() {
        let ticks = Scale::new([0.0, 1.0], [0.0, 100.0]).ticks(5.0);
        assert_eq!(ticks.len(), 6);
        assert!((ticks[5] - 1.0).abs() < 1e-12);
        assert_eq!(Scale::new([-0.13, 0.27], [0.0, 1.0]).ticks(5.0), [-0.1, 0.0, 0.1, 0.2]);
        assert_eq!(Scale::new([0.0, 0.0], [0.0, 1.0]).ticks(2.0).len(), 3);
        assert_eq!(round_step(3.0), 5.0);
        assert_eq!(round_step(0.0), 1e-12);
    }

    #[test]
    fn what_is_outside_lies_at_the_edge() {
        let scale = Scale::new([0.0, 10.0], [100.0, 200.0]);
        assert_eq!([scale.at(-5.0), scale.at(5.0), scale.at(50.0)], [100.0, 150.0, 200.0]);
    }
}
