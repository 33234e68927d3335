//! What E2B's specification has and this server does not is refused; what the specification does not have is ignored.

use lis_server::ServeOptions;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::with_server;

#[test]
fn features_that_are_missing_are_refused_by_name() {
    with_server(ServeOptions::default(), async |server| {
        let create = async |more: Value| {
            let mut body = json!({ "templateID": "base", "timeout": 60 });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let request = server.request(Method::POST, "/v2/sandboxes").json(&body);
            let answer = request.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        for (field, more) in [
            ("dnsServers", json!({ "network": { "dnsServers": ["1.1.1.1"] } })),
            ("httpsPorts", json!({ "network": { "httpsPorts": [8443] } })),
            ("rules", json!({ "network": { "rules": { "a.example": [{}] } } })),
            ("egressProxy", json!({ "network": { "egressProxy": { "address": "a:1" } } })),
            ("iam", json!({ "iam": { "tokens": { "a": {} } } })),
            ("volumeMounts", json!({ "volumeMounts": [{ "name": "a", "path": "/a" }] })),
            ("autoPauseMemory", json!({ "autoPause": true, "autoPauseMemory": false })),
        ] {
            let (status, text) = create(more).await;
            assert!(status == 501 && text.contains(field), "{field}: {status} {text}");
        }
        let neutral = json!({
            "network": { "dnsServers": [], "httpsPorts": [], "rules": {}, "egressProxy": null },
            "iam": {}, "volumeMounts": [], "autoPauseMemory": false, "mcp": null, "secure": true,
            "a newer client's": { "field": 1 },
        });
        let (status, text) = create(neutral).await;
        assert_eq!(status, 201, "{text}");
        let sandbox: Value = serde_json::from_str(&text).unwrap();
        let path = format!("/sandboxes/{}", sandbox["sandboxID"].as_str().unwrap());
        for (method, what, body) in [
            (Method::POST, "snapshots", json!({ "memory": true })),
            (Method::POST, "pause", json!({ "memory": false })),
            (Method::PUT, "network", json!({ "dnsServers": ["1.1.1.1"] })),
            (Method::PUT, "network", json!({ "rules": { "a.example": [{}] } })),
        ] {
            let answer = server.request(method, &format!("{path}/{what}")).json(&body);
            assert_eq!(answer.send().await.unwrap().status(), 501, "{what} {body}");
        }
    });
}

/// Routes of E2B's specification, and one that nobody has.
#[test]
fn routes_that_are_missing_are_refused_by_name() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        for (method, path) in [
            (Method::POST, "/v3/templates"),
            (Method::GET, "/templates"),
            (Method::GET, "/volumes"),
            (Method::POST, "/volumes"),
            (Method::POST, "/secrets"),
            (Method::POST, "/files/compose"),
            (Method::GET, "/no/such/route"),
        ] {
            let body = json!({ "name": "a" });
            let to_server = server.request(method.clone(), path);
            let to_sandbox = server.to(&sandbox, method.clone(), path);
            for request in [to_server, to_sandbox] {
                let answer = request.json(&body).send().await.unwrap();
                assert_eq!(answer.status(), 501, "{method} {path}");
                let error: Value = answer.json().await.unwrap();
                assert_eq!(error["code"], 501, "{error}");
                let message = error["message"].as_str().unwrap();
                assert!(message.contains(&format!("no {method} {path}")), "{message}");
            }
        }
    });
}

#[test]
fn snapshots_are_listed_by_pages() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let path = format!("/sandboxes/{}/snapshots", sandbox.id);
        let names = ["c", "a", "b"].map(|name| format!("{name}-{}", sandbox.id));
        for name in &names {
            let saved = server.request(Method::POST, &path).json(&json!({ "name": name }));
            let status = saved.send().await.unwrap().status().as_u16();
            if status == 501 {
                return;
            }
            assert_eq!(status, 201);
        }
        let (mut found, mut next) = (Vec::new(), String::new());
        loop {
            let path = format!("/snapshots?limit=2{next}");
            let page = server.request(Method::GET, &path).send().await.unwrap();
            let token = page.headers().get("x-next-token").cloned();
            let page: Value = page.json().await.unwrap();
            let page = page.as_array().unwrap();
            assert!(page.len() <= 2);
            found.extend(page.iter().map(|s| s["snapshotID"].as_str().unwrap().to_owned()));
            match token {
                Some(token) => next = format!("&nextToken={}", token.to_str().unwrap()),
                None => break,
            }
        }
        let mut sorted = names.to_vec();
        sorted.sort();
        assert_eq!(found, sorted);
        let bad = server.request(Method::GET, "/snapshots?limit=0").send().await.unwrap();
        assert_eq!(bad.status(), 400);
        for name in &names {
            let path = format!("/templates/{name}");
            server.request(Method::DELETE, &path).send().await.unwrap();
        }
    });
}
