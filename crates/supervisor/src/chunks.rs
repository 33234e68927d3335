//! A reader over pieces that arrive one by one.

use std::{
    io::{self, Read},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::mpsc,
};

/// Pieces of a stream, or the error that ended it.
pub(crate) type Chunk = io::Result<Vec<u8>>;

/// Where the pieces come from.
pub(crate) enum Source {
    /// The sender limits how many wait.
    Bounded(mpsc::Receiver<Chunk>),
    /// The other side of the connection limits how many wait.
    Credited(mpsc::UnboundedReceiver<Chunk>),
}

/// Reads the pieces, and reports how much of them was read.
pub(crate) struct Chunks<F> {
    source: Source,
    current: io::Cursor<Vec<u8>>,
    on_read: F,
}

impl<F: FnMut(usize)> Chunks<F> {
    pub(crate) fn new(source: Source, on_read: F) -> Self {
        Self { source, current: io::Cursor::default(), on_read }
    }
}

impl<F: FnMut(usize) + Unpin> AsyncRead for Chunks<F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.current.position() == this.current.get_ref().len() as u64 {
            let next = match &mut this.source {
                Source::Bounded(receiver) => receiver.poll_recv(context),
                Source::Credited(receiver) => receiver.poll_recv(context),
            };
            match ready!(next) {
                Some(chunk) => this.current = io::Cursor::new(chunk?),
                None => return Poll::Ready(Ok(())),
            }
        }
        let wanted = buffer.remaining();
        let read = this.current.read(buffer.initialize_unfilled_to(wanted))?;
        buffer.advance(read);
        (this.on_read)(read);
        Poll::Ready(Ok(()))
    }
}
