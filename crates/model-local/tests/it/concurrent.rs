//! Several conversations in one model: none changes another, and who leaves makes room.

use std::time::Duration;

use tokio::{task::JoinSet, time::timeout};
use trajectory::Message;

use crate::support::{Recorder, ask, ask_as, greedy, load, load_tiny};

const QUESTIONS: [&str; 6] = [
    "What is the capital of France? Answer in one word.",
    "Write a Python function that adds two numbers.",
    "Count from 1 to 20.",
    "Which planet is the largest? Answer in one sentence.",
    "Translate 'good morning' into German. Answer with the translation only.",
    "Write a shell command that lists hidden files.",
];

#[tokio::test]
async fn conversations_at_once_read_as_they_do_alone() {
    let Some(model) = load_tiny(4) else { return };
    let mut alone = Vec::new();
    for question in QUESTIONS {
        let Some(fresh) = load_tiny(1) else { return };
        let response = ask(&fresh, &[Message::user(question)], 32).await.unwrap();
        alone.push(response.message.text);
    }
    // More conversations than sequences: the last two wait.
    let mut together = JoinSet::new();
    for (at, question) in QUESTIONS.into_iter().enumerate() {
        let model = model.clone();
        together.spawn(async move {
            (at, ask(&model, &[Message::user(question)], 32).await.unwrap().message.text)
        });
    }
    for (at, text) in together.join_all().await {
        assert_eq!(text, alone[at], "{}", QUESTIONS[at]);
    }
}

/// A conversation about a country that begins with the same instructions as others.
fn with_rules(before: &str, country: &str) -> [Message; 2] {
    let rules = (0..20).map(|n| format!("Rule {n}: be kind to box {n}.\n")).collect();
    let question = format!("What is the capital of {country}? One word.");
    [Message::System { text: rules }, Message::user(before.repeat(25) + &question)]
}

#[tokio::test]
async fn instructions_in_common_are_read_once() {
    let Some(model) = load_tiny(3) else { return };
    let first = with_rules("I like cheese. ", "France");
    let second = with_rules("We eat pasta. ", "Italy");
    let one = ask(&model, &first, 8).await.unwrap();
    let other = ask(&model, &second, 8).await.unwrap();
    assert!(other.usage.cached > 150, "{:?}", other.usage);
    // Read in part from the other conversation, it is answered as by a model that has read nothing before.
    let Some(fresh) = load_tiny(1) else { return };
    let alone = ask(&fresh, &second, 8).await.unwrap();
    assert_eq!((alone.usage.cached, &alone.message.text), (0, &other.message.text));
    assert_ne!(other.message.text, one.message.text);
    // The first conversation has kept its slot.
    let again = ask(&model, &first, 8).await.unwrap();
    assert_eq!(again.usage.cached + 1, again.usage.input, "{:?}", again.usage);
    assert_eq!(again.message.text, one.message.text);
}

#[tokio::test]
async fn instructions_in_common_are_read_once_by_conversations_that_start_together() {
    let Some(model) = load_tiny(3) else { return };
    let all = [("I like cheese. ", "France"), ("We eat pasta. ", "Italy"), ("I read. ", "Peru")]
        .map(|(before, country)| with_rules(before, country));
    let [first, second, third] = all.each_ref().map(|messages| ask(&model, messages, 8));
    let (first, second, third) = tokio::join!(first, second, third);
    let together = [first, second, third].map(Result::unwrap);
    let mut cached = together.each_ref().map(|response| response.usage.cached);
    cached.sort_unstable();
    assert!(cached[0] == 0 && cached[1] > 150 && cached[2] > 150, "{cached:?}");
    for (messages, response) in all.iter().zip(&together) {
        let Some(fresh) = load_tiny(1) else { return };
        let alone = ask(&fresh, messages, 8).await.unwrap();
        assert_eq!(alone.message.text, response.message.text);
    }
}

#[tokio::test]
async fn who_leaves_makes_room() {
    let Some(model) = load(1) else { return };
    let messages = [Message::user("Write a very long story about the sea.")];
    let recorder = Recorder::new();
    let sampling = greedy();
    let begun = async {
        while recorder.pieces().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // Dropped while it is being written.
    tokio::select! {
        told = ask_as(&model, &messages, 1900, &sampling, &recorder) => panic!("no long story: {told:?}"),
        () = begun => {}
    }
    // Were the story still being written, the only place would be taken for minutes.
    let question = [Message::user("What is the capital of France? One word.")];
    let response = timeout(Duration::from_secs(60), ask(&model, &question, 8)).await;
    assert!(response.unwrap().unwrap().message.text.contains("Paris"));
}
