//! Standard input of a program, fed by requests of clients.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_server::MemoryPermit;
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::mpsc,
};

/// Pieces that wait for the program to read them.
const WAITING: usize = 16;

/// Input on its way to a program, with the memory it takes.
#[derive(Debug)]
pub(crate) struct Piece {
    bytes: Bytes,
    /// Released once the program has read it.
    _permit: MemoryPermit,
}

impl Piece {
    pub(crate) fn new(bytes: Bytes, permit: MemoryPermit) -> Self {
        Self { bytes, _permit: permit }
    }
}

/// The program's end.
#[derive(Debug)]
pub(crate) struct ChannelInput {
    pieces: mpsc::Receiver<Piece>,
    rest: Option<Piece>,
}

/// A channel; its receiving end is the program's input, which ends when the sender is dropped.
pub(crate) fn channel() -> (mpsc::Sender<Piece>, ChannelInput) {
    let (sender, pieces) = mpsc::channel(WAITING);
    (sender, ChannelInput { pieces, rest: None })
}

impl AsyncRead for ChannelInput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(rest) = self.rest.as_mut().filter(|rest| !rest.bytes.is_empty()) {
                let length = rest.bytes.len().min(buffer.remaining());
                buffer.put_slice(&rest.bytes[..length]);
                rest.bytes.advance(length);
                return Poll::Ready(Ok(()));
            }
            self.rest = None;
            match self.pieces.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(piece) => self.rest = piece,
            }
        }
    }
}
