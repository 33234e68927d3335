//! Sandboxes end with their time, with their server, and when a client says so; and a server has only so many.

use std::time::{Duration, Instant};

use lis_server::ServeOptions;
use reqwest::Method;
use serde_json::json;

use crate::support::{bash, becomes, with_server};

#[test]
fn a_killed_sandbox_is_gone_with_its_programs() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let mut running =
            server.stream(&sandbox, "/process.Process/Start", &bash("sleep 600")).await;
        assert!(running.chunk().await.unwrap().is_some());
        becomes(server, 1).await;
        let path = format!("/sandboxes/{}", sandbox.id);
        let killed = server.request(Method::DELETE, &path).send().await.unwrap();
        assert_eq!(killed.status(), 204);
        // The stream is cut, so that it cannot be taken for a program's end.
        let rest = async {
            while running.chunk().await?.is_some() {}
            Ok::<_, reqwest::Error>(())
        };
        assert!(rest.await.is_err());
        becomes(server, 0).await;
        assert_eq!(server.request(Method::DELETE, &path).send().await.unwrap().status(), 404);
    });
}

#[test]
fn a_sandbox_ends_with_its_time() {
    with_server(ServeOptions::default(), async |server| {
        let body = json!({ "templateID": "base", "timeout": 1 });
        let request = server.request(Method::POST, "/v2/sandboxes").json(&body);
        assert_eq!(request.send().await.unwrap().status(), 201);
        becomes(server, 1).await;
        becomes(server, 0).await;
    });
}

#[test]
fn a_full_server_says_so_and_recovers() {
    let options = ServeOptions { max_sandboxes: 2, ..ServeOptions::default() };
    with_server(options, async |server| {
        let one = server.create().await;
        let _two = server.create().await;
        let body = json!({ "templateID": "base" });
        let create = || server.request(Method::POST, "/v2/sandboxes").json(&body).send();
        assert_eq!(create().await.unwrap().status(), 429);
        let path = format!("/sandboxes/{}", one.id);
        server.request(Method::DELETE, &path).send().await.unwrap();
        becomes(server, 1).await;
        let begun = Instant::now();
        while create().await.unwrap().status() != 201 {
            assert!(begun.elapsed() < Duration::from_secs(20), "no place became free");
        }
    });
}

#[test]
fn a_server_that_stops_takes_its_sandboxes_along() {
    // `with_server` checks that none is left, whatever its clients are doing.
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let running = server.stream(&sandbox, "/process.Process/Start", &bash("sleep 600")).await;
        std::mem::forget(running);
    });
}

#[test]
fn a_slow_client_does_not_keep_a_killed_sandbox() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        // A program whose output nobody reads, and bodies that do not end.
        let script = "cat /dev/zero";
        let unread = server.stream(&sandbox, "/process.Process/Start", &bash(script)).await;
        let requests = [
            ("/process.Process/StreamInput", "application/connect+json"),
            ("/process.Process/List", "application/json"),
            ("/files?path=/tmp/x", "application/octet-stream"),
            ("/files?path=/tmp/y", "multipart/form-data; boundary=b"),
        ];
        let requests = requests.map(|(path, kind)| {
            let endless = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
            let request = server.to(&sandbox, Method::POST, path).header("Content-Type", kind);
            tokio::spawn(request.body(reqwest::Body::wrap_stream(endless)).send())
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let path = format!("/sandboxes/{}", sandbox.id);
        server.request(Method::DELETE, &path).send().await.unwrap();
        becomes(server, 0).await;
        for request in requests {
            request.abort();
        }
        drop(unread);
    });
}

/// The number, on this machine, of the first process of the sandbox with a program of this name.
pub(crate) async fn first_process(name: &str) -> rustix::process::Pid {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let path = process.path();
            let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
            if !command.starts_with(format!("{name}\0").as_bytes()) {
                continue;
            }
            let field = |status: String, field: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(field));
                line.unwrap().trim().to_owned()
            };
            let parent = field(std::fs::read_to_string(path.join("status")).unwrap(), "PPid:");
            let status = std::fs::read_to_string(format!("/proc/{parent}/status")).unwrap();
            assert!(field(status, "NSpid:").ends_with("\t1"), "not the first of a sandbox");
            return rustix::process::Pid::from_raw(parent.parse().unwrap()).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the program does not run");
}

#[test]
fn a_sandbox_that_ended_by_itself_is_gone() {
    with_server(ServeOptions::default(), async |server| {
        let sandbox = server.create().await;
        let script = format!("exec -a {} sleep 600", sandbox.id);
        let running = server.stream(&sandbox, "/process.Process/Start", &bash(&script)).await;
        let first = first_process(&sandbox.id).await;
        rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
        drop(running);
        server.call(&sandbox, "/filesystem.Filesystem/Stat", &json!({ "path": "/" })).await;
        let begun = Instant::now();
        while server.to(&sandbox, Method::GET, "/health").send().await.unwrap().status() != 502 {
            assert!(begun.elapsed() < Duration::from_secs(20), "still healthy");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}
