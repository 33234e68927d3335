//! Which words and lines count in plain answers.

use super::plain::{Pattern, Plain, PlainSummary};

#[track_caller]
fn check(text: &str, expected: &[(Pattern, u64)]) {
    let plain = Plain::of(text);
    let found: Vec<_> = Pattern::ALL
        .into_iter()
        .map(|pattern| (pattern, plain.count(pattern)))
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn words_of_checking() {
    check("Let me verify this.", &[(Pattern::Verification, 1), (Pattern::Announcement, 1)]);
    check("We double-check and re-check it.", &[(Pattern::Verification, 2)]);
    check("A sanity check: it was VERIFIED.", &[(Pattern::Verification, 2)]);
    check("Plugging back gives 3, so it’s confirmed", &[(Pattern::Verification, 2)]);
    check("A checklist of the checkered validator, unchecked", &[]);
    check("Let x be small; let meters be m.", &[]);
    check("Let’s see. Let us see. let's see", &[(Pattern::Announcement, 3)]);
}

#[test]
fn words_of_doubt_begin_sentences() {
    check("Wait, no. Actually it is 4.", &[(Pattern::Reconsideration, 2)]);
    check("They wait for what actually happens.", &[]);
    check("But wait. On second thought, I made a mistake.", &[(Pattern::Reconsideration, 3)]);
}

#[test]
fn structure_of_lines() {
    let text = "# Title\n\n**Part**\n1. one\n2) two\n(3) three\n- a\n* b\n\n#hashtag\n1.5 is a number\n-3\n";
    check(text, &[(Pattern::Heading, 2), (Pattern::Numbered, 3), (Pattern::Bullet, 2)]);
    check("Step 1: do. Step two: more. A step forward.", &[(Pattern::Step, 2)]);
    check("First, a. Then b. Finally c. What comes first?", &[(Pattern::Sequence, 3)]);
    check("```\n# comment\n- x\n```\nok", &[]);
    check("**bold** word **bold**", &[]);
}

#[test]
fn marked_ends() {
    check("**Final Answer:** 3", &[(Pattern::Conclusion, 1)]);
    check("So the answer is \\boxed{3}.", &[(Pattern::Conclusion, 2)]);
    check("Answer: B", &[(Pattern::Conclusion, 1)]);
    check("I cannot answer that", &[]);
}

#[test]
fn many_answers_are_summed_up() {
    let answers = ["Let me check.", "# A\nwe check and check", ""];
    let all = PlainSummary::of(answers.map(Plain::of));
    assert_eq!((all.answers, all.verifying, all.structured), (3, 2, 1));
    assert_eq!(all.counts[Pattern::Verification as usize], 3);
    assert!((all.verifying_share() - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(PlainSummary::default().per_thousand_words(Pattern::Step), 0.0);
}
