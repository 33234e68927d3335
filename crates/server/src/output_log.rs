//! The output of a program, kept for clients that come, go and come back.
//!
//! Nothing that a connected client has not read is lost: the program waits. While no client is connected the program does
//! not wait, and only the latest output is kept. A client that connects continues where the last one stopped, or at an
//! offset of its choice.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use http_server::MemoryPermit;
use tokio::sync::Notify;

/// The stream a piece of output belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
    Terminal,
}

/// What a reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece<T> {
    Output(Stream, Bytes),
    End(T),
}

/// The log. `T` says how the program ended.
#[derive(Debug)]
pub(crate) struct OutputLog<T> {
    state: Mutex<State<T>>,
    /// Wakes readers and writers alike.
    changed: Notify,
    kept: usize,
}

#[derive(Debug)]
struct State<T> {
    chunks: VecDeque<Chunk>,
    /// Bytes that `chunks` take, with [`OVERHEAD`] for each.
    size: usize,
    /// Bytes written so far, of all streams.
    written: u64,
    /// Where a client that connects continues.
    delivered: u64,
    readers: HashMap<u64, u64>,
    next_reader: u64,
    end: Option<T>,
    /// For `size`, and while the program runs for `beside`.
    permit: MemoryPermit,
    /// Bytes of the program's buffers.
    beside: usize,
}

#[derive(Debug)]
struct Chunk {
    /// Its offset among the bytes of all streams.
    offset: u64,
    stream: Stream,
    bytes: Vec<u8>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// Bytes that each chunk counts beyond its content: one of a single byte is not free.
const OVERHEAD: usize = 128;
/// Most bytes of a chunk that grows.
const MERGED: usize = 16 << 10;
/// Memory that is not given back at once, and is there for the first chunk.
const SPARE: usize = 2 * CHUNK;
/// Most bytes of one piece of output, as pushed.
pub(crate) const CHUNK: usize = 32 << 10;

impl<T> State<T> {
    /// Whether the last chunk may grow by this output: it is small, of the same stream, and no client has read of it.
    fn merges(&self, stream: Stream, length: usize) -> bool {
        self.chunks.back().is_some_and(|last| {
            last.stream == stream
                && last.bytes.len() + length <= MERGED
                && self.delivered <= last.offset
        })
    }

    /// Adds output if there is room, for which chunks that no reader needs are removed. Whether it was added.
    fn add(&mut self, stream: Stream, bytes: &[u8], kept: usize) -> bool {
        loop {
            let merges = self.merges(stream, bytes.len());
            let cost = if merges { bytes.len() } else { bytes.len() + OVERHEAD };
            // The first chunk has memory of its own, so that every program makes progress.
            let has_room = self.chunks.is_empty()
                || self.size + cost <= kept
                    && self.permit.grow(self.beside + self.size + cost).is_some();
            if !has_room {
                if self.remove_oldest() {
                    continue;
                }
                return false;
            }
            let offset = self.written;
            self.written += bytes.len() as u64;
            self.size += cost;
            match self.chunks.back_mut().filter(|_| merges) {
                Some(last) => last.bytes.extend_from_slice(bytes),
                None => self.chunks.push_back(Chunk { offset, stream, bytes: bytes.to_vec() }),
            }
            return true;
        }
    }

