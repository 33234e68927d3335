//! A reader that fails where the sandbox sends nothing for too long.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use crate::Input;

/// Reads like `inner`, but fails with [`io::ErrorKind::TimedOut`] once it has waited for as long as `limit`.
pub struct StallGuard {
    inner: Input,
    limit: Duration,
    /// Set while a read waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl StallGuard {
    /// Guards a reader.
    pub fn new(inner: Input, limit: Duration) -> Self {
        Self { inner, limit, waiting: None }
    }
}

impl AsyncRead for StallGuard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Poll::Ready(read) = Pin::new(&mut this.inner).poll_read(context, buffer) {
            this.waiting = None;
            return Poll::Ready(read);
        }
        let limit = this.limit;
        let waiting = this.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => {
                waiting.as_mut().reset(Instant::now() + limit);
                let text = format!("the sandbox sent nothing for {} s", limit.as_secs_f64());
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_silence_is_an_error() {
        let (mut theirs, ours) = tokio::io::duplex(16);
        let limit = Duration::from_secs(30);
        let mut guarded = StallGuard::new(Box::new(ours), limit);
        tokio::spawn(async move {
            for _ in 0..5 {
                sleep(limit * 2 / 3).await;
                theirs.write_all(b"x").await.unwrap();
            }
            sleep(limit * 2).await;
        });
        let mut text = Vec::new();
        let ended = guarded.read_to_end(&mut text).await.unwrap_err();
        assert_eq!((ended.kind(), text.len()), (io::ErrorKind::TimedOut, 5));
    }
}
