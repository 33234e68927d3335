//! Many clients at once: so many are answered, so many wait, the rest is sent away.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use model_server::{ServeOptions, Served};
use serde_json::json;
use testkit::{Scripted, say};
use tokio::io::AsyncWriteExt;

use crate::support::{Endless, Server, chat, question, read, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_at_once_are_all_answered() {
    let most = Arc::new(AtomicUsize::new(0));
    let (now, seen) = (Arc::new(AtomicUsize::new(0)), most.clone());
    let model = Scripted::answering(move |request| {
        seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        now.fetch_sub(1, Ordering::SeqCst);
        say(format!("{:?}", request.messages[0]))
    })
    .delay(Duration::from_millis(2));
    let server = Arc::new(Server::of(model).await);
    let asking: Vec<_> = (0..200)
        .map(|number| {
            let server = server.clone();
            let delivery = number % 2 == 0;
            let messages = json!([{ "role": "user", "content": format!("number {number}!") }]);
            let body = question(json!({ "messages": messages, "stream": delivery }));
            tokio::spawn(async move {
                let got = server.ask(&body).await;
                assert_eq!(got.status, 200);
                got.body.contains(&format!("number {number}!"))
            })
        })
        .collect();
    for asked in asking {
        assert!(asked.await.unwrap());
    }
    assert!((1..=4).contains(&most.load(Ordering::SeqCst)));
}

#[tokio::test]
async fn those_beyond_the_queue_are_told_to_come_back() {
    let model = Endless::default();
    let options = ServeOptions { max_running: 2, max_waiting: 1, ..ServeOptions::default() };
    let server = Server::with(vec![Served::new(model.clone(), 9)], options).await;
    let body = question(json!({})).to_string();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect().await;
        stream.write_all(chat(&body, "connection: close\r\n").as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    wait_for("two run", || model.running() == 2).await;
    // The third may still be on its way into the queue: its place is taken by it or by one of ours.
    let mut refused = server.send(chat(&body, "connection: close\r\n"));
    let mut refused = unsafe_free_wait(&mut refused).await;
    while refused.is_none() {
        refused = None;
    }
    assert_eq!(model.begun(), 2);
    let _ = read;
}