    /// Removes the oldest chunk if no reader needs it. Whether it was removed.
    fn remove_oldest(&mut self) -> bool {
        let Some(oldest) = self.chunks.front() else { return false };
        let end = oldest.end();
        if self.readers.values().any(|position| *position < end) {
            return false;
        }
        if let Some(oldest) = self.chunks.pop_front() {
            self.size -= oldest.bytes.len() + OVERHEAD;
        }
        self.permit.shrink(self.beside + self.size + SPARE);
        true
    }
}

impl<T: Clone> OutputLog<T> {
    /// Keeps this many bytes, or fewer where memory is short. `None` where there is none for a program whose buffers have
    /// this many bytes.
    pub(crate) fn new(kept: usize, beside: usize, mut permit: MemoryPermit) -> Option<Self> {
        permit.grow(beside + SPARE)?;
        let state = State {
            chunks: VecDeque::new(),
            size: 0,
            written: 0,
            delivered: 0,
            readers: HashMap::new(),
            next_reader: 0,
            end: None,
            permit,
            beside,
        };
        Some(Self { state: Mutex::new(state), changed: Notify::new(), kept })
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds output; waits for readers where there is no room.
    pub(crate) async fn push(&self, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().add(stream, bytes, self.kept) {
                break;
            }
            changed.await;
        }
        self.changed.notify_waiters();
    }

    /// Ends the log.
    pub(crate) fn end(&self, end: T) {
        let mut state = self.lock();
        state.end = Some(end);
        state.beside = 0;
        let size = state.size;
        state.permit.shrink(size + OVERHEAD);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits for the end.
    pub(crate) async fn closed(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().end.is_some() {
                return;
            }
            changed.await;
        }
    }

    /// How the program ended.
    pub(crate) fn ended(&self) -> Option<T> {
        self.lock().end.clone()
    }
}

/// A client that reads the log.
#[derive(Debug)]
pub(crate) struct Reader<T: Clone> {
    log: std::sync::Arc<OutputLog<T>>,
    id: u64,
    /// Where it started.
    pub(crate) start: u64,
    /// Whether output before `start` that it asked for is no longer kept.
    done: bool,
}

impl<T: Clone> Reader<T> {
    /// Reads from an offset, or from where the last client stopped. Output that is no longer kept is skipped; `start` says
    /// where the reader is.
    pub(crate) fn new(log: &std::sync::Arc<OutputLog<T>>, offset: Option<u64>) -> Self {
        let mut state = log.lock();
        let oldest = state.chunks.front().map_or(state.written, |chunk| chunk.offset);
        let start = offset.unwrap_or(state.delivered).clamp(oldest, state.written);
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(id, start);
        drop(state);
        Self { log: std::sync::Arc::clone(log), id, start, done: false }
    }

    /// The next piece; `None` after the end.
    pub(crate) async fn next(&mut self) -> Option<Piece<T>> {
        if self.done {
            return None;
        }
        loop {
            let log = std::sync::Arc::clone(&self.log);
            let changed = log.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(piece) = self.take() {
                log.changed.notify_waiters();
                return Some(piece);
            }
            changed.await;
        }
    }

