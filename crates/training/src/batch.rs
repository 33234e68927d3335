//! Training sequences and how they become tensors: what they share is computed once, nothing is padded, and each pass
//! stays within a budget of tokens.
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

/// Rows that begin with the same tokens, which are computed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRows {
    /// The number of tokens they share; 0 for a single row.
    pub shared: usize,
    /// The indices of the rows.
    pub rows: Vec<usize>,
}

impl SharedRows {
    /// The tokens that are computed.
    pub fn computed(&self, rows: &[Row]) -> usize {
        self.shared + self.rows.iter().map(|at| rows[*at].needed() - self.shared).sum::<usize>()
    }

    /// The tokens whose keys and values are copied: the prefix, for every row that goes on after it.
    fn copied(&self, rows: &[Row]) -> usize {
        match self.rows.len() {
            0 | 1 => 0,
            _ => {
                let longer = self.rows.iter().filter(|at| rows[**at].needed() > self.shared);
                self.shared * longer.count()
            }
        }
    }
}

/// What a pass may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassBudget {
    /// The maximum number of computed tokens, where nothing is copied.
    pub tokens: usize,
    /// The memory of a copied token relative to a computed one.
    pub copy_cost: f64,
}

impl PassBudget {
    /// The cost of a group, in computed tokens.
    fn cost(&self, group: &SharedRows, rows: &[Row]) -> usize {
        group.computed(rows) + (group.copied(rows) as f64 * self.copy_cost).ceil() as usize
    }
}

/// Groups rows into passes within the budget, or of one row. Rows without trained tokens are in none.
///
/// Rows that begin alike, as the episodes of one problem do, are in one pass if it has room, and share their prefix. The
/// result depends only on tokens and indices, so that the same rows always give the same passes.
pub fn plan(rows: &[Row], budget: PassBudget) -> Vec<Vec<SharedRows>> {
    let mut groups: Vec<SharedRows> =
        share(rows).into_iter().flat_map(|group| fitting(rows, group, budget)).collect();
    groups.sort_by_key(|group| (std::cmp::Reverse(group.computed(rows)), group.rows.clone()));
    let mut passes: Vec<(usize, Vec<SharedRows>)> = Vec::new();
    for group in groups {
        let tokens = budget.cost(&group, rows);
        // First fit, longest first: nearly as few passes as there can be.
        match passes.iter_mut().find(|(used, _)| used + tokens <= budget.tokens) {
            Some((used, pass)) => {
                *used += tokens;
                pass.push(group);
            }
            None => passes.push((tokens, vec![group])),
        }
    }
    passes.into_iter().map(|(_, pass)| pass).collect()
}

/// Groups rows by what they begin with, so that few tokens are computed in all.
///
/// In the order of their tokens, rows that share most are neighbours. Neighbouring groups are merged, those that share
/// most first, where that saves tokens: m rows that share p tokens save (m - 1) p.
fn share(rows: &[Row]) -> Vec<SharedRows> {
    let tokens = |at: usize| &rows[at].tokens[..rows[at].needed()];
    let mut order: Vec<usize> =
        (0..rows.len()).filter(|at| rows[*at].trained_tokens() > 0).collect();
    order.sort_by(|one, other| tokens(*one).cmp(tokens(*other)).then(one.cmp(other)));
    let alike = |(one, other): (&usize, &usize)| {
        tokens(*one).iter().zip(tokens(*other)).take_while(|(a, b)| a == b).count()
    };
    let mut borders: Vec<(usize, usize)> =
        order.iter().zip(order.iter().skip(1)).map(alike).enumerate().collect();
    borders.sort_by_key(|(at, shared)| (std::cmp::Reverse(*shared), *at));
    // The group of each row is stored at its first row; the others lead to it.
    let mut groups: Vec<SharedRows> =
        order.iter().map(|at| SharedRows { shared: 0, rows: vec![*at] }).collect();
    let mut first: Vec<usize> = (0..groups.len()).collect();
    for (at, shared) in borders {
        let (left, right) = (find(&mut first, at), find(&mut first, at + 1));
        let saved = |group: &SharedRows| (group.rows.len() - 1) * group.shared;
        let members = groups[left].rows.len() + groups[right].rows.len();
        if (members - 1) * shared > saved(&groups[left]) + saved(&groups[right]) {
            let merged = std::mem::take(&mut groups[right].rows);
            groups[left].rows.extend(merged);
            groups[left].shared = shared;
            first[right] = left;
        }
    }
    groups.retain(|group| !group.rows.is_empty());
    groups
}

/// The end of the path from `at`, which becomes shorter.
fn find(leads_to: &mut [usize], mut at: usize) -> usize {
    while leads_to[at] != at {
        leads_to[at] = leads_to[leads_to[at]];
        at = leads_to[at];
    }
    at
}

