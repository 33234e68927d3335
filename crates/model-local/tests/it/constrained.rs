//! Constrained responses have the required form, whatever the request.

use model::{Before, Body, Sampling, Shape, ToolSpec};
use serde_json::{Value, json};
use trajectory::{Message, Stop};

use crate::support::{ask_as, greedy, load_tiny};

fn hermes() -> Shape {
    let parameters = json!({
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "times": {"type": "integer"},
        },
        "required": ["command", "times"],
    });
    let tool = ToolSpec { name: "execute_bash".into(), description: "Runs it.".into(), parameters };
    Shape {
        before: Before::Text,
        opens: "<tool_call>".into(),
        then: "\n".into(),
        body: Body::Call(vec![tool]),
        closes: "\n</tool_call>".into(),
    }
}

fn fenced() -> Shape {
    Shape {
        before: Before::Text,
        opens: "```".into(),
        then: "bash\n".into(),
        body: Body::Text,
        closes: "\n```".into(),
    }
}

#[tokio::test]
async fn calls_are_well_formed_even_where_none_is_wanted() {
    let Some(model) = load_tiny(1) else { return };
    let mut ended = 0;
    let wishes = ["Hello, how are you?", "Write a haiku. No code.", "Print 1 five times."];
    // The text before a call may take all tokens, and processors round differently: one whole response is enough.
    for (seed, wish) in wishes.iter().cycle().take(12).enumerate() {
        if seed >= wishes.len() && ended > 0 {
            break;
        }
        let sampling = Sampling {
            temperature: Some(1.0),
            seed: Some(seed as u64),
            shape: Some(hermes()),
            ..Sampling::default()
        };
        let messages = [Message::user(*wish)];
        let response = ask_as(&model, &messages, 100, &sampling, &model::Silent).await.unwrap();
        if response.stop == Stop::Length {
            continue;
        }
        ended += 1;
        let text = response.message.text;
        let (before, rest) = text.split_once("<tool_call>\n").unwrap();
        let call = rest.strip_suffix("\n</tool_call>").unwrap();
        let call: Value = serde_json::from_str(call).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(!before.contains("<tool_call>"), "{text}");
        assert_eq!(call["name"], "execute_bash", "{text}");
        assert!(call["arguments"]["command"].is_string(), "{text}");
        assert!(call["arguments"]["times"].is_i64(), "{text}");
    }
    assert!(ended > 0, "every reply was cut off");
}

#[tokio::test]
async fn a_reply_holds_one_block_of_commands_and_ends_with_it() {
    let Some(model) = load_tiny(1) else { return };
    let sampling = Sampling { shape: Some(fenced()), ..greedy() };
    let wish = "Show a python block that prints 1, and then a JSON block.";
    let messages = [Message::user(wish)];
    let response = ask_as(&model, &messages, 300, &sampling, &model::Silent).await.unwrap();
    let text = response.message.text;
    assert_eq!(response.stop, Stop::End, "{text}");
    assert_eq!(text.matches("```").count(), 2, "{text}");
    assert!(text.contains("```bash\n") && text.ends_with("\n```"), "{text}");
}
