//! Many clients at once: so many are answered, so many wait, the rest is sent away.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lis_model_server::{ServeOptions, Served};
use model::{Error, Listener, Model, Request, Response};
use serde_json::json;
use testkit::{ScriptedModel, say};
use tokio::task::JoinSet;

use crate::support::{Endless, Server, question, wait_for};

/// Counts how many responses are written at once, and remembers the most.
struct Counting {
    inner: ScriptedModel,
    now: AtomicUsize,
    most: Arc<AtomicUsize>,
}

impl Model for Counting {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn complete(
        &self,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Response, Error> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let response = self.inner.complete(request, listener).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        response
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_at_once_are_all_answered() {
    let most = Arc::new(AtomicUsize::new(0));
    let inner = ScriptedModel::answering(|request| say(format!("{:?}", request.messages[0])));
    let inner = inner.delay(Duration::from_millis(5));
    let model = Counting { inner, now: AtomicUsize::new(0), most: most.clone() };
    let server = Arc::new(Server::of(model).await);
    let mut asking = JoinSet::new();
    for number in 0..200 {
        let server = server.clone();
        asking.spawn(async move {
            let text = format!("number {number}!");
            let messages = json!([{ "role": "user", "content": text }]);
            let body = question(json!({ "messages": messages, "stream": number % 2 == 0 }));
            let got = server.ask(&body).await;
            (got.status, got.content().contains(&text))
        });
    }
    let answers = asking.join_all().await;
    assert!(answers.iter().all(|answer| *answer == (200, true)), "{answers:?}");
    assert_eq!(most.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn requests_beyond_the_queue_get_a_retry_after() {
    let model = Endless::default();
    let options = ServeOptions { max_running: 2, max_waiting: 1, ..ServeOptions::default() };
    let server = Arc::new(Server::with(vec![Served::new(model.clone(), 9)], options).await);
    let mut asking = JoinSet::new();
    for _ in 0..4 {
        let server = server.clone();
        asking.spawn(async move { server.ask(&question(json!({}))).await });
    }
    let refused = asking.join_next().await.unwrap().unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.error()["code"], "server_busy");
    wait_for("two are running", || model.running() == 2).await;
    assert!(asking.try_join_next().is_none());
    assert_eq!(model.begun(), 2);
}
