//! Which messages are shortened, which never are, and that shortening is idempotent.

use proptest::{collection::vec, prelude::*};
use serde_json::Map;
use trajectory::{Arguments, Assistant, ToolCall, ToolResult};

use super::*;

fn window(tokens: u64) -> Compaction {
    Compaction { window: Some(tokens), ..Compaction::default() }
}

fn response(ids: &[&str]) -> Message {
    let call = |id: &&str| ToolCall {
        id: (*id).into(),
        name: "execute_bash".into(),
        arguments: Arguments::Object(Map::new()),
    };
    let text = "what I think about it ".repeat(100);
    Message::Assistant(Assistant {
        text,
        calls: ids.iter().map(call).collect(),
        ..Assistant::default()
    })
}

fn result(id: &str, text: &str) -> Message {
    Message::Tool(ToolResult {
        call_id: id.into(),
        name: "execute_bash".into(),
        content: vec![Content::text(text)],
        is_error: false,
    })
}

fn long() -> String {
    (1..=500).map(|line| format!("line {line}\n")).collect()
}

/// A system prompt, a task, and turns with a long result each. Turn `n` is the messages `2n` and `2n + 1`.
fn episode(turns: usize) -> Vec<Message> {
    let mut messages = vec![Message::System { text: long() }, Message::user(long())];
    for turn in 1..=turns {
        let id = format!("call {turn}");
        messages.extend([response(&[&id]), result(&id, &long())]);
    }
    messages
}

fn text(message: &Message) -> &str {
    match message {
        Message::Tool(result) => result.content[0].as_text().unwrap(),
        other => panic!("{other:?} is no result"),
    }
}

#[test]
fn nothing_is_shortened_while_there_is_room() {
    let messages = episode(10);
    let full = 100_000;
    // What comes after the last response counts as well.
    let new = messages.last().unwrap().size() as u64 / 4;
    assert_eq!(window(full).plan(&messages, 79_999 - new, 0), 0);
    assert_eq!(window(full).plan(&messages, 80_000 - new, 0), 14);
    assert_eq!(Compaction::default().plan(&messages, u64::MAX, 3), 3, "nobody knows the window");
    assert!(matches!(Compaction::apply(&messages, 0), Cow::Borrowed(_)));
}

#[test]
fn the_last_turns_are_shown_whole() {
    let messages = episode(10);
    let upto = window(1).plan(&messages, 1, 0);
    let view = Compaction::apply(&messages, upto);
    for (at, (shown, message)) in view.iter().zip(&messages).enumerate() {
        let old_result = at > 2 && at < upto && at % 2 == 1;
        assert_eq!(shown != message, old_result, "message {at}");
    }
    assert!(matches!(&messages[upto], Message::Assistant(_)));
    let turns = messages[upto..].iter().filter(|message| is_response(message)).count();
    assert_eq!(turns, Compaction::default().keep_turns);
}

#[test]
fn short_episodes_stay_as_they_are() {
    for turns in 0..=4 {
        assert_eq!(window(1).plan(&episode(turns), u64::MAX, 0), 0, "{turns} turns");
    }
    assert!(window(1).plan(&episode(5), u64::MAX, 0) > 0);
    let eager = Compaction { keep_turns: 0, ..window(1) };
    assert_eq!(eager.plan(&episode(2), 1, 0), 6);
}

#[test]
fn nothing_is_compacted_without_gain() {
    let mut messages = episode(0);
    for turn in 0..10 {
        let id = turn.to_string();
        messages.extend([response(&[&id]), result(&id, "short")]);
    }
    assert_eq!(window(1).plan(&messages, u64::MAX, 0), 0);
}

#[test]
fn plans_never_shrink() {
    let mut so_far = 0;
    for turns in 0..20 {
        let messages = episode(turns);
        for context in [u64::MAX, 0] {
            let upto = window(1000).plan(&messages, context, so_far);
            assert!(upto >= so_far && upto <= messages.len());
            so_far = upto;
        }
    }
    assert_eq!(so_far, 2 + 2 * (19 - 4));
    assert_eq!(
        window(1).plan(&episode(1), u64::MAX, 99),
        99,
        "a count from elsewhere does no harm"
    );
    assert_eq!(Compaction::apply(&episode(1), 99).len(), 4);
}

#[test]
fn both_ends_of_a_long_result_are_kept() {
    let messages = episode(10);
    let view = Compaction::apply(&messages, 14);
    let left_out = long().len() - "line 1\n".len() * 5 - "line 496\n".len() * 5;
    assert_eq!(
        text(&view[3]),
        format!(
            "line 1\nline 2\nline 3\nline 4\nline 5\n\
             [... {left_out} characters of this old result left out ...]\n\
             line 496\nline 497\nline 498\nline 499\nline 500\n"
        )
    );
}

