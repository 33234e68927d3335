//! Requests for what does not exist, and malformed requests.

use lis_model_server::{Images, ServeOptions, Served};
use serde_json::{Value, json};
use testkit::{ScriptedModel, say};

use crate::support::{Server, chat, question};

async fn server() -> Server {
    let named = |name: &str| {
        let own = name.to_owned();
        let model = ScriptedModel::answering(move |_| say(own.clone())).named(name);
        Served::new(model, 100)
    };
    let mut second = named("Org/second");
    second.names.push("alias".into());
    Server::with(vec![named("first"), second], ServeOptions::default()).await
}

#[tokio::test]
async fn models_are_listed_and_found_by_name() {
    let server = server().await;
    let listed = server.get("/v1/models").await.json();
    let ids: Vec<_> =
        listed["data"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, ["first", "Org/second", "alias"]);
    assert_eq!(
        (&listed["object"], &listed["data"][0]["object"]),
        (&json!("list"), &json!("model"))
    );
    for path in ["/v1/models/Org/second", "/v1/models/Org%2Fsecond"] {
        let got = server.get(path).await;
        assert_eq!((got.status, &got.json()["id"]), (200, &json!("Org/second")));
    }
    let got = server.get("/v1/models/third").await;
    assert_eq!((got.status, &got.error()["code"]), (404, &json!("model_not_found")));
}

#[tokio::test]
async fn pictures_are_not_shown_to_the_blind() {
    let seen = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,aGk=" } });
    let body = json!({ "messages": [{ "role": "user", "content": [seen] }] });
    for (images, status) in [(Images::Refused, 400), (Images::Accepted, 200)] {
        let model = ScriptedModel::answering(|_| say("a cat"));
        let served = Served { images, ..Served::new(model, 100) };
        let server = Server::with(vec![served], ServeOptions::default()).await;
        let got = server.ask(&body).await;
        assert_eq!(got.status, status, "{got:?}");
        if images == Images::Refused {
            assert_eq!(got.error()["param"], "messages");
        }
    }
}

#[tokio::test]
async fn the_requested_model_responds() {
    let server = server().await;
    for (asked, said, named) in [
        (json!("first"), "first", "first"),
        (json!("alias"), "Org/second", "alias"),
        (json!(""), "first", "first"),
        (Value::Null, "first", "first"),
    ] {
        let got = server.ask(&question(json!({ "model": asked }))).await.json();
        assert_eq!(got["choices"][0]["message"]["content"], said);
        assert_eq!(got["model"], named);
    }
    let got = server.ask(&question(json!({ "model": "third" }))).await;
    let error = got.error();
    assert_eq!((got.status, &error["code"]), (404, &json!("model_not_found")));
    assert_eq!(
        (&error["param"], &error["type"]),
        (&json!("model"), &json!("invalid_request_error"))
    );
}

#[tokio::test]
async fn other_places_and_methods_are_refused_in_the_same_form() {
    let server = server().await;
    assert_eq!(server.get("/health").await.json(), json!({ "status": "ok" }));
    for path in ["/", "/v1", "/v1/completion", "/v1/chat/completions/", "/v1/../health"] {
        let got = server.get(path).await;
        assert_eq!(got.status, 404, "{path}");
        got.error();
    }
    let got = server.get("/v1/chat/completions").await;
    assert_eq!(got.status, 405);
    got.error();
    let put = "PUT /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert_eq!(server.send(put).await.status, 405);
}

#[tokio::test]
async fn what_is_no_question_is_refused_with_a_reason() {
    let server = server().await;
    let deep = format!("{}1{}", "[".repeat(1 << 16), "]".repeat(1 << 16));
    let wide = format!("[{}1]", "1,".repeat(1 << 20));
    for (body, words) in [
        (String::new(), "not JSON"),
        ("{".into(), "not JSON"),
        ("[]".into(), "object"),
        (deep.clone(), "recursion"),
        (format!("{{\"messages\": {deep}}}"), "recursion"),
        (format!("{{\"unknown\": {wide}}}"), "values"),
        ("{\"messages\": \"hi\"}".into(), "messages"),
        ("{}".into(), "messages"),
    ] {
        let got = server.send(chat(&body, "connection: close\r\n")).await;
        let error = got.error();
        assert_eq!(got.status, 400, "{error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{words}: {error}");
    }
    let mut bytes = chat("{\"model\": \"?\"}", "connection: close\r\n").into_bytes();
    let at = bytes.len() - 3;
    bytes[at] = 0xff;
    let got = server.send(&bytes).await;
    assert_eq!(got.status, 400);
    got.error();
    let form = chat("{}", "connection: close\r\n").replace("application/json", "text/plain");
    assert_eq!(server.send(form).await.status, 415);
}
