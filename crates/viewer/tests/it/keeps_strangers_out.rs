//! Who reaches the page of `view`: whoever has the token, from a browser on this machine.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use lis_viewer::{Access, Library, PageOptions, app};

use crate::support::{Reply, Served, run_directory};

const HOST: &str = "127.0.0.1:4000";

struct Page {
    served: Served,
    token: String,
}

fn page(dir: &std::path::Path) -> Page {
    let address: SocketAddr = HOST.parse().unwrap();
    let access = Arc::new(Access::new(address).unwrap());
    let token = access.token().to_owned();
    let library = Arc::new(Library::open(vec![dir.to_owned()]));
    Page { served: Served { router: app(library, PageOptions::default(), access) }, token }
}

impl Page {
    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut request = Request::builder().method(method).uri(path).header("host", HOST);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request =
            request.header("content-type", "application/json").body(Body::from(body.to_owned()));
        self.served.send(request.unwrap()).await
    }

    async fn login(&self, token: &str) -> Reply {
        self.ask(Method::POST, "/page/api/login", &[], &format!("{{\"token\":\"{token}\"}}")).await
    }
}

#[tokio::test]
async fn data_needs_the_token_and_the_page_does_not() {
    let dir = tempfile::tempdir().unwrap();
    run_directory(dir.path(), "run");
    let page = page(dir.path());
    let index = page.ask(Method::GET, "/", &[("sec-fetch-site", "cross-site")], "").await;
    assert_eq!(index.status, StatusCode::OK);
    let policy = index.header("content-security-policy");
    assert!(
        policy.contains("script-src 'self';") && policy.contains("default-src 'none'"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"));
    assert_eq!(
        page.ask(Method::GET, "/page/api/runs", &[], "").await.status,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(page.login("wrong").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(
        page.ask(Method::POST, "/page/api/login", &[], "no").await.status,
        StatusCode::BAD_REQUEST
    );
    let login = page.login(&page.token).await;
    assert_eq!(login.status, StatusCode::NO_CONTENT);
    let cookie = login.header("set-cookie");
    assert!(
        cookie.contains("HttpOnly; SameSite=Strict") && cookie.starts_with("lis_view_4000="),
        "{cookie}"
    );
    assert!(!cookie.contains(&page.token));
    let cookie = cookie.split(';').next().unwrap();
    let own = [("cookie", cookie), ("sec-fetch-site", "same-origin")];
    let runs = page.ask(Method::GET, "/page/api/runs", &own, "").await;
    assert_eq!(runs.json()["total"], 1);
    assert_eq!(runs.header("cache-control"), "no-store");
    // Another site, another host name, a page with an opaque origin: none of them, even with the cookie.
    for headers in [
        [("cookie", cookie), ("origin", "http://evil.example")],
        [("cookie", cookie), ("origin", "null")],
        [("cookie", cookie), ("sec-fetch-site", "cross-site")],
        [("cookie", cookie), ("sec-fetch-site", "same-site")],
    ] {
        let reply = page.ask(Method::GET, "/page/api/runs", &headers, "").await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{headers:?}");
    }
    let rebound =
        Request::get("/page/api/runs").header("host", "evil.example:4000").header("cookie", cookie);
    let reply = page.served.send(rebound.body(Body::empty()).unwrap()).await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn files_of_the_page_are_compressed_and_cached() {
    let dir = tempfile::tempdir().unwrap();
    let page = page(dir.path());
    let index = page.ask(Method::GET, "/", &[], "").await;
    let text = index.text();
    let start = text.find("page/assets/").unwrap();
    let end = start + text[start..].find('"').unwrap();
    let address = format!("/{}", &text[start..end]);
    let plain = page.ask(Method::GET, &address, &[], "").await;
    assert_eq!(plain.status, StatusCode::OK, "{address}");
    assert!(plain.header("cache-control").contains("immutable"));
    let packed = page.ask(Method::GET, &address, &[("accept-encoding", "gzip, br")], "").await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    assert!(packed.body.len() < plain.body.len());
    let etag = plain.header("etag").to_owned();
    let known = page.ask(Method::GET, &address, &[("if-none-match", &etag)], "").await;
    assert_eq!((known.status, known.body.len()), (StatusCode::NOT_MODIFIED, 0));
    assert_eq!(
        page.ask(Method::GET, "/page/assets/0/app.js", &[], "").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        page.ask(Method::GET, "/page/assets/x/..%2F..%2Fetc%2Fpasswd", &[], "").await.status,
        StatusCode::NOT_FOUND
    );
}
