//! Plans against the tree of all prefixes of rows, built naively.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// A row whose last token is trained. Each character stands for as many tokens as a piece has at least.
fn text(characters: &str) -> Row {
    let tokens: Vec<u32> = characters
        .chars()
        .flat_map(|character| std::iter::repeat_n(u32::from(character), MIN_PIECE))
        .collect();
    exact(tokens)
}

/// A row of these tokens, of which the last is trained.
fn exact(tokens: Vec<u32>) -> Row {
    let trained = (0..tokens.len()).map(|at| at + 1 == tokens.len()).collect();
    Row { tokens, trained, ..Row::default() }
}

/// Passes as indices of rows and shared characters, for a budget in characters.
fn planned(rows: &[Row], budget: usize, copy_cost: f64) -> Vec<Vec<(usize, usize)>> {
    let passes = plan(rows, PassBudget { tokens: budget * MIN_PIECE, copy_cost });
    let row = |planned: PlannedRow| (planned.row, planned.shared / MIN_PIECE);
    passes.into_iter().map(|pass| pass.into_iter().map(row).collect()).collect()
}

fn computed(rows: &[Row], pass: &[PlannedRow]) -> usize {
    pass.iter().map(|planned| rows[planned.row].needed() - planned.shared).sum()
}

#[test]
fn what_rows_begin_with_is_shared_on_all_levels() {
    let rows = ["sysProbBx", "sysProbAyC", "sysOther", "sysProbAyD", "sysOtter", "q"].map(text);
    let wanted = [[(5, 0), (2, 0), (4, 5), (1, 3), (3, 9), (0, 7)]];
    assert_eq!(planned(&rows, 100, 0.0), wanted);
    let budget = PassBudget { tokens: usize::MAX, copy_cost: 0.0 };
    let computed = computed(&rows, &plan(&rows, budget)[0]);
    assert_eq!(computed, MIN_PIECE * (1 + 8 + 3 + 7 + 1 + 2));
}

#[test]
fn rows_that_are_equal_or_continue_others_are_computed_once() {
    let rows = ["same", "sameness", "same", "sa"].map(text);
    assert_eq!(planned(&rows, 100, 0.0), [[(3, 0), (0, 2), (2, 4), (1, 4)]]);
    assert_eq!(planned(&rows, 8, 0.0).len(), 1);
}

#[test]
fn what_follows_the_last_trained_token_is_neither_computed_nor_compared() {
    let mut rows = ["promptAx", "promptAyz"].map(text);
    for row in &mut rows {
        row.trained = (0..row.tokens.len()).map(|at| at == 7 * MIN_PIECE - 1).collect();
    }
    assert_eq!(planned(&rows, 7, 0.0), [[(0, 0), (1, 7)]]);
}

#[test]
fn rows_without_trained_tokens_are_in_no_pass() {
    let untrained = |row: Row| Row { trained: vec![false; row.tokens.len()], ..row };
    let first = Row { tokens: vec![1, 2, 3], trained: vec![true, false, false], ..Row::default() };
    let rows = [untrained(text("ab")), text("abc"), first, Row::default()];
    assert_eq!(planned(&rows, 10, 0.0), [[(1, 0)]]);
    assert_eq!(planned(&[], 10, 0.0), [[]; 0]);
    assert_eq!(planned(&rows[2..], 10, 0.0), [[]; 0], "the first token has no prediction");
}

#[test]
fn passes_are_cut_where_rows_share_least() {
    let rows = ["problemAa", "problemAb", "problemBc", "problemBd"].map(text);
    // Three rows would fit the first pass, and the fourth would compute all again.
    assert_eq!(planned(&rows, 12, 0.0), [[(0, 0), (1, 8)], [(2, 0), (3, 8)]]);
    assert_eq!(planned(&rows, 13, 0.0), [[(0, 0), (1, 8), (2, 7), (3, 8)]]);
    assert_eq!(planned(&rows, 9, 0.0).len(), 4);
    assert_eq!(planned(&rows, 1, 0.0).len(), 4, "one row always fits");
    // Where nothing is shared, passes are filled.
    let rows = ["abc", "bcd", "cde", "def", "efg"].map(text);
    assert_eq!(planned(&rows, 6, 0.0).len(), 3);
}

#[test]
fn copies_of_keys_count() {
    let rows = ["promptAa", "promptBb", "promptBc", "prompt"].map(text);
    // Computed: 8 + 2 + 1. Copied: 6 to `Aa`, 6 to `B`, 7 to `b` and to `c`.
    assert_eq!(planned(&rows, 11, 0.0).len(), 1);
    assert_eq!(planned(&rows, 11 + 13, 0.5).len(), 1);
    assert_eq!(planned(&rows, 11 + 12, 0.5).len(), 2);
}

#[test]
fn branches_that_are_close_to_each_other_become_one() {
    let row = |length: usize, last: u32| {
        let end = length as u32 + 40;
        exact((0..length as u32).chain(std::iter::repeat_n(end, 30)).chain([last]).collect())
    };
    // They branch off after 100, 110, 116 and 120 tokens. 116 is far enough from 100; 120 is not from 116.
    let rows = [row(100, 1), row(110, 2), row(116, 3), row(120, 4), row(120, 5)];
    let budget = PassBudget { tokens: usize::MAX, copy_cost: 0.0 };
    let passes = plan(&rows, budget);
    let mut shared: Vec<usize> = passes[0].iter().map(|planned| planned.shared).collect();
    shared.sort_unstable();
    assert_eq!(shared, [0, 100, 100, 116, 150]);
    // Rows that share less than a piece share nothing.
    let rows = [text("a"), exact([vec![u32::from('a'); MIN_PIECE - 1], vec![7; 20]].concat())];
    assert!(plan(&rows, budget)[0].iter().all(|planned| planned.shared == 0));
}

