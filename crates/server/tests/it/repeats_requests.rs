//! A request to create a sandbox that is sent again with the same `Idempotency-Key` creates no second one.

use lis_server::{KeyHash, Quotas, ServeOptions, Token, Tokens};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{TestServer, becomes, with_server};

async fn create(
    server: &TestServer,
    path: &str,
    token: &str,
    key: &str,
    body: &Value,
) -> (u16, Value) {
    let request = server.request(Method::POST, path).header("X-API-Key", token);
    let response = request.header("Idempotency-Key", key).json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[test]
fn the_same_key_is_the_same_sandbox() {
    let tokens = ["alice", "bob"].map(|name| Token {
        name: name.into(),
        key: KeyHash::of(name.as_bytes()),
        quotas: Quotas::default(),
    });
    let tokens = Tokens::new(tokens.into()).unwrap();
    with_server(ServeOptions { tokens, ..ServeOptions::default() }, async |server| {
        let body = json!({ "templateID": "base", "timeout": 60 });
        let (v1, v2) = ("/sandboxes", "/v2/sandboxes");
        // At once, as a client does that gives up early.
        let [first, second] = ["alice"; 2].map(|token| create(server, v2, token, "k", &body));
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first.0, &first), (201, &second));
        let other = json!({ "templateID": "base", "timeout": 61 });
        let (status, refused) = create(server, v2, "alice", "k", &other).await;
        assert_eq!((status, &refused["code"]), (422, &json!(422)), "{refused}");
        assert_eq!(refused["error_code"], "idempotency_request_mismatch");
        assert_eq!(create(server, v1, "alice", "k", &body).await.0, 422);
        assert_eq!(create(server, v2, "alice", &"k".repeat(256), &body).await.0, 400);
        becomes(server, 1).await;
        // A failure is not remembered.
        let unknown = json!({ "templateID": "nowhere" });
        for _ in 0..2 {
            assert_eq!(create(server, v2, "alice", "l", &unknown).await.0, 404);
        }
        let bobs = create(server, v2, "bob", "k", &body).await;
        assert!(bobs.0 == 201 && bobs.1["sandboxID"] != first.1["sandboxID"], "{bobs:?}");
        becomes(server, 2).await;
        // The answer stays the same, and creates nothing, also after the sandbox has ended.
        let path = format!("/sandboxes/{}", first.1["sandboxID"].as_str().unwrap());
        let ended = server.request(Method::DELETE, &path).header("X-API-Key", "alice");
        assert_eq!(ended.send().await.unwrap().status(), 204);
        assert_eq!(create(server, v2, "alice", "k", &body).await, first);
        becomes(server, 1).await;
    });
}
