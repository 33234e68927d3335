//! Which words and lines count as style of answers.

use super::style::{AnswerStyle, StylePattern, StyleSummary};

#[track_caller]
fn check(text: &str, expected: &[(StylePattern, u64)]) {
    let style = AnswerStyle::of(text);
    let found: Vec<_> = StylePattern::ALL
        .into_iter()
        .map(|pattern| (pattern, style.count(pattern)))
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn words_of_checking() {
    check(
        "Let me verify this.",
        &[(StylePattern::Verification, 1), (StylePattern::Announcement, 1)],
    );
    check("We double-check and re-check it.", &[(StylePattern::Verification, 2)]);
    check("A sanity check: it was VERIFIED.", &[(StylePattern::Verification, 2)]);
    check("Plugging back gives 3, so it’s confirmed", &[(StylePattern::Verification, 2)]);
    check("A checklist of the checkered validator, unchecked", &[]);
    check("Let x be small; let meters be m.", &[]);
    check("Let’s see. Let us see. let's see", &[(StylePattern::Announcement, 3)]);
}

#[test]
fn words_of_doubt_begin_sentences() {
    check("Wait, no. Actually it is 4.", &[(StylePattern::Reconsideration, 2)]);
    check("They wait for what actually happens.", &[]);
    check("But wait. On second thought, I made a mistake.", &[(StylePattern::Reconsideration, 3)]);
}

#[test]
fn structure_of_lines() {
    let text = "# Title\n\n**Part**\n1. one\n2) two\n(3) three\n- a\n* b\n\n#hashtag\n1.5 is a number\n-3\n";
    check(
        text,
        &[(StylePattern::Heading, 2), (StylePattern::Numbered, 3), (StylePattern::Bullet, 2)],
    );
    check("Step 1: do. Step two: more. A step forward.", &[(StylePattern::Step, 2)]);
    check("First, a. Then b. Finally c. What comes first?", &[(StylePattern::Sequence, 3)]);
    check("```\n# comment\n- x\n```\nok", &[]);
    check("**bold** word **bold**", &[]);
}

#[test]
fn marked_ends() {
    check("**Final Answer:** 3", &[(StylePattern::Conclusion, 1)]);
    check("So the answer is \\boxed{3}.", &[(StylePattern::Conclusion, 2)]);
    check("Answer: B", &[(StylePattern::Conclusion, 1)]);
    check("I cannot answer that", &[]);
}

#[test]
fn many_answers_are_summed_up() {
    let answers = ["Let me check.", "# A\nwe check and check", ""];
    let all = StyleSummary::of(answers.map(AnswerStyle::of));
    assert_eq!((all.answers, all.verifying, all.structured), (3, 2, 1));
    assert_eq!(all.counts[StylePattern::Verification as usize], 3);
    assert!((all.verifying_share() - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(StyleSummary::default().per_thousand_words(StylePattern::Step), 0.0);
}
