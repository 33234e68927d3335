//! What a model behind the server costs: chats at once, streams of events, and the memory of kept episodes.

use std::{sync::Arc, time::Instant};

use anyhow::Result;
use serde::Serialize;
use tokio::task::JoinSet;

use super::{
    CONCURRENCY, SETTLE, ServerMemory, StreamFigures,
    client::ServeClient,
    flatten, resident_kib,
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

/// Follows the events of running episodes by so many streams at once.
pub(super) async fn events(client: &Arc<ServeClient>, count: usize) -> Result<StreamFigures> {
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
    for episode in episodes {
        client.cancel(&episode).await?;
    }
    // Every stream has the end of its episode.
    let mut ended = 0;
    for mut stream in open {
        while let Ok(Some(_)) = stream.chunk().await {}
        ended += 1;
    }
    Ok(StreamFigures { count, open_s, errors: count - ended })
}

/// Plays so many episodes, a few at once.
pub(super) async fn episodes(
    client: &Arc<ServeClient>,
    server: u32,
    count: usize,
) -> EpisodeFigures {
    let start = Instant::now();
    let mut right = play(client, count / 10).await;
    let first = start.elapsed();
    let memory = async || {
        tokio::time::sleep(SETTLE).await;
        resident_kib(server).ok()
    };
    let before = memory().await;
    let start = Instant::now();
    right += play(client, count - count / 10).await;
    let seconds = (first + start.elapsed()).as_secs_f64();
    let after = memory().await;
    EpisodeFigures {
        count,
        seconds: round(seconds),
        per_second: round(right as f64 / seconds.max(1e-9)),
        errors: count - right,
        memory: before
            .zip(after)
            .filter(|_| count > 0)
            .map(|(before, after)| ServerMemory::new(before, after, count)),
    }
}

/// How many had the right answer.
async fn play(client: &Arc<ServeClient>, count: usize) -> usize {
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
