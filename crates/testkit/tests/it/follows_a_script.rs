//! The scripted model: its responses, its streaming, its recorded requests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lis_testkit::{Call, ScriptedModel, Step, bash, calls, edit, say, submit};
use model::{Delta, Error, Listener, Model, Request, Response, Sampling, Silent, ToolSpec};
use serde_json::json;
use trajectory::{Arguments, Message, Stop};

async fn ask(
    model: &impl Model,
    messages: &[Message],
    listener: &dyn Listener,
) -> Result<Response, Error> {
    let tools = [ToolSpec { name: "t".into(), description: "d".into(), parameters: json!({}) }];
    let sampling = Sampling { seed: Some(4), ..Sampling::default() };
    let request = Request { messages, tools: &tools, sampling: &sampling, max_tokens: 99 };
    model.complete(&request, listener).await
}

/// The received pieces: kinds and texts.
#[derive(Default)]
struct Recorder(Mutex<Vec<(&'static str, String)>>);

impl Listener for Recorder {
    fn on_delta(&self, delta: Delta<'_>) {
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

impl Recorder {
    fn all(&self, kind: &str) -> Vec<String> {
        let heard = self.0.lock().unwrap();
        heard.iter().filter(|(is, _)| *is == kind).map(|(_, text)| text.clone()).collect()
    }
}

#[tokio::test]
async fn steps_are_followed_in_order_until_they_end() {
    let model = ScriptedModel::new([
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
        let response = ask(&model, &[Message::user("go")], &Silent).await.unwrap();
        assert_eq!(response.message.text, text);
        let called: Vec<_> = response.message.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(called, names);
        assert_eq!(response.stop, if names.is_empty() { Stop::End } else { Stop::ToolCalls });
        if names == ["execute_bash"] {
            assert_eq!((response.usage.input, response.usage.output), (5, 6));
            let Arguments::Object(arguments) = &response.message.calls[0].arguments else {
                panic!("{:?}", response.message)
            };
            assert_eq!(arguments["command"], "ls");
        }
        if let Some(call) = response.message.calls.get(2) {
            assert!(matches!(call.arguments, Arguments::Malformed { .. }));
        }
        ids.extend(response.message.calls.into_iter().map(|call| call.id));
    }
    assert_eq!(ids.len(), 6);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6, "every id is its own");
    let ended = ask(&model, &[], &Silent).await;
    let ended = ended.unwrap_err().to_string();
    assert!(ended.ends_with("the script has ended after 5 steps"), "{ended}");
}

#[tokio::test]
async fn streamed_pieces_add_up_to_the_response() {
    let turn = bash("seq 1000 | factor | wc -l").text("a text of some length, in pieces");
    let model = ScriptedModel::new([turn.reasoning("a thought of some length, in pieces")]);
    let recorder = Recorder::default();
    let response = ask(&model, &[], &recorder).await.unwrap();
    assert_eq!(recorder.all("reasoning").concat(), response.message.reasoning);
    assert_eq!(recorder.all("text").concat(), response.message.text);
    assert_eq!(recorder.all("call"), ["execute_bash"]);
    let arguments: serde_json::Value =
        serde_json::from_str(&recorder.all("arguments").concat()).unwrap();
    assert_eq!(arguments, json!({"command": "seq 1000 | factor | wc -l"}));
    assert!(["reasoning", "text", "arguments"].iter().all(|kind| recorder.all(kind).len() > 1));

    let echo = ScriptedModel::new([response.clone()]);
    let other = Recorder::default();
    assert_eq!(ask(&echo, &[], &other).await.unwrap(), response);
    assert_eq!(*other.0.lock().unwrap(), *recorder.0.lock().unwrap());
}

#[tokio::test]
async fn requests_are_recorded() {
    let model =
        ScriptedModel::default().then(say("a")).then(Error::Cut("broken".into())).then(say("b"));
    let messages = [Message::user("one"), Message::user("two")];
    ask(&model, &messages[..1], &Silent).await.unwrap();
    assert!(matches!(ask(&model, &messages, &Silent).await, Err(Error::Cut(_))));
    let asked = model.requests();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].messages, messages);
    assert_eq!((asked[1].tools, asked[1].max_tokens, asked[1].sampling.seed), (1, 99, Some(4)));
    assert_eq!(model.remaining(), 1);
}

#[tokio::test]
async fn a_closure_serves_many_conversations() {
    let model = Arc::new(ScriptedModel::answering(|request| match request.messages.len() {
        1 => Step::from(bash("ls")),
        2 => Step::from(submit()),
        _ => Step::from(Error::Protocol("too long".into())),
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
    let model =
        ScriptedModel::default().then(say("slow").after(second)).then(Step::Hang).delay(second);
    let began = tokio::time::Instant::now();
    ask(&model, &[], &Silent).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 2);
    let hangs = tokio::time::timeout(second * 3600, ask(&model, &[], &Silent)).await;
    assert!(hangs.is_err());
}
