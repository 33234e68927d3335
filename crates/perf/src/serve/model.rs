//! What a model behind the server costs: chats at once, streams of events, and the memory of kept episodes.

use std::{sync::Arc, time::Instant};

use anyhow::{Result, ensure};
use reqwest::Response;
use serde::Serialize;
use tokio::task::JoinSet;

use super::{
    CONCURRENCY, ServerMemory, StreamFigures,
    client::ServeClient,
    flatten,
    stub::{ANSWER, HOLD},
};
use crate::round;

/// Running episodes whose events are followed.
const FOLLOWED: usize = 20;

/// Concurrent chats.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ChatFigures {
    /// Number of chats, all at once.
    pub count: usize,
    /// Time for all.
    pub seconds: f64,
    /// Chats answered in a second.
    pub per_second: f64,
    /// Chats without the right answer.
    pub errors: usize,
}

/// Episodes that the server keeps.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EpisodeFigures {
    /// Number of episodes.
    pub count: usize,
    /// Time for all.
    pub seconds: f64,
    /// Episodes ended in a second.
    pub per_second: f64,
    /// Episodes without the right answer.
    pub errors: usize,
    /// The server's memory after a tenth of them and after all; `None` where the system does not tell it.
    pub memory: Option<ServerMemory>,
}

/// Asks so many questions at once.
pub(super) async fn chats(client: &Arc<ServeClient>, count: usize) -> ChatFigures {
    let start = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..count {
        let client = Arc::clone(client);
        running.spawn(async move { client.chat(ANSWER).await });
    }
    let mut right = 0;
    while let Some(result) = running.join_next().await {
        right += usize::from(flatten(result).is_some());
    }
    let seconds = start.elapsed().as_secs_f64();
    ChatFigures {
        count,
        seconds: round(seconds),
        per_second: round(right as f64 / seconds.max(1e-9)),
        errors: count - right,
    }
}

/// Follows the events of running episodes by so many streams at once. Calls `opened` while all are open.
pub(super) async fn events(
    client: &Arc<ServeClient>,
    count: usize,
    opened: impl FnOnce(),
) -> Result<StreamFigures> {
    let mut episodes = Vec::new();
    for _ in 0..FOLLOWED.min(count) {
        episodes.push(Arc::new(client.start_episode(HOLD).await?));
    }
    let start = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..count {
        let (client, episode) = (Arc::clone(client), Arc::clone(&episodes[number % FOLLOWED]));
        running.spawn(async move { client.follow(&episode).await });
    }
    let mut open = Vec::with_capacity(count);
    while let Some(result) = running.join_next().await {
        open.extend(flatten(result));
    }
    let open_s = round(start.elapsed().as_secs_f64());
    opened();
    for episode in episodes {
        client.cancel(&episode).await?;
    }
    let mut whole = 0;
    for stream in open {
        whole += usize::from(follow_to_end(stream).await.is_ok());
    }
    Ok(StreamFigures { count, open_s, errors: count - whole })
}

/// Reads a stream of events to its end, which must be that of the episode.
pub(super) async fn follow_to_end(mut stream: Response) -> Result<()> {
    let mut end = Vec::new();
    while let Some(piece) = stream.chunk().await? {
        end.extend_from_slice(&piece);
        end.drain(..end.len().saturating_sub(MAX_LAST));
    }
    let is_whole = end.windows(LAST.len()).any(|part| part == LAST);
    ensure!(is_whole && end.ends_with(b"\n\n"), "the stream ended before its episode");
    Ok(())
}

/// In the last event of an episode.
const LAST: &[u8] = br#""kind":"ended""#;
/// Most bytes of that event.
const MAX_LAST: usize = 16 << 10;

/// Plays so many episodes, a few at once. How many had the right answer.
pub(super) async fn play(client: &Arc<ServeClient>, count: usize) -> usize {
    let mut running = JoinSet::new();
    let mut right = 0;
    for number in 0..count {
        if number >= CONCURRENCY {
            right += usize::from(running.join_next().await.and_then(flatten).is_some());
        }
        let client = Arc::clone(client);
        running.spawn(async move { client.episode("Find the answer.", ANSWER).await });
    }
    while let Some(result) = running.join_next().await {
        right += usize::from(flatten(result).is_some());
    }
    right
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    const EVENT: &str = "id: 1\ndata: {\"kind\":\"started\"}\n\n";
    const ENDED: &str = "id: 2\ndata: {\"kind\":\"ended\"}\n\n";

    /// Follows a stream of a server that sends these chunks and disconnects.
    async fn follow(chunks: &[&str], is_whole: bool) -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut answer = String::from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for chunk in chunks {
            answer += &format!("{:x}\r\n{chunk}\r\n", chunk.len());
        }
        answer += if is_whole { "0\r\n\r\n" } else { "" };
        tokio::spawn(async move {
            let mut stream = listener.accept().await.unwrap().0;
            let received = stream.read(&mut [0; 4096]).await.unwrap();
            assert!(received > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let stream = ServeClient::new(&url).unwrap().follow("/v1/episodes/x").await.unwrap();
        follow_to_end(stream).await
    }

    #[tokio::test]
    async fn a_stream_that_breaks_off_is_an_error() {
        let long = "x".repeat(2 * MAX_LAST);
        follow(&[EVENT, &long, ENDED], true).await.unwrap();
        follow(&[EVENT, ENDED], false).await.unwrap_err();
        follow(&[EVENT, EVENT], true).await.unwrap_err();
        follow(&[EVENT, "id: 2\ndata: {\"kind\":\"ended\""], true).await.unwrap_err();
    }
}
