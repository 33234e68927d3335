//! A language model as judge: the prompt, the parsing of its responses, and the score of several.
//!
//! Calls no model: the caller sends the prompt as the only message and passes the responses.

use crate::python::strip;

/// Votes per answer.
pub const VOTES: usize = 4;
/// Sampling temperature of the published results.
pub const TEMPERATURE: f64 = 0.7;
/// Limit of a response, in tokens.
pub const MAX_TOKENS: u32 = 16_384;

/// The verdict of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer agrees with the expected one.
    Correct,
    /// It does not.
    Incorrect,
    /// The response states neither.
    Unknown,
    /// There is no response.
    Error,
}

impl Verdict {
    /// Name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Correct => "CORRECT",
            Self::Incorrect => "INCORRECT",
            Self::Unknown => "UNKNOWN",
            Self::Error => "ERROR",
        }
    }
}

/// The message to the judge, with the part of the answer after its reasoning.
pub fn prompt(question: &str, ground_truth: &str, answer: &str) -> String {
    let answer = without_thinking(answer);
    format!(
        "Assess whether the following CANDIDATE ANSWER is CORRECT or INCORRECT.\n\
         For the CANDIDATE ANSWER to be correct, it must be consistent with the OFFICIAL ANSWER.\n\n\
         The question, for reference only: {question}\n\
         The OFFICIAL ANSWER: {ground_truth}\n\
         CANDIDATE ANSWER TO ASSESS: {answer}\n\n\
         Reply only with CORRECT or INCORRECT."
    )
}

/// The text after the first `</think>`, trimmed; the whole text, untouched, without one.
pub fn without_thinking(answer: &str) -> &str {
    answer.split_once("</think>").map_or(answer, |(_, after)| strip(after))
}

/// Parses a response: its last `correct` in any case decides, negated by a preceding `in`.
pub fn verdict(reply: &str) -> Verdict {
    let upper = reply.to_uppercase();
    match upper.rsplit_once("CORRECT") {
        None => Verdict::Unknown,
        Some((before, _)) if before.ends_with("IN") => Verdict::Incorrect,
        Some(_) => Verdict::Correct,
    }
}

/// Score of an answer: the share of votes that are correct; 0 without votes.
pub fn mean(votes: &[Verdict]) -> f64 {
    if votes.is_empty() {
        return 0.0;
    }
    count(votes, Verdict::Correct) as f64 / votes.len() as f64
}

/// The most frequent verdict, for display only; ties go to the first in the order of [`Verdict`].
pub fn majority(votes: &[Verdict]) -> Verdict {
    let mut best = Verdict::Error;
    for verdict in [Verdict::Unknown, Verdict::Incorrect, Verdict::Correct] {
        let (ours, theirs) = (count(votes, verdict), count(votes, best));
        if ours > 0 && ours >= theirs {
            best = verdict;
        }
    }
    best
}

fn count(votes: &[Verdict], wanted: Verdict) -> usize {
    votes.iter().filter(|vote| **vote == wanted).count()
}

#[cfg(test)]
mod tests {
    use super::{Verdict::*, *};

    #[test]
    fn the_last_word_decides() {
        for (reply, expected) in [
            ("", Unknown),
            ("no idea", Unknown),
            ("Not correct", Correct),
            ("IN CORRECT", Correct),
            ("NCORRECT", Correct),
            ("INCORRECTCORRECT", Correct),
            ("correct? no, incorrectly so", Incorrect),
            ("wıncorrect", Incorrect),
            ("Cﾯrrect", Unknown),
        ] {
            assert_eq!(verdict(reply), expected, "{reply:?}");
        }
    }

    #[test]
    fn thinking_is_cut_at_its_first_end() {
        assert_eq!(without_thinking(" as it is "), " as it is ");
        assert_eq!(without_thinking("a</think>\u{1c} b</think> c "), "b</think> c");
        assert!(prompt("{q}", "g", "x</think> y ").contains(": {q}\nThe OFFICIAL ANSWER: g\n"));
    }

    #[test]
    fn votes_are_averaged() {
        assert_eq!(mean(&[]), 0.0);
        assert_eq!(mean(&[Correct, Incorrect, Error, Correct]), 0.5);
        assert_eq!(majority(&[Correct, Incorrect, Incorrect, Correct]), Correct);
        assert_eq!(majority(&[Unknown, Incorrect, Error]), Incorrect);
        assert_eq!(majority(&[Error, Error, Correct]), Error);
        assert_eq!(majority(&[]), Error);
    }
}