/// Splits a group into parts within the budget, each with its own copy of the prefix, or of one row.
fn fitting(rows: &[Row], group: SharedRows, budget: PassBudget) -> Vec<SharedRows> {
    let mut parts: Vec<SharedRows> = Vec::new();
    for at in group.rows {
        if let Some(part) = parts.last_mut() {
            part.rows.push(at);
            if budget.cost(part, rows) <= budget.tokens {
                continue;
            }
            part.rows.pop();
        }
        parts.push(SharedRows { shared: group.shared, rows: vec![at] });
    }
    for part in &mut parts {
        if part.rows.len() == 1 {
            part.shared = 0;
        }
    }
    parts
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

    /// A row with these tokens, of which the last is trained.
    fn text(tokens: &str) -> Row {
        let tokens: Vec<u32> = tokens.chars().map(u32::from).collect();
        let trained = (0..tokens.len()).map(|at| at + 1 == tokens.len()).collect();
        Row { tokens, trained, ..Row::default() }
    }

    fn plan(rows: &[Row], tokens: usize) -> Vec<Vec<SharedRows>> {
        super::plan(rows, PassBudget { tokens, copy_cost: 0.0 })
    }

    fn planned(rows: &[Row], budget: usize) -> Vec<Vec<(usize, Vec<usize>)>> {
        let passes = plan(rows, budget).into_iter();
        passes
            .map(|pass| pass.into_iter().map(|group| (group.shared, group.rows)).collect())
            .collect()
    }

    #[test]
    fn what_rows_begin_with_is_shared() {
        let rows = ["promptAx", "otherC", "promptB", "otherDyz", "promptAyy", "qq"].map(text);
        assert_eq!(planned(&rows, 100), [[(6, vec![0, 4, 2]), (5, vec![1, 3]), (0, vec![5])]]);
        let computed: usize = plan(&rows, 100)[0].iter().map(|group| group.computed(&rows)).sum();
        assert_eq!(computed, (6 + 2 + 3 + 1) + (5 + 1 + 3) + 2);
    }

    #[test]
    fn a_row_that_shares_little_does_not_spoil_a_group() {
        let rows = ["promptA", "promptB", "promptC", "prX"].map(text);
        assert_eq!(planned(&rows, 100), [[(6, vec![0, 1, 2]), (0, vec![3])]]);
    }

    #[test]
    fn identical_rows_are_computed_once() {
        let rows = ["same", "same"].map(text);
        assert_eq!(planned(&rows, 100), [[(4, vec![0, 1])]]);
        assert_eq!(plan(&rows, 100)[0][0].computed(&rows), 4);
    }

    #[test]
    fn groups_larger_than_a_pass_are_split() {
        let rows = ["promptAa", "promptBb", "promptCc", "promptDd"].map(text);
        assert_eq!(planned(&rows, 10), [[(6, vec![0, 1])], [(6, vec![2, 3])]]);
        assert_eq!(
            planned(&rows, 9),
            [[(0, vec![0])], [(0, vec![1])], [(0, vec![2])], [(0, vec![3])]]
        );
    }

    #[test]
    fn copies_of_a_prefix_count() {
        let rows = ["promptAa", "promptBb", "promptCc", "promptDd", "prompt"].map(text);
        let sizes = |tokens: usize, copy_cost: f64| -> Vec<Vec<usize>> {
            let passes = super::plan(&rows, PassBudget { tokens, copy_cost });
            passes.iter().map(|pass| pass.iter().map(|group| group.rows.len()).collect()).collect()
        };
        // The prefix is computed once, for the row that ends with it too, and copied to four.
        assert_eq!(sizes(14, 0.0), [[5]]);
        assert_eq!(sizes(14 + 12, 0.5), [[5]]);
        assert!(sizes(14 + 11, 0.5).iter().all(|pass| pass.iter().sum::<usize>() < 5));
        assert_eq!(sizes(16, 0.5), [[2], [3]]);
        assert_eq!(sizes(8, 1.0), [[1], [1], [1], [1], [1]], "one row always fits");
        // Whatever is shared, nothing is lost, and nothing costs more than the budget.
        for tokens in 8..40 {
            let budget = PassBudget { tokens, copy_cost: 0.3 };
            let passes = super::plan(&rows, budget);
            let cost = |pass: &Vec<SharedRows>| -> usize {
                pass.iter().map(|group| budget.cost(group, &rows)).sum()
            };
            assert!(passes.iter().all(|pass| cost(pass) <= tokens), "{tokens}: {passes:?}");
            let mut all: Vec<usize> =
                passes.iter().flatten().flat_map(|group| group.rows.clone()).collect();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn long_rows_go_first_and_budgets_hold() {
        let differing = |at: u32, length: usize, trained: &[usize]| {
            let row = row(length, trained);
            Row { tokens: row.tokens.iter().map(|token| token + 100 * at).collect(), ..row }
        };
        let rows = [
            differing(0, 3, &[2]),
            differing(1, 10, &[9]),
            differing(2, 4, &[3]),
            differing(3, 5, &[]),
            differing(4, 4, &[2, 3]),
        ];
        let alone = |at: usize| (0, vec![at]);
        assert_eq!(planned(&rows, 8), [vec![alone(1)], vec![alone(2), alone(4)], vec![alone(0)]]);
        assert_eq!(plan(&rows, 1).len(), 4, "one row always fits");
        assert_eq!(planned(&[], 8), [[]; 0]);
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
        let first = row(3, &[0]);
        assert_eq!((first.trained_tokens(), plan(&[first], 8).len()), (0, 0));
    }
}
