//! Our own client receives what the model behind the endpoint generated.

use std::{sync::Arc, time::Duration};

use lis_model_server::{ServeOptions, Served};
use model::{
    Delta, Endpoint, Error, Listener, Model, OpenAi, Overflow, Request, Response, Sampling, Secret,
    ToolSpec,
};
use serde_json::json;
use testkit::{Call, ScriptedModel, Step, calls, say};
use trajectory::{Arguments, Assistant, Content, Message, Stop, ToolCall, ToolResult, Usage};

use crate::support::{Server, question};

const TEXT: &str = "Ich zähle die Primzahlen: 素数 🦀, and then some more words.";

/// Records the pieces.
#[derive(Default)]
struct Recorder(std::sync::Mutex<Vec<String>>);

impl Listener for Recorder {
    fn on_delta(&self, delta: Delta<'_>) {
        if let Delta::Text(text) = delta {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }
}

fn client(server: &Server) -> OpenAi {
    let endpoint = Endpoint {
        silence: Duration::from_secs(20),
        ..Endpoint::new("scripted", server.base_url())
    };
    OpenAi::new(endpoint).unwrap()
}

fn tools() -> Vec<ToolSpec> {
    let parameters = json!({
        "type": "object",
        "properties": { "command": { "type": "string" } },
        "required": ["command"],
    });
    let description = "Runs it.".to_owned();
    vec![ToolSpec { name: "execute_bash".into(), description, parameters }]
}

async fn ask(model: &impl Model, listener: &dyn Listener) -> Result<Response, Error> {
    let (sampling, messages) = (Sampling::default(), [Message::user("Go.")]);
    let tools = tools();
    let request =
        Request { messages: &messages, tools: &tools, sampling: &sampling, max_tokens: 77 };
    model.complete(&request, listener).await
}

#[tokio::test]
async fn text_thinking_calls_and_counts_come_through() {
    let usage = Usage { input: 120, cached: 64, output: 30, reasoning: 8, ..Usage::default() };
    let turn = calls([Call::bash("echo 'größer'").id("call_x"), Call::bash("ls").id("call_y")])
        .text(TEXT)
        .reasoning("First think.")
        .usage(usage);
    let server = Server::of(ScriptedModel::new([turn])).await;
    let recorder = Recorder::default();
    let response = ask(&client(&server), &recorder).await.unwrap();
    assert_eq!(response.message.text, TEXT);
    assert_eq!(response.message.reasoning, "First think.");
    assert_eq!(response.usage, usage);
    assert_eq!(response.stop, Stop::ToolCalls);
    let ids: Vec<_> = response.message.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call_x", "call_y"]);
    let command = json!({ "command": "echo 'größer'" });
    let first = &response.message.calls[0].arguments;
    assert!(matches!(first, Arguments::Object(map) if json!(map) == command), "{first:?}");
    let heard = recorder.0.lock().unwrap();
    assert!(heard.len() > 3 && heard.concat() == TEXT, "{heard:?}");
}

#[tokio::test]
async fn a_cut_off_call_stays_cut_off() {
    let half = Call::raw("execute_bash", r#"{"command": "rm -rf /tm"#);
    let server = Server::of(ScriptedModel::new([calls([half]).stop(Stop::Length)])).await;
    let response = ask(&client(&server), &model::Silent).await.unwrap();
    assert_eq!(response.stop, Stop::Length);
    assert!(matches!(response.message.calls[0].arguments, Arguments::Malformed { .. }));
}

#[tokio::test]
async fn the_conversation_reaches_the_model_as_it_was() {
    let scripted = Arc::new(ScriptedModel::new([say("yes")]));
    let server = Server::of(scripted.clone()).await;
    let arguments = json!({ "command": "ls" }).as_object().unwrap().clone();
    let call = ToolCall {
        id: "call_1".into(),
        name: "execute_bash".into(),
        arguments: Arguments::Object(arguments),
    };
    let picture = Content::Image { media_type: "image/png".into(), data: "iVBORw0KGgo=".into() };
    let messages = vec![
        Message::System { text: "You have a computer.".into() },
        Message::User { content: vec![Content::text("What is this?"), picture] },
        Message::Assistant(Assistant {
            text: "Let me see.".into(),
            calls: vec![call],
            ..Assistant::default()
        }),
        Message::Tool(ToolResult {
            call_id: "call_1".into(),
            name: "execute_bash".into(),
            content: vec![Content::text("a.txt")],
            is_error: false,
        }),
    ];
    let sampling = Sampling {
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(20),
        min_p: Some(0.1),
        repetition_penalty: Some(1.1),
        seed: Some(7),
        stop: vec!["END".into()],
        ..Sampling::default()
    };
    let tools = tools();
    let request =
        Request { messages: &messages, tools: &tools, sampling: &sampling, max_tokens: 77 };
    client(&server).complete(&request, &model::Silent).await.unwrap();
    let asked = scripted.requests().remove(0);
    assert_eq!(asked.messages, messages);
    assert_eq!((asked.tools, asked.max_tokens, asked.sampling), (1, 77, sampling));
}

#[tokio::test]
async fn failures_come_through_as_what_they_are() {
    let numbers = Overflow { context: Some(4096), prompt: Some(5000), output: None };
    let server = Server::of(ScriptedModel::new([
        Step::Error(Error::Overflow { numbers, message: "too long".into() }),
        Step::Error(Error::Busy {
            status: 503,
            message: "later".into(),
            retry_after: Some(Duration::from_secs(3)),
        }),
        Step::Error(Error::Refused { status: 422, message: "not like that".into() }),
        Step::Error(Error::Cut("the thread ended".into())),
    ]))
    .await;
    let client = client(&server);
    let mut errors = Vec::new();
    for _ in 0..4 {
        errors.push(ask(&client, &model::Silent).await.unwrap_err());
    }
    assert!(matches!(&errors[0], Error::Overflow { numbers: told, .. } if *told == numbers));
    let three = Some(Duration::from_secs(3));
    assert!(
        matches!(&errors[1], Error::Busy { status: 503, retry_after, .. } if *retry_after == three)
    );
    assert!(
        matches!(&errors[2], Error::Refused { status: 422, message } if message.contains("not like that"))
    );
    assert!(matches!(&errors[3], Error::Busy { status: 500, .. }), "{:?}", errors[3]);
}

#[tokio::test]
async fn the_key_is_required() {
    let options =
        ServeOptions { api_key: Some(Secret::new("sk-right-1234")), ..ServeOptions::default() };
    let served = Served::new(ScriptedModel::answering(|_| say("yes")), 100);
    let server = Server::with(vec![served], options).await;
    let with = |key: Option<&str>| {
        let api_key = key.map(Secret::new);
        OpenAi::new(Endpoint { api_key, ..Endpoint::new("scripted", server.base_url()) }).unwrap()
    };
    assert!(ask(&with(Some("sk-right-1234")), &model::Silent).await.is_ok());
    for key in [Some("sk-right-1235"), Some("sk-right-123")] {
        let error = ask(&with(key), &model::Silent).await.unwrap_err();
        assert!(matches!(error, Error::Key { status: 401, .. }), "{error:?}");
    }
    for key in [None, Some("")] {
        let error = ask(&with(key), &model::Silent).await.unwrap_err();
        assert!(matches!(error, Error::NoKey { status: 401, .. }), "{error:?}");
    }
    assert_eq!(server.get("/health").await.status, 200);
    let got = server.get("/v1/models").await;
    assert_eq!((got.status, &got.error()["code"]), (401, &json!("invalid_api_key")));
}

#[tokio::test]
async fn what_the_client_leaves_open_is_the_servers_choice() {
    let scripted = Arc::new(ScriptedModel::answering(|_| say("yes")));
    let set = Sampling {
        temperature: Some(0.3),
        top_k: Some(5),
        stop: vec!["END".into()],
        ..Sampling::default()
    };
    let served = Served { sampling: set.clone(), ..Served::new(scripted.clone(), 321) };
    let server = Server::with(vec![served], ServeOptions::default()).await;
    assert_eq!(server.ask(&question(json!({}))).await.status, 200);
    let wish = json!({ "temperature": 0, "stop": "STOP", "max_tokens": 5 });
    assert_eq!(server.ask(&question(wish)).await.status, 200);
    let asked = scripted.requests();
    assert_eq!((&asked[0].sampling, asked[0].max_tokens), (&set, 321));
    let stop = vec!["STOP".into()];
    let wanted = Sampling { temperature: Some(0.0), stop, ..set };
    assert_eq!((&asked[1].sampling, asked[1].max_tokens), (&wanted, 5));
}
