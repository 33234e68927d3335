//! The scripted model: what it says, what is heard of it, what it remembers.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use model::{Delta, Error, Listener, Model, Reply, Request, Sampling, Silent, ToolSpec};
use serde_json::json;
use testkit::{Call, Line, Scripted, bash, calls, edit, say, submit};
use trajectory::{Arguments, Message, Stop};

async fn ask(
    model: &impl Model,
    messages: &[Message],
    listener: &dyn Listener,
) -> Result<Reply, Error> {
    let tools = [ToolSpec { name: "t".into(), description: "d".into(), parameters: json!({}) }];
    let sampling = Sampling { seed: Some(4), ..Sampling::default() };
    let request = Request { messages, tools: &tools, sampling: &sampling, max_tokens: 99 };
    model.complete(&request, listener).await
}

/// What is heard, kinds and texts.
#[derive(Default)]
struct Ear(Mutex<Vec<(&'static str, String)>>);

impl Listener for Ear {
    fn hear(&self, delta: Delta<'_>) {
        let (kind, text) = match delta {
            Delta::Reasoning(text) => ("reasoning", text),
            Delta::Text(text) => ("text", text),
            Delta::Call(text) => ("call", text),
            Delta::Arguments(text) => ("arguments", text),
            Delta::Retry { why, .. } => ("retry", why),
        };
        self.0.lock().unwrap().push((kind, text.to_owned()));
    }
}

impl Ear {
    fn all(&self, kind: &str) -> Vec<String> {
        let heard = self.0.lock().unwrap();
        heard.iter().filter(|(is, _)| *is == kind).map(|(_, text)| text.clone()).collect()
    }
}

#[tokio::test]
async fn lines_are_said_in_order_until_they_end() {
    let model = Scripted::new([
        say("first"),
        bash("ls").tokens(5, 6),
        edit(json!({"command": "view", "path": "/x"})),
        calls([Call::bash("a"), Call::submit(), Call::raw("execute_bash", "{'")]),
        submit(),
    ])
    .named("m");
    assert_eq!(Model::name(&model), "m");
    let mut ids = vec![];
    for (text, names) in [
        ("first", vec![]),
        ("", vec!["execute_bash"]),
        ("", vec!["str_replace_editor"]),
        ("", vec!["execute_bash", "submit", "execute_bash"]),
        ("", vec!["submit"]),
    ] {
        let reply = ask(&model, &[Message::user("go")], &Silent).await.unwrap();
        assert_eq!(reply.message.text, text);
        let called: Vec<_> = reply.message.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(called, names);
        assert_eq!(reply.stop, if names.is_empty() { Stop::End } else { Stop::ToolCalls });
        if names == ["execute_bash"] {
            assert_eq!((reply.usage.input, reply.usage.output), (5, 6));
            let Arguments::Object(arguments) = &reply.message.calls[0].arguments else {
                panic!("{:?}", reply.message)
            };
            assert_eq!(arguments["command"], "ls");
        }
        if let Some(call) = reply.message.calls.get(2) {
            assert!(matches!(call.arguments, Arguments::Malformed { .. }));
        }
        ids.extend(reply.message.calls.into_iter().map(|call| call.id));
    }
    assert_eq!(ids.len(), 6);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6, "every id is its own");
    let ended = ask(&model, &[], &Silent).await;
    let ended = ended.unwrap_err().to_string();
    assert!(ended.ends_with("the script has no reply left; it had 5"), "{ended}");
}

#[tokio::test]
async fn pieces_are_heard_that_make_up_the_reply() {
    let turn = bash("seq 1000 | factor | wc -l").text("a text of some length, in pieces");
    let model = Scripted::new([turn.reasoning("a thought of some length, in pieces")]);
    let ear = Ear::default();
    let reply = ask(&model, &[], &ear).await.unwrap();
    assert_eq!(ear.all("reasoning").concat(), reply.message.reasoning);
    assert_eq!(ear.all("text").concat(), reply.message.text);
    assert_eq!(ear.all("call"), ["execute_bash"]);
    let arguments: serde_json::Value =
        serde_json::from_str(&ear.all("arguments").concat()).unwrap();
    assert_eq!(arguments, json!({"command": "seq 1000 | factor | wc -l"}));
    assert!(["reasoning", "text", "arguments"].iter().all(|kind| ear.all(kind).len() > 1));

    let echo = Scripted::new([reply.clone()]);
    let other = Ear::default();
    assert_eq!(ask(&echo, &[], &other).await.unwrap(), reply);
    assert_eq!(*other.0.lock().unwrap(), *ear.0.lock().unwrap());
}

#[tokio::test]
async fn what_was_asked_is_remembered() {
    let model = Scripted::default().then(say("a")).then(Error::Cut("broken".into())).then(say("b"));
    let messages = [Message::user("one"), Message::user("two")];
    ask(&model, &messages[..1], &Silent).await.unwrap();
    assert!(matches!(ask(&model, &messages, &Silent).await, Err(Error::Cut(_))));
    let asked = model.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].messages, messages);
    assert_eq!((asked[1].tools, asked[1].max_tokens, asked[1].sampling.seed), (1, 99, Some(4)));
    assert_eq!(model.left(), 1);
}

#[tokio::test]
async fn a_closure_serves_many_conversations() {
    let model = Arc::new(Scripted::answering(|request| match request.messages.len() {
        1 => Line::from(bash("ls")),
        2 => Line::from(submit()),
        _ => Line::from(Error::Protocol("too long".into())),
    }));
    model.push(say("before all else"));
    let message = Message::user("go");
    assert_eq!(ask(&model, &[], &Silent).await.unwrap().message.text, "before all else");
    let two = [message.clone(), message.clone()];
    assert_eq!(ask(&model, &two, &Silent).await.unwrap().message.calls[0].name, "submit");
    assert_eq!(
        ask(&model, &two[..1], &Silent).await.unwrap().message.calls[0].name,
        "execute_bash"
    );
    let three = [message.clone(), message.clone(), message];
    assert!(ask(&model, &three, &Silent).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_model_thinks_or_never_answers() {
    let second = Duration::from_secs(1);
    let model = Scripted::default().then(say("slow").after(second)).then(Line::Hangs).delay(second);
    let began = tokio::time::Instant::now();
    ask(&model, &[], &Silent).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 2);
    let hangs = tokio::time::timeout(second * 3600, ask(&model, &[], &Silent)).await;
    assert!(hangs.is_err());
}
