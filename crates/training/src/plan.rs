//! Which rows are computed together: tokens with which several rows of a pass begin are computed once, and each pass
//! stays within a budget of tokens.
//!
//! Sorted by their tokens, rows form a tree: all problems begin with the system prompt, the episodes of a problem with its
//! prompt, and some of these with the same first response. Knows no model and no algorithm.

use crate::batch::Row;

/// The least number of tokens between two branches of the tree. A shorter piece would cost more, as a sequence of its own
/// with a copy of the keys before it, than it saves.
const MIN_PIECE: usize = 16;

/// A row of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRow {
    /// Its index.
    pub row: usize,
    /// The number of its first tokens that are computed with the row before it in the pass.
    pub shared: usize,
}

/// What a pass may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassBudget {
    /// The maximum number of computed tokens, where nothing is copied.
    pub tokens: usize,
    /// The memory of a copied token relative to a computed one.
    pub copy_cost: f64,
}

/// Groups rows into passes within the budget, or of one row. Rows without trained tokens are in none.
///
/// A pass is a run of the sorted rows. Of all ways to cut the sorted rows into runs, one of those that compute the fewest
/// tokens is taken, and of these one of the fewest passes. The result depends only on tokens and indices, so that the same
/// rows always give the same passes.
pub fn plan(rows: &[Row], budget: PassBudget) -> Vec<Vec<PlannedRow>> {
    let mut sorted = sorted(rows);
    let sizes: Vec<(usize, usize)> =
        sorted.iter().map(|planned| (rows[planned.row].needed(), planned.shared)).collect();
    let mut passes = Vec::new();
    for begin in pass_starts(&sizes, budget).into_iter().rev() {
        let mut pass = sorted.split_off(begin);
        pass[0].shared = 0;
        passes.push(pass);
    }
    passes.reverse();
    passes
}

/// The rows with trained tokens in the order of their tokens, in which rows that share most are neighbours.
fn sorted(rows: &[Row]) -> Vec<PlannedRow> {
    let trained = rows.iter().enumerate().filter(|(_, row)| row.trained_tokens() > 0);
    let mut texts: Vec<(&[u32], usize)> =
        trained.map(|(at, row)| (&row.tokens[..row.needed()], at)).collect();
    texts.sort();
    let mut shared = Vec::with_capacity(texts.len());
    let mut before: &[u32] = &[];
    for (text, _) in &texts {
        shared.push(before.iter().zip(*text).take_while(|(one, other)| one == other).count());
        before = text;
    }
    drop_short_pieces(&mut shared);
    texts.iter().zip(shared).map(|((_, row), shared)| PlannedRow { row: *row, shared }).collect()
}

/// Lowers what rows share with the row before such that branches of their tree are at least [`MIN_PIECE`] tokens apart.
fn drop_short_pieces(shared: &mut [usize]) {
    // Ranges of rows, with the position of the last branch before they separate.
    let mut open = vec![(0..shared.len(), 0)];
    while let Some((range, before)) = open.pop() {
        let Some(branch) = shared[range.clone()].iter().copied().min() else { continue };
        let kept = if branch - before >= MIN_PIECE { branch } else { before };
        let mut begin = range.start;
        for at in range.clone() {
            if shared[at] == branch {
                shared[at] = kept;
                open.push((begin..at, kept));
                begin = at + 1;
            }
        }
        open.push((begin..range.end, kept));
    }
}

/// Where passes begin, in order, given the length of each row and what it shares with the one before.
fn pass_starts(sizes: &[(usize, usize)], budget: PassBudget) -> Vec<usize> {
    // For each number of first rows: the fewest tokens and passes that compute them, and where the last pass begins.
    let mut best = vec![(usize::MAX, usize::MAX, 0); sizes.len() + 1];
    best[0] = (0, 0, 0);
    for begin in 0..sizes.len() {
        let (tokens, passes, _) = best[begin];
        let mut cost = PassCost::default();
        for (end, (length, shared)) in (begin + 1..).zip(&sizes[begin..]) {
            let is_first = end == begin + 1;
            cost.add(*length, if is_first { 0 } else { *shared });
            if !is_first && cost.total(budget.copy_cost) > budget.tokens {
                break;
            }
            best[end] = best[end].min((tokens + cost.computed, passes + 1, begin));
        }
    }
    let mut starts = Vec::new();
    let mut end = sizes.len();
    while end > 0 {
        end = best[end].2;
        starts.push(end);
    }
    starts.reverse();
    starts
}

/// The cost of a pass, row by row.
#[derive(Debug, Default)]
struct PassCost {
    /// Computed tokens.
    computed: usize,
    /// Tokens whose keys and values are copied: for each piece of the tree all before it.
    copied: usize,
    /// The positions at which the pieces of the last row end.
    ends: Vec<usize>,
}

impl PassCost {
    /// Adds a row of this length, given what it shares with the one before.
    fn add(&mut self, length: usize, shared: usize) {
        self.computed += length - shared;
        while self.ends.last().is_some_and(|end| *end > shared) {
            self.ends.pop();
        }
        // Where it branches off within a piece, that becomes two.
        let splits = shared > 0 && self.ends.last() != Some(&shared);
        let goes_on = length > shared;
        self.copied += shared * (usize::from(splits) + usize::from(goes_on));
        self.ends.extend(splits.then_some(shared));
        self.ends.extend(goes_on.then_some(length));
    }

    /// In computed tokens.
    fn total(&self, copy_cost: f64) -> usize {
        self.computed + (self.copied as f64 * copy_cost).ceil() as usize
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
