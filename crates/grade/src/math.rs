//! Mathematical equality of answers, with the verdicts of Math-Verify 0.9.0 as the benchmarks use it: the boxed answer is
//! extracted, normalized, parsed as LaTeX and compared with the gold answer, quirks included.
//!
//! Time is bounded on any text, and answers that do not parse are compared as text. The stages, in order: `extract`,
//! `normalize`, `lex`, `grammar`, `convert`, `compare`.

mod ast;
mod boxed;
mod compare;
mod convert;
mod convert_atoms;
mod convert_sets;
mod dd;
mod eval;
mod exact;
mod expr;
mod extract;
mod float;
mod functions;
mod grammar;
mod grammar_expr;
mod grammar_functions;
mod grammar_sets;
mod lex;
mod lex_tables;
mod matrix;
mod normalize;
mod number;
mod patterns;
mod plain;
mod relate;
mod sets;
mod tidy;

use extract::{Extracted, extract};
pub use patterns::Target;

/// Decimal places to which [`reward`] rounds floats, the default of Math-Verify.
const PLACES: i64 = 6;

/// Scores an answer: 1 if it equals the gold answer, else 0.
///
/// The gold answer is the bare value. Of the answer the last balanced `\boxed{}` counts, or all of it without one.
#[must_use]
pub fn reward(gold: &str, answer: &str) -> f64 {
    compare(gold, answer).score
}

/// The score of an answer, and the texts that were compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// 1 if both are equal, else 0.
    pub score: f64,
    /// What was found in the gold answer; none where nothing was.
    pub gold: Option<String>,
    /// What was found in the answer.
    pub answer: Option<String>,
}

/// Scores an answer like [`reward`], and says what was compared.
#[must_use]
pub fn compare(gold: &str, answer: &str) -> Comparison {
    let answer = boxed::last_balanced(answer).unwrap_or_else(|| answer.trim_matches(is_space));
    let gold = extract(&format!("\\boxed{{{gold}}}"), &[Target::Latex]);
    let pred = extract(&format!("\\boxed{{{answer}}}"), &[Target::Plain, Target::Latex]);
    let score = f64::from(u8::from(verify(&gold, &pred, PLACES)));
    Comparison { score, gold: gold.text, answer: pred.text }
}

/// Whether two whole texts contain equal answers: extracts `targets` in order, and rounds floats to `places` decimals.
#[must_use]
pub fn same_answer(gold: &str, answer: &str, targets: &[Target], places: u32) -> bool {
    let places = i64::from(places.min(100));
    verify(&extract(gold, targets), &extract(answer, targets), places)
}

fn verify(gold: &Extracted, pred: &Extracted, places: i64) -> bool {
    if let (Some(gold), Some(pred)) = (&gold.object, &pred.object)
        && compare::equal(gold, pred, places) == Some(true)
    {
        return true;
    }
    match (&gold.text, &pred.text) {
        (Some(gold), Some(pred)) => {
            let (gold, pred) = (gold.trim_matches(is_space), pred.trim_matches(is_space));
            !gold.is_empty() && gold == pred
        }
        _ => false,
    }
}

/// White space in the sense of Python.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}
