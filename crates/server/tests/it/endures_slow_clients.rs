//! Clients that send or read hardly anything: they are disconnected, and the others do not notice.

use std::time::{Duration, Instant};

use lis_server::ServeOptions;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{TestServer, bash, becomes, with_server};

const SHORT: Duration = Duration::from_millis(400);
const SOON: Duration = Duration::from_secs(15);

fn options() -> ServeOptions {
    let mut options = ServeOptions::default();
    options.connections.head_timeout = SHORT;
    options.connections.stall_timeout = SHORT;
    options
}

/// Sends a byte now and then until the server disconnects; how long that took.
async fn drip(server: &TestServer, text: &'static [u8]) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
    for byte in text.iter().cycle() {
        let mut answer = [0; 512];
        let pause = tokio::time::sleep(SHORT / 10);
        tokio::select! {
            read = stream.read(&mut answer) => if !matches!(read, Ok(1..)) { break },
            () = pause => if stream.write_all(&[*byte]).await.is_err() { break },
        }
        assert!(begun.elapsed() < SOON, "the server still listens");
    }
    begun.elapsed()
}

#[test]
fn slow_heads_do_not_keep_a_connection() {
    with_server(options(), async |server| {
        let dripping = futures_util::future::join_all((0..50).map(|_| drip(server, b"X-A: b\r\n")));
        let asking = async {
            let mut slowest = Duration::ZERO;
            for _ in 0..20 {
                let begun = Instant::now();
                let answer = server.request(Method::GET, "/sandboxes").send().await.unwrap();
                assert_eq!(answer.status(), 200);
                slowest = slowest.max(begun.elapsed());
                tokio::time::sleep(SHORT / 20).await;
            }
            slowest
        };
        let (ended, slowest) = tokio::join!(dripping, asking);
        assert!(ended.iter().all(|time| *time >= SHORT / 2), "{ended:?}");
        assert!(slowest < Duration::from_secs(5), "others waited {slowest:?}");
    });
}

#[test]
fn a_client_that_reads_nothing_is_given_up() {
    with_server(options(), async |server| {
        let sandbox = server.create().await;
        let body = bash("cat /dev/zero").to_string();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let head = format!(
            "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {}\r\n\
             X-Access-Token: {}\r\nContent-Type: application/connect+json\r\nContent-Length: {}\r\n\r\n",
            sandbox.id,
            sandbox.token,
            body.len() + 5
        );
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = [head.as_bytes(), &[0], &length, body.as_bytes()].concat();
        stream.write_all(&request).await.unwrap();
        // Long enough for the system's buffers to fill, and then for the server's patience.
        tokio::time::sleep(SHORT * 5).await;
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the server still sends");
        assert!(!rest.ends_with(b"0\r\n\r\n"), "it looks complete");
        let list = server.call(&sandbox, "/process.Process/List", &json!({})).await;
        assert_eq!(list.status(), 200);
        assert!(list.json::<Value>().await.unwrap().is_object());
        server.request(Method::DELETE, &format!("/sandboxes/{}", sandbox.id)).send().await.unwrap();
        becomes(server, 0).await;
    });
}
