//! The end of the server: orderly for those who are being answered, and bounded.

use std::time::Duration;

use lis_model_server::{ServeOptions, Served, serve};
use serde_json::json;
use testkit::{ScriptedModel, say};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};

use crate::support::{Endless, LONGEST, Server, chat, question, read, read_until, wait_for};

#[tokio::test]
async fn a_running_response_is_finished() {
    let model =
        std::sync::Arc::new(ScriptedModel::new([say("done").after(Duration::from_millis(300))]));
    let mut server = Server::of(model.clone()).await;
    let address = server.address;
    let mut stream = server.connect().await;
    // An idle connection does not delay the shutdown.
    let _idle = server.connect().await;
    stream.write_all(chat(&question(json!({})).to_string(), "").as_bytes()).await.unwrap();
    wait_for("it was asked", || !model.requests().is_empty()).await;
    server.stop();
    let got = read(&mut stream).await;
    assert_eq!(got.json()["choices"][0]["message"]["content"], "done");
    server.ended().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn an_endless_response_is_aborted() {
    let model = Endless::default();
    let options = ServeOptions { grace: Duration::from_millis(100), ..ServeOptions::default() };
    let mut server = Server::with(vec![Served::new(model.clone(), 9)], options).await;
    let mut stream = server.connect().await;
    let body = question(json!({ "stream": true })).to_string();
    stream.write_all(chat(&body, "").as_bytes()).await.unwrap();
    read_until(&mut stream, "\"word\"").await;
    let begun = Instant::now();
    server.stop();
    server.ended().await;
    assert!(begun.elapsed() >= Duration::from_millis(100));
    wait_for("the generation ended", || model.running() == 0).await;
}

#[tokio::test]
async fn without_a_model_nothing_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let none: Vec<Served<ScriptedModel>> = Vec::new();
    let served = serve(listener, none, ServeOptions::default(), std::future::pending());
    let error = timeout(LONGEST, served).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