/// The number of tokens of the tree of rows, and for each piece between branches and ends the tokens before it.
fn naive_tree(texts: &[&[u32]]) -> (usize, usize) {
    let prefixes: BTreeSet<&[u32]> =
        texts.iter().flat_map(|text| (1..=text.len()).map(|end| &text[..end])).collect();
    let mut children: BTreeMap<&[u32], usize> = BTreeMap::new();
    for prefix in &prefixes {
        *children.entry(&prefix[..prefix.len() - 1]).or_default() += 1;
    }
    let is_end = |prefix: &[u32]| texts.contains(&prefix) || children.get(prefix) > Some(&1);
    let ends = prefixes.iter().filter(|prefix| is_end(prefix));
    let before = |prefix: &&[u32]| (1..prefix.len()).rev().find(|end| is_end(&prefix[..*end]));
    (prefixes.len(), ends.map(|prefix| before(prefix).unwrap_or(0)).sum())
}

/// Rows of a few kinds of tokens, many of which begin alike; some are not trained on, some go on after the last trained
/// token. Each token is repeated this many times.
fn arbitrary_rows(repeat: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (prop::collection::vec(0u32..3, 0..6), 0usize..3, any::<bool>());
    let row = row.prop_map(move |(symbols, rest, is_trained)| {
        let tokens: Vec<u32> = symbols.iter().flat_map(|s| vec![*s; repeat]).collect();
        let Row { mut tokens, mut trained, .. } = exact(tokens);
        tokens.extend(vec![9; rest]);
        trained.resize(tokens.len(), false);
        if !is_trained {
            trained.fill(false);
        }
        Row { tokens, trained, ..Row::default() }
    });
    prop::collection::vec(row, 0..9)
}

/// The fewest tokens of any way to cut the texts into passes within the budget, or of one text, by trying all.
fn fewest(texts: &[&[u32]], budget: PassBudget) -> usize {
    let cost = |begin: usize, end: usize| {
        let (computed, copied) = naive_tree(&texts[begin..end]);
        let cost = computed + (copied as f64 * budget.copy_cost).ceil() as usize;
        (end == begin + 1 || cost <= budget.tokens).then_some(computed)
    };
    let mut best = vec![0];
    for end in 1..=texts.len() {
        let ways = (0..end).filter_map(|begin| Some(best[begin] + cost(begin, end)?));
        best.push(ways.min().unwrap());
    }
    best[texts.len()]
}

proptest! {
    #[test]
    fn plans_compute_the_tokens_of_the_tree_within_the_budget(
        rows in arbitrary_rows(MIN_PIECE),
        tokens in 0usize..30 * MIN_PIECE,
        copy_cost in 0.0..0.5f64,
    ) {
        let needed = |row: usize| &rows[row].tokens[..rows[row].needed()];
        let budget = PassBudget { tokens, copy_cost };
        let passes = plan(&rows, budget);
        let mut planned: Vec<usize> = passes.iter().flatten().map(|planned| planned.row).collect();
        let mut texts: Vec<&[u32]> = planned.iter().map(|row| needed(*row)).collect();
        for pass in &passes {
            let texts: Vec<&[u32]> = pass.iter().map(|planned| needed(planned.row)).collect();
            let (unique, copied) = naive_tree(&texts);
            prop_assert_eq!(computed(&rows, pass), unique);
            let cost = unique + (copied as f64 * copy_cost).ceil() as usize;
            prop_assert!(pass.len() == 1 || cost <= tokens, "{} {:?}", cost, pass);
        }
        planned.sort_unstable();
        let trained: Vec<usize> =
            (0..rows.len()).filter(|row| rows[*row].trained_tokens() > 0).collect();
        prop_assert_eq!(planned, trained);
        texts.sort_unstable();
        let all: usize = passes.iter().map(|pass| computed(&rows, pass)).sum();
        prop_assert_eq!(all, fewest(&texts, budget));
    }

    #[test]
    fn pieces_are_long_and_nearly_all_is_shared(rows in arbitrary_rows(5)) {
        let needed = |row: usize| &rows[row].tokens[..rows[row].needed()];
        let passes = plan(&rows, PassBudget { tokens: usize::MAX, copy_cost: 0.0 });
        prop_assert!(passes.len() <= 1);
        let mut ends: Vec<usize> = Vec::new();
        let mut before: &[u32] = &[];
        for planned in passes.iter().flatten() {
            let PlannedRow { row, shared } = *planned;
            prop_assert_eq!(&before[..shared], &needed(row)[..shared]);
            before = needed(row);
            ends.retain(|end| *end < shared);
            prop_assert!(shared == 0 || shared >= ends.last().unwrap_or(&0) + MIN_PIECE);
            ends.push(shared);
        }
        let texts: Vec<&[u32]> =
            passes.iter().flatten().map(|planned| needed(planned.row)).collect();
        let all: usize = passes.iter().map(|pass| computed(&rows, pass)).sum();
        let (unique, _) = naive_tree(&texts);
        prop_assert!((unique..=unique + texts.len() * (MIN_PIECE - 1)).contains(&all));
    }
}
