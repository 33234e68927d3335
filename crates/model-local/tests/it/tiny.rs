//! Behaviour that does not depend on the size of the model: slots are kept, long prompts block no one else, thinking is
//! unconstrained, and missing memory is reported.
//!
//! Reads `LIS_TEST_TINY_GGUF`, a SmolLM2 of 135M.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use lis_model_local::{Cancel, LoadError, LocalModel};
use model::{Before, Body, Error, Model, Request, Sampling, Shape, Silent};
use tokio::time::timeout;
use trajectory::{Assistant, Message, Stop};

use crate::support::{ask, ask_as, greedy, options, tiny_file};

fn load(path: &Path, context: u32, sequences: u32) -> LocalModel {
    LocalModel::load("tiny", path, &options(context, sequences)).unwrap()
}

/// The same model with another chat template.
fn with_template(path: &Path, template: &str) -> tempfile::TempPath {
    let mut bytes = fs::read(path).unwrap();
    let key = b"tokenizer.chat_template";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
    let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let text = &mut bytes[at + 8..at + 8 + length];
    text.fill(b' ');
    text[..2].copy_from_slice(b"{#");
    let begin = length - template.len();
    text[begin - 2..begin].copy_from_slice(b"#}");
    text[begin..].copy_from_slice(template.as_bytes());
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    fs::write(file.path(), bytes).unwrap();
    file.into_temp_path()
}

#[tokio::test]
async fn a_conversation_that_is_shortened_keeps_its_slot() {
    let Some(path) = tiny_file() else { return };
    let model = load(&path, 1024, 2);
    let task = |topic: &str| Message::user(format!("Tell me all about {topic}. ").repeat(10));
    let topics = ["the sea", "old trees"];
    for topic in topics {
        let response = ask(&model, &[task(topic)], 90).await.unwrap();
        assert_eq!(response.usage.output, 90, "{response:?}");
    }
    // As templates render it that omit the thinking.
    let short = Assistant { text: "It is large.".into(), ..Assistant::default() };
    for topic in topics {
        let turns = [task(topic), Message::Assistant(short.clone()), Message::user("Go on.")];
        let usage = ask(&model, &turns, 1).await.unwrap().usage;
        assert!(usage.input - usage.cached < 40, "{topic}: {usage:?}");
    }
}

#[tokio::test]
async fn building_a_long_prompt_does_not_block() {
    let Some(path) = tiny_file() else { return };
    let model = load(&path, 2048, 1);
    let messages = [Message::user("word ".repeat(2048 * 6))];
    let sampling = greedy();
    let request = Request { messages: &messages, tools: &[], sampling: &sampling, max_tokens: 100 };
    let mut shares = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        let asked = model.complete(&request, &Silent);
        tokio::pin!(asked);
        // Poll once.
        assert!(timeout(Duration::ZERO, &mut asked).await.is_err());
        let looked = began.elapsed();
        let refused = asked.await;
        assert!(matches!(refused, Err(Error::Overflow { .. })), "{refused:?}");
        shares.push(looked.as_secs_f64() / began.elapsed().as_secs_f64());
    }
    // The machine may be busy at times.
    assert!(shares.iter().any(|share| *share < 0.3), "{shares:?}");
}

#[tokio::test]
async fn thinking_is_unconstrained() {
    let Some(path) = tiny_file() else { return };
    let thinks = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                  {% endfor %}<|im_start|>assistant\n<think>";
    let thinking = with_template(&path, thinks);
    let model = load(&thinking, 1024, 1);
    let shape = |before| {
        let (opens, then, closes) = ("```".into(), "bash\n".into(), "\n```".into());
        Shape { before, opens, then, body: Body::Text, closes }
    };
    let wish = [Message::user("Say hi.")];
    for before in [Before::Text, Before::Nothing] {
        let sampling = Sampling { shape: Some(shape(before)), ..greedy() };
        let response = ask_as(&model, &wish, 200, &sampling, &Silent).await.unwrap();
        let Assistant { text, reasoning, .. } = response.message;
        // The model would end its response: first its thinking ends, then its call begins.
        assert!(!reasoning.contains("```") && !reasoning.contains("</think>"), "{reasoning}");
        let cut_off = response.stop == Stop::Length;
        let called = text.contains("```bash\n");
        assert!(called || cut_off && before == Before::Text, "{reasoning} | {text}");
        assert!(cut_off || text.ends_with("\n```"), "{text}");
    }
}

#[tokio::test]
async fn a_call_that_is_all_that_is_wanted_comes_at_once() {
    let Some(path) = tiny_file() else { return };
    let model = load(&path, 1024, 1);
    let shape = Shape {
        before: Before::Nothing,
        opens: "```".into(),
        then: "bash\n".into(),
        body: Body::Text,
        closes: "\n```".into(),
    };
    let sampling = Sampling { shape: Some(shape), ..greedy() };
    let wish = [Message::user("Tell me a long story.")];
    let response = ask_as(&model, &wish, 40, &sampling, &Silent).await.unwrap();
    assert!(response.message.text.trim_start().starts_with("```bash\n"), "{response:?}");
}

#[test]
fn what_does_not_fit_into_memory_is_not_loaded() {
    let Some(path) = tiny_file() else { return };
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let total: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    // Some 185 MiB each.
    let sequences = u32::try_from(2 * total / (180 << 10)).unwrap();
    let refused = LocalModel::load("tiny", &path, &options(8192, sequences)).unwrap_err();
    assert!(matches!(refused, LoadError::NoMemory { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("MiB") && text.contains("shorter context"), "{text}");
}

#[test]
fn loading_can_be_cancelled() {
    let Some(path) = tiny_file() else { return };
    let cancel = Cancel::default();
    cancel.cancel();
    let given_up = LocalModel::load_cancellable("tiny", &path, &options(512, 1), &cancel);
    assert!(matches!(given_up, Err(LoadError::Cancelled { .. })), "{given_up:?}");
}
