//! Training sequences and how their data becomes tensors. Knows no model, no algorithm and no memory.

use tch::{Device, TchError, Tensor};

/// A training sequence and its per-token data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Which of them are trained on. As long as `tokens`, as are the next three.
    pub trained: Vec<bool>,
    /// Log-probabilities under the sampler; empty for sequences that were not sampled.
    pub sampler: Vec<f32>,
    /// Log-probabilities under the weights before the batch's first step; empty where those are the current ones.
    pub old: Vec<f32>,
    /// Log-probabilities under the initial weights; empty where there is no KL term.
    pub reference: Vec<f32>,
    /// The advantage of its episode.
    pub advantage: f64,
    /// The weight of each of its tokens in the loss.
    pub weight: f64,
}

impl Row {
    /// The number of trained tokens. The first token has no prediction.
    pub fn trained_tokens(&self) -> usize {
        self.trained_positions().count()
    }

    /// The positions of the trained tokens.
    pub(crate) fn trained_positions(&self) -> impl Iterator<Item = usize> {
        let marks = self.trained.iter().enumerate().take(self.tokens.len());
        marks.skip(1).filter(|(_, trained)| **trained).map(|(at, _)| at)
    }

    /// The length up to the last trained token: what follows has no effect.
    pub fn needed(&self) -> usize {
        let last = self.trained.iter().rposition(|trained| *trained);
        last.map_or(0, |last| last + 1).min(self.tokens.len())
    }
}

/// The data of the trained tokens of rows, one row after another, as tensors on a device: `[tokens]` each.
#[derive(Debug)]
pub struct Packed {
    /// See [`Row::sampler`].
    pub sampler: Option<Tensor>,
    /// See [`Row::old`].
    pub old: Option<Tensor>,
    /// See [`Row::reference`].
    pub reference: Option<Tensor>,
    /// See [`Row::advantage`].
    pub advantage: Tensor,
    /// See [`Row::weight`].
    pub weight: Tensor,
}

impl Packed {
    /// Packs rows in this order.
    pub fn new(rows: &[&Row], device: Device) -> Result<Self, TchError> {
        let of_rows = |value: fn(&Row) -> f64| {
            let values: Vec<f32> = rows
                .iter()
                .flat_map(|row| std::iter::repeat_n(value(row) as f32, row.trained_tokens()))
                .collect();
            Tensor::f_from_slice(&values)?.f_to_device(device)
        };
        Ok(Self {
            sampler: packed(rows, |row| &row.sampler, device)?,
            old: packed(rows, |row| &row.old, device)?,
            reference: packed(rows, |row| &row.reference, device)?,
            advantage: of_rows(|row| row.advantage)?,
            weight: of_rows(|row| row.weight)?,
        })
    }
}

/// Packs the log-probabilities of the trained tokens of rows; `None` unless all rows have them.
fn packed(
    rows: &[&Row],
    of: fn(&Row) -> &Vec<f32>,
    device: Device,
) -> Result<Option<Tensor>, TchError> {
    let has = |row: &&Row| of(row).len() == row.tokens.len() && !row.tokens.is_empty();
    if !rows.iter().all(has) {
        return Ok(None);
    }
    let values: Vec<f32> =
        rows.iter().flat_map(|row| row.trained_positions().map(|at| of(row)[at])).collect();
    Ok(Some(Tensor::f_from_slice(&values)?.f_to_device(device)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(length: usize, trained: &[usize]) -> Row {
        let mask = (0..length).map(|at| trained.contains(&at)).collect();
        let tokens = (0..length as u32).collect();
        Row { tokens, trained: mask, advantage: 1.0, weight: 0.5, ..Row::default() }
    }

    #[test]
    fn what_follows_the_last_trained_token_is_not_needed() {
        assert_eq!(row(10, &[2, 3]).needed(), 4);
        assert_eq!(row(10, &[]).needed(), 0);
    }

    #[test]
    fn values_are_those_of_the_trained_tokens() {
        let with = |length: usize, trained: &[usize]| {
            let sampler = (0..length).map(|at| at as f32).collect();
            Row { sampler, ..row(length, trained) }
        };
        let rows = [with(5, &[0, 4]), with(3, &[1, 2])];
        let packed = Packed::new(&[&rows[0], &rows[1]], Device::Cpu).unwrap();
        let sampler = Vec::<f32>::try_from(packed.sampler.unwrap()).unwrap();
        assert_eq!(sampler, [4.0, 1.0, 2.0]);
        assert!(packed.old.is_none() && packed.reference.is_none());
        assert_eq!(packed.advantage.size(), [3]);
    }

    #[test]
    fn the_first_token_is_never_trained() {
        assert_eq!(row(3, &[0]).trained_tokens(), 0);
    }
}
