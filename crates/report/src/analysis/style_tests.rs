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

#[test]
fn checks_of_the_own_result_are_told_from_words_of_checking() {
    for (text, expected) in [
        ("Let's confirm this with Python code.", 1),
        ("Now, let us quickly check if 12 is right.", 1),
        ("We verify our calculations, then check the result again.", 2),
        ("This confirms that x = 3.", 1),
        ("To double-check this: plugging back gives 3.", 2),
        ("A biopsy confirms the diagnosis; this test is to confirm it.", 0),
        ("Check if the number is prime. The loop checks each divisor.", 0),
        ("Let me see. Check in at the hotel.", 0),
        ("```\n# let's verify this\n```", 0),
    ] {
        assert_eq!(AnswerStyle::of(text).self_checks, expected, "{text}");
    }
}

#[derive(serde::Deserialize)]
struct Labels {
    responses: Vec<Labelled>,
}

#[derive(serde::Deserialize)]
struct Labelled {
    text: String,
    checks_itself: bool,
    structured: bool,
}

/// Agreement with 42 responses labelled by reading them. `docs/analyses.md` quotes these numbers.
#[test]
fn labels_and_patterns_agree_as_documented() {
    let labels: Labels =
        serde_json::from_str(include_str!("../../tests/data/style-labels.json")).unwrap();
    let styles: Vec<(AnswerStyle, &Labelled)> =
        labels.responses.iter().map(|it| (AnswerStyle::of(&it.text), it)).collect();
    let table = |found: fn(&AnswerStyle) -> bool, label: fn(&Labelled) -> bool| {
        let count = |is: bool, labelled: bool| {
            let same = |(style, it): &&(AnswerStyle, &Labelled)| {
                found(style) == is && label(it) == labelled
            };
            styles.iter().filter(same).count()
        };
        // Found and labelled, found only, labelled only, neither.
        [count(true, true), count(true, false), count(false, true), count(false, false)]
    };
    assert_eq!(table(AnswerStyle::verifies, |it| it.checks_itself), [8, 16, 0, 18]);
    assert_eq!(table(AnswerStyle::checks_itself, |it| it.checks_itself), [7, 0, 1, 34]);
    assert_eq!(table(AnswerStyle::is_structured, |it| it.structured), [17, 2, 0, 23]);
}
