//! Mathematical equality of answers, equal to Math-Verify 0.9.0 as the benchmarks use it: the boxed answer is
//! found, cleaned, parsed as LaTeX and compared with the gold answer, quirks included.
//!
//! Pure and bounded: any text ends soon, and what cannot be understood is compared as text. It runs no computer
//! algebra beyond what the comparison needs.

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

use compare::Rules;
use extract::{Extracted, extract};
use patterns::Target;

/// Kinds of answers to look for in a whole text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Numbers and plain arithmetic.
    Expression,
    /// LaTeX in math delimiters or boxes.
    Latex,
}

/// The score of an answer: 1 where it equals the gold answer, 0 otherwise.
///
/// The gold answer is the bare value. Of the answer the last balanced `\boxed{}` counts, or all of it where there
/// is none.
#[must_use]
pub fn reward(gold: &str, answer: &str) -> f64 {
    let answer = boxed::last_balanced(answer).unwrap_or_else(|| answer.trim_matches(is_space));
    let gold = extract(&format!("\\boxed{{{gold}}}"), &[Target::Latex]);
    let pred = extract(&format!("\\boxed{{{answer}}}"), &[Target::Plain, Target::Latex]);
    f64::from(u8::from(verify(&gold, &pred, Rules { places: 6, relation_as_set: false })))
}

/// Whether two whole texts give equal answers, floats compared to so many decimal places.
#[must_use]
pub fn same_answer(gold: &str, answer: &str, look: &[Look], places: u32) -> bool {
    let targets: Vec<Target> = look
        .iter()
        .map(|look| match look {
            Look::Expression => Target::Plain,
            Look::Latex => Target::Latex,
        })
        .collect();
    let rules = Rules { places: i64::from(places.min(100)), relation_as_set: false };
    verify(&extract(gold, &targets), &extract(answer, &targets), rules)
}

fn verify(gold: &Extracted, pred: &Extracted, rules: Rules) -> bool {
    if let (Some(gold), Some(pred)) = (&gold.object, &pred.object)
        && compare::equal(gold, pred, rules) == Some(true)
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

/// Python's idea of white space.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}
