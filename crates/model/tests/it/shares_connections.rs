//! One client serves many episodes over few connections.

use std::{net::SocketAddr, sync::Arc};

use lis_model::{Endpoint, OpenAi, Silent};
use testkit::{MockServer, Received, say};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::clients::{ask, endpoint};

/// Forwards connections, and reports each.
async fn counting(to: SocketAddr) -> (SocketAddr, mpsc::UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = tell.send(());
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, told)
}

#[tokio::test]
async fn a_conversation_needs_one_connection() {
    let server = MockServer::answering(|_: &Received| say("next")).unwrap();
    let (address, mut told) = counting(server.address()).await;
    let base_url = format!("http://{address}/v1");
    let client = OpenAi::new(Endpoint { base_url, ..endpoint(&server) }).unwrap();
    for _ in 0..5 {
        ask(&client, &Silent).await.unwrap();
    }
    let mut connections = 0;
    while told.try_recv().is_ok() {
        connections += 1;
    }
    assert_eq!(connections, 1);
}

#[tokio::test]
async fn many_episodes_share_one_client() {
    let server = MockServer::answering(|received: &Received| say(format!("{}", received.bytes)));
    let server = server.unwrap();
    let client = Arc::new(OpenAi::new(endpoint(&server)).unwrap());
    let episodes: Vec<_> = (0..100)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { ask(&client, &Silent).await.unwrap() })
        })
        .collect();
    for episode in episodes {
        assert!(!episode.await.unwrap().message.text.is_empty());
    }
    assert_eq!(server.count(), 100);
}