    /// The next piece if it is there.
    fn take(&mut self) -> Option<Piece<T>> {
        let mut state = self.log.lock();
        let position = *state.readers.get(&self.id)?;
        let at = state.chunks.partition_point(|chunk| chunk.end() <= position);
        let Some(chunk) = state.chunks.get(at) else {
            let end = state.end.clone()?;
            self.done = true;
            return Some(Piece::End(end));
        };
        let skipped = usize::try_from(position - chunk.offset).unwrap_or(usize::MAX);
        let bytes = Bytes::copy_from_slice(chunk.bytes.get(skipped..).unwrap_or_default());
        let (stream, end) = (chunk.stream, chunk.end());
        state.readers.insert(self.id, end);
        state.delivered = state.delivered.max(end);
        Some(Piece::Output(stream, bytes))
    }
}

impl<T: Clone> Drop for Reader<T> {
    fn drop(&mut self) {
        self.log.lock().readers.remove(&self.id);
        self.log.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use http_server::MemoryBudget;
    use tokio::time::timeout;

    use super::*;

    fn log(kept: usize) -> OutputLog<u8> {
        OutputLog::new(kept, 0, MemoryBudget::new(1 << 20).permit()).unwrap()
    }

    #[tokio::test]
    async fn logs_share_memory_and_programs_still_run() {
        let budget = MemoryBudget::new(1 << 20);
        let new = || OutputLog::<u8>::new(4 << 20, 64 << 10, budget.permit());
        let logs: Vec<_> = (0..8).map(|_| Arc::new(new().unwrap())).collect();
        assert!(new().is_none(), "there is no memory for a further program");
        for log in &logs {
            for _ in 0..100 {
                log.push(Stream::Stdout, &[0; CHUNK]).await;
            }
        }
        let kept = |log: &Arc<OutputLog<u8>>| {
            log.lock().chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>()
        };
        assert!(logs.iter().map(kept).sum::<usize>() <= 1 << 20);
        // A client that reads gets everything, however short memory is.
        let mut reader = Reader::new(&logs[0], None);
        let start = reader.start;
        let writing = Arc::clone(&logs[0]);
        let writing = tokio::spawn(async move {
            for _ in 0..100 {
                writing.push(Stream::Stdout, &[1; CHUNK]).await;
            }
            writing.end(0);
        });
        let mut read = 0;
        while let Some(Piece::Output(_, bytes)) = reader.next().await {
            read += bytes.len() as u64;
        }
        writing.await.unwrap();
        assert_eq!(start + read, 200 * CHUNK as u64);
        logs.iter().for_each(|log| log.end(0));
        assert!(new().is_some(), "ended programs have no buffers");
    }

    fn text(piece: Piece<u8>) -> String {
        match piece {
            Piece::Output(_, bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            Piece::End(code) => format!("end {code}"),
        }
    }

    async fn push(log: &OutputLog<u8>, text: &'static str) {
        log.push(Stream::Stdout, text.as_bytes()).await;
    }

    #[tokio::test]
    async fn a_client_continues_where_the_last_one_stopped() {
        let log = Arc::new(log(1000));
        push(&log, "one").await;
        let mut first = Reader::new(&log, None);
        assert_eq!(text(first.next().await.unwrap()), "one");
        push(&log, "two").await;
        drop(first);
        push(&log, "three").await;
        log.end(7);
        let mut second = Reader::new(&log, None);
        assert_eq!(second.start, 3);
        assert_eq!(text(second.next().await.unwrap()), "twothree");
        assert_eq!(text(second.next().await.unwrap()), "end 7");
        assert!(second.next().await.is_none());
        let mut again = Reader::new(&log, Some(1));
        assert_eq!(text(again.next().await.unwrap()), "ne");
        let mut late = Reader::new(&log, Some(99));
        assert_eq!((late.start, text(late.next().await.unwrap())), (11, "end 7".to_owned()));
    }

    #[tokio::test]
    async fn a_program_waits_for_a_client_and_for_nobody_else() {
        let log = Arc::new(log(4 + OVERHEAD));
        push(&log, "abcd").await;
        push(&log, "efgh").await;
        let mut reader = Reader::new(&log, Some(0));
        assert_eq!(reader.start, 4);
        let waiting = timeout(Duration::from_millis(50), push(&log, "ijkl")).await;
        assert!(waiting.is_err(), "the client had not read");
        assert_eq!(text(reader.next().await.unwrap()), "efgh");
        push(&log, "ijkl").await;
        assert_eq!(text(reader.next().await.unwrap()), "ijkl");
        // A piece that is larger than the log still passes.
        push(&log, "0123456789").await;
        assert_eq!(text(reader.next().await.unwrap()), "0123456789");
    }
    #[tokio::test]
    async fn single_bytes_take_little_memory() {
        let log = log(64 << 10);
        for _ in 0..200_000 {
            push(&log, "x").await;
        }
        let state = log.lock();
        let taken: usize = state.chunks.iter().map(|chunk| chunk.bytes.capacity()).sum();
        assert!(taken <= 128 << 10, "{taken}");
        assert!(state.chunks.len() <= 5);
        let kept: usize = state.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        assert!(kept >= 32 << 10, "{kept}");
    }
}
