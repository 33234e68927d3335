//! The answer to clients for whom there is no room: status 503, in bounded time and number.

use std::{sync::Arc, time::Duration};

use axum::body::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};

/// Clients that are told at the same time; more are disconnected without an answer.
const MAX_TOLD: usize = 64;

/// Time limit for each.
const LIMIT: Duration = Duration::from_secs(1);

/// Tells clients to come back.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    response: Bytes,
    told: Arc<Semaphore>,
}

impl Busy {
    /// With this JSON as the body.
    pub(crate) fn new(json: &str) -> Self {
        let response = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             retry-after: 1\r\nconnection: close\r\n\r\n{json}",
            json.len()
        );
        Self { response: response.into(), told: Arc::new(Semaphore::new(MAX_TOLD)) }
    }

    /// Answers and closes the connection.
    pub(crate) fn tell(&self, mut stream: TcpStream) {
        let Ok(permit) = self.told.clone().try_acquire_owned() else { return };
        let response = self.response.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let telling = async {
                stream.write_all(&response).await?;
                stream.shutdown().await?;
                // Closing with unread data would reset the connection, and the client might lose the answer.
                let mut discarded = [0; 4096];
                while stream.read(&mut discarded).await? > 0 {}
                std::io::Result::Ok(())
            };
            // It may be gone already.
            let _ = timeout(LIMIT, telling).await;
        });
    }
}
