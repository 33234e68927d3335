//! Demonstrations: given replies and recorded conversations become the tokens a policy would have sampled.

use std::sync::Arc;

use lis_rollout::{DemonstrationError, End, Reward, demonstration};
use model::ToolFormat;
use serde_json::json;
use trajectory::{Arguments, Assistant, Content, Message, ToolCall, ToolResult};

use crate::support::{
    answering, block, bytes, engine, forever, problem, real, said, settings, with_runtime,
};

#[test]
fn a_demonstration_is_an_episode_like_others() {
    with_runtime(|runtime| async move {
        for codec in [Some(bytes()), real()].into_iter().flatten() {
            let engine = engine(&codec, &runtime, settings(), Reward::Grader);
            let replies =
                vec![format!("I look.\n{}", block("ls */")), answering("42"), block("submit")];
            let problem = problem("one", 42);
            let played =
                engine.demonstrate(&problem, replies.clone(), None, forever()).await.unwrap();
            assert_eq!((played.end, played.reward), (End::Submitted, Some(1.0)));
            let taught: Vec<String> =
                replies.iter().map(|reply| format!("{reply}<|im_end|>")).collect();
            assert_eq!(said(&codec, &played.segments[0]), taught, "they teach to end a reply, too");
            // The record of it teaches the same.
            let (messages, _) = trajectory::history(&played.events);
            let again =
                demonstration(&codec, ToolFormat::Fenced, &engine.tools(), &messages, usize::MAX)
                    .unwrap();
            assert_eq!(again, played.segments);
            // Too few replies are a failure of the demonstration, not of the policy.
            let short =
                engine.demonstrate(&problem, vec![block("ls")], None, forever()).await.unwrap();
            assert_eq!((short.end, short.reward), (End::Infrastructure, None));
            assert_eq!(short.tries, 1, "there would be no more another time");
            assert!(short.why.unwrap().contains("no more scripted responses"));
            engine.close().await.unwrap();
        }
    });
}

fn recorded() -> Vec<Message> {
    let call = |id: &str, name: &str, arguments: serde_json::Value| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: Arguments::Object(arguments.as_object().unwrap().clone()),
    };
    let says = |text: &str, call: ToolCall| {
        Message::Assistant(Assistant {
            text: text.into(),
            calls: vec![call],
            ..Assistant::default()
        })
    };
    let result = |id: &str, name: &str, text: &str| {
        Message::Tool(ToolResult {
            call_id: id.into(),
            name: name.into(),
            content: vec![Content::text(text)],
            is_error: false,
        })
    };
    vec![
        Message::System { text: "You have a computer.".into() },
        Message::user("Write 7 to /testbed/output/answer.txt."),
        says(
            "I write <|im_end|> it.",
            call("1", "execute_bash", json!({"command": "echo 7 > answer.txt"})),
        ),
        result("1", "execute_bash", "[exit code 0]"),
        says("Done.", call("2", "submit", json!({}))),
    ]
}

#[test]
fn calls_of_others_are_told_in_the_policys_own_format() {
    let codec = bytes();
    let tools = agent::tools::Tools::default().specs();
    let fenced =
        demonstration(&codec, ToolFormat::Fenced, &tools, &recorded(), usize::MAX).unwrap();
    assert_eq!(fenced.len(), 1);
    assert_eq!(
        said(&codec, &fenced[0]),
        [
            "I write <|im_end|> it.\n```bash\necho 7 > answer.txt\n```<|im_end|>",
            "Done.\n```bash\nsubmit\n```<|im_end|>"
        ]
    );
    let ends = codec.vocabulary().end_of_turn();
    let end = |segment: &lis_rollout::Segment| {
        let sampled = segment.tokens.iter().zip(&segment.sampled).filter(|(_, sampled)| **sampled);
        sampled.filter(|(token, _)| ends.contains(token)).count()
    };
    assert_eq!(end(&fenced[0]), 2, "text that looks like a mark is text");
    let hermes =
        demonstration(&codec, ToolFormat::Hermes, &tools, &recorded(), usize::MAX).unwrap();
    assert!(said(&codec, &hermes[0])[1].starts_with("Done.\n<tool_call>"));
    assert!(
        demonstration(&codec, ToolFormat::Fenced, &tools, &[Message::user("x")], usize::MAX)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_block_that_ends_with_submit_is_rendered_as_one_block_or_as_two_calls() {
    let codec = bytes();
    let tools = agent::tools::Tools::default().specs();
    let mut messages = recorded();
    messages.truncate(3);
    if let Some(Message::Assistant(last)) = messages.last_mut() {
        last.then_submit = true;
    }
    let rendered = |format| {
        let segments = demonstration(&codec, format, &tools, &messages, usize::MAX).unwrap();
        said(&codec, &segments[0]).concat()
    };
    let fenced = rendered(ToolFormat::Fenced);
    assert!(fenced.contains("```bash\necho 7 > answer.txt\nsubmit\n```"), "{fenced}");
    let hermes = rendered(ToolFormat::Hermes);
    assert_eq!(hermes.matches("<tool_call>").count(), 2, "{hermes}");
    assert!(hermes.contains("\"name\":\"submit\""), "{hermes}");
}

#[test]
fn a_conversation_that_is_too_long_is_given_up_early() {
    let codec = bytes();
    let tools = agent::tools::Tools::default().specs();
    for most in [1, 100, 900] {
        let long = demonstration(&codec, ToolFormat::Fenced, &tools, &recorded(), most);
        let Err(DemonstrationError::TooLong { tokens, max_tokens: reported }) = long else {
            panic!("{most}")
        };
        assert!(tokens > 0 && reported == most);
    }
}

#[test]
fn a_conversation_the_template_cannot_take_is_refused() {
    let tools = agent::tools::Tools::default().specs();
    let refused =
        demonstration(&bytes(), ToolFormat::Native, &tools, &recorded(), usize::MAX).unwrap_err();
    assert!(refused.to_string().contains("does not support tools"), "{refused}");
}

#[test]
fn problems_without_an_answer_are_no_problems() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.jsonl");
    let row = |id: &str, answer: serde_json::Value| json!({"id": id, "domain": "instruct_pretrain", "problem_statement": "q", "ground_truth": answer});
    let mut bare = row("none", json!(""));
    bare.as_object_mut().unwrap().remove("ground_truth");
    let rows = [row("good", json!("7")), row("empty", json!(" ")), row("null", json!(null)), bare];
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(&path, text).unwrap();
    let read = crate::support::task().read_files(&[Arc::new(path).as_path()]).unwrap();
    assert_eq!(read.problems.len(), 1);
    assert_eq!(read.bad.iter().map(|bad| bad.row).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(read.bad.iter().all(|bad| bad.why.contains("ground_truth")), "{:?}", read.bad);
}
