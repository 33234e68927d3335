//! Registries that require authentication, and refusals with remedies.

use std::net::TcpListener;

use lis_image::{Credentials, Digest, PullOptions, Silent, Transport};

use crate::{
    fake::{Answer, Server},
    registry::{Access, Registry},
    support::{Packing, TestImage, TestStore, chain, quick, tar},
};

fn small() -> TestImage {
    TestImage::new(&[(tar(&[("f", b"x")]), Packing::Gzip)])
}

fn with_password(password: &str) -> PullOptions {
    let credentials = Credentials { username: "tester".into(), password: password.into() };
    PullOptions { credentials: Some(credentials), ..quick() }
}

#[tokio::test]
async fn a_name_and_a_password_open_a_closed_registry() {
    let Some(registry) = Registry::start(Access::Tester) else { return };
    registry.push("closed", "1", &small());
    let test = TestStore::new();
    let name = registry.name("closed:1");
    let text = chain(&test.store.pull(&name, &quick(), &Silent).await.unwrap_err());
    assert!(
        text.contains("refused access") && text.contains("give a user name and a password"),
        "{text}"
    );
    let text = chain(&test.store.pull(&name, &with_password("wrong"), &Silent).await.unwrap_err());
    assert!(text.contains("check the user name and the password"), "{text}");
    test.assert_empty();
    test.store.pull(&name, &with_password("let me in"), &Silent).await.unwrap();
    test.store.rootfs(&name).unwrap();
}

#[tokio::test]
async fn a_missing_image_is_reported_with_a_remedy() {
    let Some(registry) = Registry::start(Access::Everyone) else { return };
    registry.push("here", "1", &small());
    let test = TestStore::new();
    for name in ["here:2", "nowhere:1"] {
        let error = test.store.pull(&registry.name(name), &quick(), &Silent).await.unwrap_err();
        let text = chain(&error);
        assert!(text.contains(name) && text.contains("check the spelling"), "{text}");
        assert!(error.is_usage());
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error =
        test.store.pull(&format!("127.0.0.1:{free}/x"), &quick(), &Silent).await.unwrap_err();
    let text = chain(&error);
    assert!(
        text.contains("cannot reach the registry") && text.contains("check its name"),
        "{text}"
    );
    assert!(!error.is_usage());
    test.assert_empty();
}

/// A registry that accepts one token, which one user can get.
fn token_registry() -> Server {
    let image = small();
    Server::start(move |request| {
        let host = request.header("host").unwrap_or_default();
        if let Some(query) = request.target.strip_prefix("/token?") {
            assert_eq!(query, "service=test+service&scope=repository%3Ateam%2Fx%3Apull%2Cpush");
            return match request.header("authorization").as_deref() {
                Some("Basic dGVzdGVyOmxldCBtZSBpbg==") => {
                    Answer::new(200, r#"{"access_token":"good"}"#)
                }
                None => Answer::new(200, r#"{"token":"anonymous"}"#),
                Some(_) => Answer::new(401, r#"{"errors":[{"message":"who are you"}]}"#),
            };
        }
        if request.header("authorization").as_deref() != Some("Bearer good") {
            let challenge = format!(
                "Bearer realm=\"http://{host}/token\",service=\"test service\",scope=\"repository:team/x:pull,push\""
            );
            return Answer::new(401, "").with("WWW-Authenticate", challenge);
        }
        if request.target.contains("/manifests/") {
            return Answer::new(200, image.manifest.clone());
        }
        let layer = request.target.ends_with(&Digest::of(&image.layers[0]).to_string());
        Answer::new(200, if layer { image.layers[0].clone() } else { image.config.clone() })
    })
}

#[tokio::test]
async fn a_token_is_fetched_from_the_named_server_and_reused() {
    let server = token_registry();
    let test = TestStore::new();
    let name = server.name("team/x:1");
    test.store.pull(&name, &with_password("let me in"), &Silent).await.unwrap();
    let targets: Vec<_> = server.seen.lock().unwrap().iter().map(|r| r.target.clone()).collect();
    assert_eq!(
        targets.iter().filter(|target| target.starts_with("/token")).count(),
        1,
        "{targets:?}"
    );

    let test = TestStore::new();
    let text = chain(&test.store.pull(&name, &with_password("no"), &Silent).await.unwrap_err());
    assert!(text.contains("who are you"), "{text}");
    let text = chain(&test.store.pull(&name, &quick(), &Silent).await.unwrap_err());
    assert!(text.contains("refused access"), "{text}");
    test.assert_empty();
}

#[tokio::test]
async fn a_redirect_elsewhere_does_not_take_the_password_along() {
    let image = small();
    let layer = image.layers[0].clone();
    let elsewhere = Server::start(move |_| Answer::new(200, layer.clone()));
    let away = format!("http://localhost:{}/blob", elsewhere.port);
    let server = Server::start(move |request| {
        if request.header("authorization").is_none() {
            return Answer::new(401, "").with("WWW-Authenticate", "Basic realm=\"x\"");
        }
        if request.target.contains("/manifests/") {
            return Answer::new(200, image.manifest.clone());
        }
        if request.target.ends_with(&Digest::of(&image.layers[0]).to_string()) {
            return Answer::new(307, "").with("Location", away.clone());
        }
        Answer::new(200, image.config.clone())
    });
    let test = TestStore::new();
    test.store.pull(&server.name("x"), &with_password("let me in"), &Silent).await.unwrap();
    let seen = elsewhere.seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].header("authorization"), None);
}

#[tokio::test]
async fn a_busy_registry_is_asked_again() {
    let image = small();
    let asked = std::sync::atomic::AtomicU32::new(0);
    let server = Server::start(move |request| {
        // Every other request fails.
        match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => return Answer::new(503, ""),
            2 => return Answer::new(429, ""),
            4 => return Answer::new(500, ""),
            _ => {}
        }
        if request.target.contains("/manifests/") {
            return Answer::new(200, image.manifest.clone());
        }
        let layer = request.target.ends_with(&Digest::of(&image.layers[0]).to_string());
        Answer::new(200, if layer { image.layers[0].clone() } else { image.config.clone() })
    });
    let test = TestStore::new();
    test.store.pull(&server.name("x"), &quick(), &Silent).await.unwrap();
}

#[tokio::test]
async fn plain_http_is_for_this_machine_only() {
    // Linux connects this address to loopback, but it does not read as such.
    let elsewhere = "0.0.0.0";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = std::thread::spawn(move || {
        use std::io::Read;
        let mut first = [0; 1];
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut first).unwrap();
        first[0]
    });
    let test = TestStore::new();
    let secure = PullOptions { transport: Transport::Secure, ..quick() };
    assert!(test.store.pull(&format!("{elsewhere}:{port}/x"), &secure, &Silent).await.is_err());
    // 22 opens a TLS handshake; `G` would be a request.
    assert_eq!(heard.join().unwrap(), 22);

    let server = Server::start(|_| Answer::new(404, ""));
    let insecure = PullOptions { transport: Transport::Insecure, ..quick() };
    let name = format!("{elsewhere}:{}/x", server.port);
    let error = test.store.pull(&name, &insecure, &Silent).await.unwrap_err();
    assert!(chain(&error).contains("check the spelling"), "{}", chain(&error));
}