#[test]
fn one_long_line_is_shortened_too() {
    let line = "ä".repeat(5000);
    let short = without_middle(&line).unwrap();
    assert_eq!(
        short,
        format!(
            "{0}\n[... 4200 characters of this old result left out ...]\n{0}",
            "ä".repeat(END_CHARACTERS)
        )
    );
    assert_eq!(without_middle(&"ä".repeat(MAX_WHOLE)), None);
    assert!(without_middle(&"\n".repeat(MAX_WHOLE + 1)).unwrap().contains("991 characters"));
}

#[test]
fn old_images_become_text() {
    let mut messages = episode(6);
    let Message::Tool(result) = &mut messages[3] else { panic!("no result") };
    result.content = vec![
        Content::text("a drawing"),
        Content::Image { media_type: "image/png".into(), data: "iVBORw==".into() },
    ];
    let view = Compaction::apply(&messages, 4);
    let Message::Tool(result) = &view[3] else { panic!("no result") };
    assert_eq!(result.content[0], Content::text("a drawing"));
    assert!(result.content[1].as_text().unwrap().contains("image/png"));
}

/// Any conversation: turns with some calls, each answered, or a reminder.
fn conversation() -> impl Strategy<Value = Vec<Message>> {
    let text = prop_oneof![
        any::<String>(),
        ("[a-zé\n]{0,40}", 0..400usize).prop_map(|(piece, times)| piece.repeat(times)),
    ];
    vec(vec(text, 0..3), 0..9).prop_map(|turns| {
        let mut messages = vec![Message::System { text: long() }, Message::user(long())];
        for (turn, results) in turns.iter().enumerate() {
            let ids: Vec<String> = (0..results.len()).map(|n| format!("{turn}.{n}")).collect();
            messages.push(response(&ids.iter().map(String::as_str).collect::<Vec<_>>()));
            messages.extend(ids.iter().zip(results).map(|(id, text)| result(id, text)));
            if results.is_empty() {
                messages.push(Message::user(long()));
            }
        }
        messages
    })
}

fn without_content(messages: &[Message]) -> Vec<Message> {
    let strip = |message: &Message| match message {
        Message::Tool(result) => Message::Tool(ToolResult { content: vec![], ..result.clone() }),
        other => other.clone(),
    };
    messages.iter().map(strip).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn only_the_content_of_old_results_changes_and_it_shrinks(
        messages in conversation(), keep_turns in 0..6usize, so_far in 0..9usize,
    ) {
        let compaction = Compaction { keep_turns, ..window(1) };
        let upto = compaction.plan(&messages, u64::MAX, so_far);
        prop_assert!(upto >= so_far);
        let view = Compaction::apply(&messages, upto);
        prop_assert_eq!(without_content(&view), without_content(&messages));
        for (at, (shown, message)) in view.iter().zip(&messages).enumerate() {
            prop_assert!(shown == message || (at < upto && shown.size() < message.size()));
        }
        if upto > so_far {
            let before: usize = Compaction::apply(&messages, so_far).iter().map(Message::size).sum();
            prop_assert!(view.iter().map(Message::size).sum::<usize>() < before);
        }
    }

    #[test]
    fn shortening_again_changes_nothing(messages in conversation(), upto in 0..30usize) {
        let once = Compaction::apply(&messages, upto).into_owned();
        let twice = Compaction::apply(&once, upto);
        prop_assert_eq!(&*twice, &once[..]);
        prop_assert!(matches!(twice, Cow::Borrowed(_)));
    }

    #[test]
    fn a_shortened_text_counts_what_is_missing(piece in "[a-zé\n]{1,30}", times in 40..400usize) {
        let text = piece.repeat(times);
        let total = text.chars().count();
        match without_middle(&text) {
            None => prop_assert!(total <= MAX_WHOLE),
            Some(short) => {
                prop_assert!(short.chars().count() < MAX_WHOLE);
                let (head, rest) = short.split_once("[... ").unwrap();
                let (count, tail) = rest.split_once(" characters of this old result left out ...]\n").unwrap();
                let head = if text.starts_with(head) { head } else { head.strip_suffix('\n').unwrap() };
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                let count: usize = count.parse().unwrap();
                let shown = head.chars().count() + tail.chars().count();
                // A line end that was added after the head may equal one that is missing.
                prop_assert!(count + shown == total || count + shown == total + 1);
            }
        }
    }
}
