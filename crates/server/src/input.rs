//! Standard input of a program, fed by requests of clients.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::mpsc,
};

/// Pieces that wait for the program to read them.
const WAITING: usize = 16;

/// The program's end.
#[derive(Debug)]
pub(crate) struct ChannelInput {
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

/// A channel; its receiving end is the program's input, which ends when the sender is dropped.
pub(crate) fn channel() -> (mpsc::Sender<Bytes>, ChannelInput) {
    let (sender, pieces) = mpsc::channel(WAITING);
    (sender, ChannelInput { pieces, rest: Bytes::new() })
}

impl AsyncRead for ChannelInput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match self.pieces.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(piece)) => self.rest = piece,
            }
        }
        let length = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest[..length]);
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}
