//! Training sequences and how they become tensors: sorted by length, padded on the right, batched within a budget of
//! tokens.
//!
//! Knows no model and no algorithm.

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
        self.trained.iter().skip(1).filter(|trained| **trained).count()
    }

    /// The length up to the last trained token: what follows has no effect.
    pub fn needed(&self) -> usize {
        let last = self.trained.iter().rposition(|trained| *trained);
        last.map_or(0, |last| last + 1).min(self.tokens.len())
    }
}

/// Groups rows into batches of at most `budget` tokens, padding included; at least one row each. Rows without trained
/// tokens are in none.
///
/// The result depends only on lengths and indices, so that the same rows always give the same batches.
pub fn plan(rows: &[Row], budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> =
        (0..rows.len()).filter(|at| rows[*at].trained_tokens() > 0).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(rows[*at].needed()), *at));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for at in order {
        match batches.last_mut() {
            Some(batch) if room > 0 => {
                batch.push(at);
                room -= 1;
            }
            _ => {
                room = (budget / rows[at].needed().max(1)).max(1) - 1;
                batches.push(vec![at]);
            }
        }
    }
    batches
}

/// The per-token data of rows, as tensors on a device. Position t belongs to token t + 1.
#[derive(Debug)]
pub struct Packed {
    /// See [`Row::sampler`]; `[rows, length - 1]`, as the next two.
    pub sampler: Option<Tensor>,
    /// See [`Row::old`].
    pub old: Option<Tensor>,
    /// See [`Row::reference`].
    pub reference: Option<Tensor>,
    /// `[rows, 1]`.
    pub advantage: Tensor,
    /// `[rows, 1]`.
    pub weight: Tensor,
}

impl Packed {
    /// Pads rows, each cut after its last trained token.
    pub fn new(rows: &[&Row], device: Device) -> Result<Self, TchError> {
        let length = rows.iter().map(|row| row.needed()).max().unwrap_or(0).max(2);
        let column = |value: fn(&Row) -> f64| {
            let values: Vec<f32> = rows.iter().map(|row| value(row) as f32).collect();
            Tensor::f_from_slice(&values)?.f_view([-1, 1])?.f_to_device(device)
        };
        Ok(Self {
            sampler: padded(rows, length, |row| &row.sampler, device)?,
            old: padded(rows, length, |row| &row.old, device)?,
            reference: padded(rows, length, |row| &row.reference, device)?,
            advantage: column(|row| row.advantage)?,
            weight: column(|row| row.weight)?,
        })
    }
}

/// Pads the log-probabilities of rows; `None` unless all rows have them.
fn padded(
    rows: &[&Row],
    length: usize,
    of: fn(&Row) -> &Vec<f32>,
    device: Device,
) -> Result<Option<Tensor>, TchError> {
    let has = |row: &&Row| of(row).len() == row.tokens.len() && !row.tokens.is_empty();
    if !rows.iter().all(has) {
        return Ok(None);
    }
    let width = length - 1;
    let mut values = vec![0f32; rows.len() * width];
    for (row, out) in rows.iter().zip(values.chunks_mut(width)) {
        for (value, out) in of(row).iter().skip(1).zip(out) {
            *out = *value;
        }
    }
    let size = [rows.len() as i64, width as i64];
    Ok(Some(Tensor::f_from_slice(&values)?.f_view(size)?.f_to_device(device)?))
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
    fn long_rows_go_first_and_budgets_hold() {
        let rows = [row(3, &[2]), row(10, &[9]), row(4, &[3]), row(5, &[]), row(4, &[2, 3])];
        assert_eq!(plan(&rows, 8), [vec![1], vec![2, 4], vec![0]]);
        assert_eq!(plan(&rows, 1).len(), 4, "one row always fits");
        assert_eq!(plan(&[], 8), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn what_follows_the_last_trained_token_is_not_needed() {
        assert_eq!(row(10, &[2, 3]).needed(), 4);
        assert_eq!(row(10, &[]).needed(), 0);
    }

    #[test]
    fn values_are_at_the_position_before_their_token() {
        let with = |length: usize, trained: &[usize]| {
            let sampler = (0..length).map(|at| at as f32).collect();
            Row { sampler, ..row(length, trained) }
        };
        let rows = [with(5, &[4]), with(3, &[1, 2])];
        let packed = Packed::new(&[&rows[0], &rows[1]], Device::Cpu).unwrap();
        let sampler = Vec::<f32>::try_from(packed.sampler.unwrap().view([-1])).unwrap();
        assert_eq!(sampler, [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 0.0, 0.0]);
        assert!(packed.old.is_none() && packed.reference.is_none());
        assert_eq!(packed.advantage.size(), [2, 1]);
    }

    #[test]
    fn the_first_token_is_never_trained() {
        let first = row(3, &[0]);
        assert_eq!((first.trained_tokens(), plan(&[first], 8).len()), (0, 0));
    }
}
