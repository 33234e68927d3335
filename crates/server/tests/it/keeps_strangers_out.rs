//! Keys, tokens, and what only the machine's own programs may do.

use lis_server::ServeOptions;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Created, bash, with_server};

fn locked() -> ServeOptions {
    ServeOptions { api_key: Some("secret".into()), ..ServeOptions::default() }
}

#[test]
fn without_the_key_nothing_is_created() {
    with_server(locked(), async |server| {
        let body = json!({ "templateID": "base" });
        for key in [None, Some("wrong"), Some("secre"), Some("")] {
            let request = server.request(Method::POST, "/v2/sandboxes").json(&body);
            let request = match key {
                Some(key) => request.header("X-API-Key", key),
                None => request,
            };
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 401, "{key:?}");
            let value: Value = response.json().await.unwrap();
            assert_eq!(value["code"], 401);
        }
        let request = server.request(Method::GET, "/v2/sandboxes").bearer_auth("secret");
        let list: Value = request.send().await.unwrap().json().await.unwrap();
        assert_eq!(list, json!([]));
    });
}

#[test]
fn a_sandbox_answers_to_its_own_token_only() {
    with_server(ServeOptions::default(), async |server| {
        let (mine, other) = (server.create().await, server.create().await);
        let wrong = [
            Created { id: mine.id.clone(), token: other.token.clone() },
            Created { id: mine.id.clone(), token: String::new() },
            Created { id: mine.id.clone(), token: format!("{} ", mine.token) },
        ];
        for stranger in &wrong[..2] {
            let paths =
                ["/process.Process/List", "/filesystem.Filesystem/Stat", "/files?path=/etc/passwd"];
            for path in paths {
                let method = if path.starts_with("/files") { Method::GET } else { Method::POST };
                let request = server.to(stranger, method, path).json(&json!({ "path": "/" }));
                assert_eq!(request.send().await.unwrap().status(), 401, "{path}");
            }
        }
        assert_eq!(server.call(&mine, "/process.Process/List", &json!({})).await.status(), 200);
        let gone = Created { id: "x".repeat(20), token: mine.token.clone() };
        assert_eq!(server.call(&gone, "/process.Process/List", &json!({})).await.status(), 502);
        // The control plane knows whose token is whose; nobody learns it from a list.
        let list = server.request(Method::GET, "/v2/sandboxes").send().await.unwrap();
        assert!(!list.text().await.unwrap().contains(&mine.token));
    });
}

#[test]
fn web_pages_and_foreign_names_are_refused() {
    with_server(ServeOptions::default(), async |server| {
        for (name, value) in [("Origin", "http://evil.example"), ("Host", "evil.example")] {
            let request = server.request(Method::GET, "/v2/sandboxes").header(name, value);
            assert_eq!(request.send().await.unwrap().status(), 403, "{name}");
        }
    });
}

#[test]
fn web_pages_are_refused_with_a_valid_key_too() {
    with_server(locked(), async |server| {
        for (name, value) in [("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")] {
            for path in ["/v2/sandboxes", "/v1/models", "/mcp", "/metrics", "/ready"] {
                let request = server.request(Method::GET, path).bearer_auth("secret");
                let response = request.header(name, value).send().await.unwrap();
                assert_eq!(response.status(), 403, "{name} {path}");
            }
        }
    });
}

/// Whether a program in a sandbox with this network gets an answer of the server.
fn reaches_the_server(network: sandbox::Network) -> bool {
    let spec = sandbox::Spec { network, ..sandbox::Spec::default() };
    let mut reached = false;
    with_server(ServeOptions { spec, ..ServeOptions::default() }, async |server| {
        let sandbox = server.create().await;
        // Directly and through the proxy of the sandbox, if it has one.
        let url = format!("http://127.0.0.1:{}/health", server.address.port());
        let script = format!("curl -s -m 3 {url}; curl -s -m 3 --noproxy '*' {url}; echo done");
        let response = server.stream(&sandbox, "/process.Process/Start", &bash(&script)).await;
        let all = crate::support::messages(&response.bytes().await.unwrap());
        let text: Vec<u8> = all.iter().flat_map(output).collect();
        let text = String::from_utf8(text).unwrap();
        assert!(text.ends_with("done\n"), "{text}");
        reached = text.contains(r#""status":"ok""#);
    });
    reached
}

/// What a message says a program wrote.
fn output(message: &Value) -> Vec<u8> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let text = message["event"]["data"]["stdout"].as_str().unwrap_or_default();
    BASE64_STANDARD.decode(text).unwrap()
}

