//! Copies between two connections until both ends are closed, or nothing was sent for too long.

use std::{
    io,
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional},
    net::TcpStream,
    time::Instant,
};

/// When something was last sent in either direction.
#[derive(Debug)]
pub(super) struct Activity(Mutex<Instant>);

impl Activity {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    fn note(&self) {
        if let Ok(mut last) = self.0.lock() {
            *last = Instant::now();
        }
    }

    /// Waits until nothing was sent for this long. Without a limit: for ever.
    pub(super) async fn ends(&self, idle: Option<Duration>) {
        let Some(idle) = idle else { return std::future::pending().await };
        loop {
            let last = self.0.lock().map_or_else(|_| Instant::now(), |last| *last);
            match idle.checked_sub(last.elapsed()) {
                Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
                _ => return,
            }
        }
    }

    /// A stream whose reads and writes count as activity.
    pub(super) fn watch<S>(&self, stream: S) -> Watched<'_, S> {
        Watched { stream, activity: self }
    }
}

/// See [`Activity::watch`].
pub(super) struct Watched<'a, S> {
    stream: S,
    activity: &'a Activity,
}

impl<S> Watched<'_, S> {
    fn noted<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Ok(_)) = result {
            self.activity.note();
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.noted(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.noted(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Copies in both directions. Memory is bounded: a direction whose reader is slow is not read from.
pub(super) async fn pipe(
    client: &mut TcpStream,
    server: &mut TcpStream,
    idle: Option<Duration>,
) -> io::Result<()> {
    let activity = Activity::new();
    let (mut one, mut other) = (activity.watch(client), activity.watch(server));
    tokio::select! {
        copied = copy_bidirectional(&mut one, &mut other) => copied.map(drop),
        () = activity.ends(idle) => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn halves_close_one_after_the_other() {
        let ((mut a, mut b), (mut c, mut d)) = (pair().await, pair().await);
        let task = tokio::spawn(async move { pipe(&mut b, &mut c, None).await });
        a.write_all(b"question").await.unwrap();
        a.shutdown().await.unwrap();
        let mut text = String::new();
        d.read_to_string(&mut text).await.unwrap();
        d.write_all(b"answer").await.unwrap();
        drop(d);
        let mut answer = String::new();
        a.read_to_string(&mut answer).await.unwrap();
        assert_eq!((text.as_str(), answer.as_str()), ("question", "answer"));
        task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_silent_connection_ends_and_a_slow_one_does_not() {
        let ((mut a, mut b), (mut c, mut d)) = (pair().await, pair().await);
        // Ten times the pauses, so that a busy machine does not end it early.
        let idle = Duration::from_millis(1500);
        let task = tokio::spawn(async move { pipe(&mut b, &mut c, Some(idle)).await });
        let began = std::time::Instant::now();
        for _ in 0..11 {
            a.write_all(b"x").await.unwrap();
            d.read_u8().await.unwrap();
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        let error = task.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() > idle * 2);
        assert_eq!(d.read(&mut [0]).await.unwrap(), 0);
    }
}
