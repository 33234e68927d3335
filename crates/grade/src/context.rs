//! Rewards of context tasks in reinforcement learning: the domain and kind of question select the grader.

use std::collections::HashSet;

use crate::{choice, python::strip, rouge};

/// Characters of a domain quoted in an error.
const SHOWN: usize = 80;

/// The fields a reward depends on.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Source of the task; its prefix selects the grader.
    pub domain: &'a str,
    /// Kind of question as the dataset names it; unknown kinds are open-ended.
    pub qa_type: Option<&'a str>,
    /// Expected answer.
    pub ground_truth: &'a str,
    /// Answer of the model.
    pub agent_answer: &'a str,
}

/// No grader exists for the domain.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "unknown domain `{0}`: expected one that starts with math, physics, chem, biomed, instruct_follow, \
     instruct_pretrain or long_context"
)]
pub struct UnknownDomain(
    /// Its first characters: rows may hold anything.
    pub String,
);

/// Scores an answer from 0 to 1; 0 without an answer or an expected one, whatever the domain.
pub fn reward(row: &Row) -> Result<f64, UnknownDomain> {
    if row.agent_answer.is_empty() || row.ground_truth.is_empty() {
        return Ok(0.0);
    }
    let (answer, truth) = (strip(row.agent_answer), strip(row.ground_truth));
    let domain = row.domain.to_lowercase();
    let within = |domains: &[&str]| domains.iter().any(|start| domain.starts_with(start));
    if within(&["math", "physics"]) {
        Ok(crate::math::reward(truth, answer))
    } else if within(&["chem", "biomed"]) {
        Ok(choice::score(answer, truth))
    } else if within(&["instruct_follow"]) {
        Ok(crate::ifbench::score(truth, answer))
    } else if within(&["instruct_pretrain", "long_context"]) {
        Ok(question(row.qa_type.unwrap_or_default(), answer, truth))
    } else {
        Err(UnknownDomain(row.domain.chars().take(SHOWN).collect()))
    }
}

/// Scores the answer to a question about documents.
fn question(kind: &str, answer: &str, truth: &str) -> f64 {
    let multiple_choice = kind.to_lowercase().contains("multiple choice");
    if multiple_choice && truth.contains(',') {
        common_choices(answer, truth)
    } else if multiple_choice {
        choice::score(answer, truth)
    } else if crate::math::reward(truth, answer) > 0.0 {
        1.0
    } else {
        rouge::score(truth, answer).fmeasure
    }
}

/// F1 score of two sets of choices.
fn common_choices(answer: &str, truth: &str) -> f64 {
    let (answer, truth) = (choices(answer), choices(truth));
    if answer.is_empty() || truth.is_empty() {
        return 0.0;
    }
    let common = answer.intersection(&truth).count() as f64;
    rouge::harmonic_mean(common / answer.len() as f64, common / truth.len() as f64)
}

fn choices(list: &str) -> HashSet<String> {
    let choices = list.split(',').map(|choice| strip(choice).to_uppercase());
    choices.filter(|choice| !choice.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reward_of(
        domain: &str,
        qa_type: Option<&str>,
        ground_truth: &str,
        agent_answer: &str,
    ) -> f64 {
        reward(&Row { domain, qa_type, ground_truth, agent_answer }).unwrap()
    }

    #[test]
    fn choices_are_letters_or_sets() {
        let choice =
            |truth, answer| reward_of("instruct_pretrain", Some("Multiple Choice"), truth, answer);
        assert_eq!(choice("B", "The answer is b."), 1.0);
        assert_eq!(choice("A, C", "c,a ,"), 1.0);
        assert_eq!(choice("A, C", "A"), 2.0 / 3.0);
        assert_eq!(choice("A, C", "B"), 0.0);
        assert_eq!(choice(",", "B"), 0.0);
        assert_eq!(choice("B", ""), 0.0);
        assert_eq!(reward_of("Chemistry", None, "B", "(B)"), 1.0);
    }

    #[test]
    fn open_questions_use_math_first_and_rouge_second() {
        for kind in [None, Some(""), Some("Free-form"), Some("open_ended"), Some("unheard of")] {
            assert_eq!(reward_of("long_context", kind, "3/4", " 0.75\n"), 1.0);
            assert_eq!(reward_of("long_context", kind, "Fresh food.", "fresh food indeed"), 0.8);
        }
        assert_eq!(reward_of("math", None, "3/4", "\\boxed{0.75}"), 1.0);
        assert_eq!(reward_of("physics-optics", None, "red light", "light"), 0.0);
    }

    #[test]
    fn an_unknown_domain_is_named() {
        let row = Row { domain: "poetry", qa_type: None, ground_truth: "x", agent_answer: "x" };
        assert_eq!(reward(&row), Err(UnknownDomain("poetry".into())));
        assert_eq!(reward(&Row { agent_answer: "", ..row }), Ok(0.0));
    }
}
