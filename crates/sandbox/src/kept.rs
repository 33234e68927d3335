//! A writer that keeps what is written to it, within a cap: for streams of a program that somebody reads afterwards.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use tokio::io::AsyncWrite;

use crate::{Capture, Captured, Output, OutputCap};

/// Keeps what is written to it, within a cap.
#[derive(Clone)]
pub struct Kept {
    cap: OutputCap,
    capture: Arc<Mutex<Capture>>,
}

impl Kept {
    /// Nothing yet.
    pub fn new(cap: OutputCap) -> Self {
        Self { cap, capture: Arc::new(Mutex::new(Capture::new(cap))) }
    }

    /// A writer that ends up here.
    pub fn writer(&self) -> Output {
        Box::new(self.clone())
    }

    /// What was kept so far.
    pub fn take(&self) -> Captured {
        let mut capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *capture, Capture::new(self.cap)).finish()
    }
}

impl AsyncWrite for Kept {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
