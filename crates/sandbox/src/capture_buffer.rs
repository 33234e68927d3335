//! A writer that captures what is written to it, in bounded memory.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio::io::AsyncWrite;

use crate::{Capture, Captured, Output, OutputCap};

/// Captures a stream of a [`Process`](crate::Process), to be read once the process has ended. Clones share the buffer.
#[derive(Clone)]
pub struct CaptureBuffer {
    cap: OutputCap,
    capture: Arc<Mutex<Capture>>,
}

impl CaptureBuffer {
    /// Creates an empty buffer.
    pub fn new(cap: OutputCap) -> Self {
        Self { cap, capture: Arc::new(Mutex::new(Capture::new(cap))) }
    }

    /// Returns a writer to this buffer, for use in [`Streams`](crate::Streams).
    pub fn writer(&self) -> Output {
        Box::new(self.clone())
    }

    /// Returns what was captured so far, and empties the buffer.
    pub fn take(&self) -> Captured {
        std::mem::replace(&mut *self.lock(), Capture::new(self.cap)).finish()
    }

    fn lock(&self) -> MutexGuard<'_, Capture> {
        // Nothing panics while it holds the lock.
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncWrite for CaptureBuffer {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.lock().push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