#[test]
fn programs_with_a_filtered_network_do_not_reach_the_server() {
    use sandbox::Network;
    if !std::path::Path::new("/usr/bin/curl").exists() {
        println!("skip: this machine has no curl");
        return;
    }
    assert!(reaches_the_server(Network::Full), "the script works");
    assert!(!reaches_the_server(Network::Internet));
    let hosts = vec!["example.org".parse().unwrap()];
    assert!(!reaches_the_server(Network::Allow(hosts)));
}

#[test]
fn programs_inside_do_not_reach_the_server() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}", server.address.port());
        let response = server.stream(&sandbox, "/process.Process/Start", &bash(&script)).await;
        let all = crate::support::messages(&response.bytes().await.unwrap());
        let end = all.iter().find_map(|message| message["event"].get("end")).unwrap();
        assert_eq!(end["exitCode"], 1, "{all:?}");
    });
}

#[test]
fn templates_are_names_and_never_paths() {
    with_server(ServeOptions::default(), async |server| {
        for template in ["/", "../..", "./x", "/etc", "", "a/b", "host", "no-such-image", "x\u{0}y"]
        {
            let body = json!({ "templateID": template });
            let request = server.request(Method::POST, "/v2/sandboxes").json(&body);
            let status = request.send().await.unwrap().status();
            assert_eq!(status, 404, "{template:?}");
        }
    });
}

#[test]
fn a_signed_address_is_for_the_user_it_names() {
    use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
    use sha2::{Digest, Sha256};
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let secret = server.to(&sandbox, Method::POST, "/files?path=/root/secret&username=root");
        let secret = secret.header("Content-Type", "application/octet-stream").body("x");
        assert_eq!(secret.send().await.unwrap().status(), 200);
        let close = json!({ "process": { "cmd": "/bin/chmod", "args": ["700", "/root"] } });
        let request = server.to(&sandbox, Method::POST, "/process.Process/Start");
        let body = close.to_string().into_bytes();
        let body = [&[0], &u32::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat();
        request
            .basic_auth("root", Some(""))
            .body(body)
            .send()
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
        // Where a sandbox has one user only, the default one may read it too.
        let unsigned = server.to(&sandbox, Method::GET, "/files?path=/root/secret").send().await;
        for (user, expected) in [("root", 200), ("", unsigned.unwrap().status().as_u16())] {
            let text = format!("/root/secret:read:{user}:{}", sandbox.token);
            let signature = BASE64_STANDARD_NO_PAD.encode(Sha256::digest(text));
            let signature = signature.replace('+', "%2B").replace('/', "%2F");
            let path = format!("/files?path=/root/secret&username={user}&signature=v1_{signature}");
            let request = server.request(Method::GET, &path);
            let request = request.basic_auth("root", Some(""));
            let status = request.send().await.unwrap().status().as_u16();
            assert_eq!(status, expected, "user {user:?}");
        }
    });
}

#[test]
fn ports_of_the_host_are_not_forwarded() {
    let spec = sandbox::Spec { network: sandbox::Network::Full, ..sandbox::Spec::default() };
    with_server(ServeOptions { spec, ..ServeOptions::default() }, async |server| {
        let sandbox = server.create().await;
        let request = server.request(Method::GET, "/").header("E2b-Sandbox-Id", &sandbox.id);
        let port = server.address.port().to_string();
        let response = request.header("E2b-Sandbox-Port", port).send().await.unwrap();
        assert_eq!(response.status(), 501);
    });
}
