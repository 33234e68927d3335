//! Bounds the memory of a form: its parser keeps whatever it cannot parse yet.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::Stream;

/// Most bytes that arrive without the parser getting ahead, as in the head of a part.
const MAX_UNPARSED: usize = 64 << 10;
/// Most bytes given to the parser at a time.
const STEP: usize = 16 << 10;

/// What arrived of a form since the parser got ahead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrived(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    unparsed: AtomicUsize,
    /// The parser has seen everything it was given, and needs more.
    needs_more: AtomicBool,
}

impl Arrived {
    /// To be called for each part and each piece of one that the parser returns.
    pub(crate) fn was_parsed(&self) {
        self.0.unparsed.store(0, Ordering::Relaxed);
        self.0.needs_more.store(false, Ordering::Relaxed);
    }

    /// A stream that gives the parser little at a time, and fails where it does not get ahead.
    pub(crate) fn bound<P>(&self, pieces: P) -> Bounded<P> {
        Bounded { pieces: Box::pin(pieces), rest: Bytes::new(), arrived: self.clone() }
    }
}

/// See [`Arrived::bound`].
pub(crate) struct Bounded<P> {
    pieces: Pin<Box<P>>,
    rest: Bytes,
    arrived: Arrived,
}

impl<P: Stream<Item = io::Result<Bytes>>> Stream for Bounded<P> {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let counts = Arc::clone(&self.arrived.0);
        // The parser asks until there is no more; made to wait, it parses first.
        if !counts.needs_more.swap(true, Ordering::Relaxed) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        while self.rest.is_empty() {
            match self.pieces.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(piece))) => self.rest = piece,
                other => return other,
            }
        }
        let step = self.rest.len().min(STEP);
        let piece = self.rest.split_to(step);
        counts.needs_more.store(false, Ordering::Relaxed);
        if counts.unparsed.fetch_add(step, Ordering::Relaxed) + step > MAX_UNPARSED {
            let message = format!("more than {MAX_UNPARSED} bytes outside the content of files");
            return Poll::Ready(Some(Err(io::Error::other(message))));
        }
        Poll::Ready(Some(Ok(piece)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn parse(text: Vec<u8>) -> Result<Vec<usize>, multer::Error> {
        let pieces = text.chunks(300_000).map(|piece| Ok(Bytes::copy_from_slice(piece)));
        let pieces: Vec<io::Result<Bytes>> = pieces.collect();
        let arrived = Arrived::default();
        let pieces = arrived.bound(futures_util::stream::iter(pieces));
        let mut form = multer::Multipart::new(pieces, "b");
        let mut lengths = Vec::new();
        while let Some(mut part) = form.next_field().await? {
            arrived.was_parsed();
            let mut length = 0;
            while let Some(piece) = part.chunk().await? {
                arrived.was_parsed();
                length += piece.len();
            }
            lengths.push(length);
        }
        Ok(lengths)
    }

    fn part(length: usize) -> Vec<u8> {
        let head = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
        [head.as_bytes(), &vec![b'x'; length], b"\r\n"].concat()
    }

    #[tokio::test]
    async fn large_and_many_parts_pass() {
        let lengths: Vec<usize> =
            std::iter::once(1_000_000).chain((0..5000).map(|n| n % 3)).collect();
        let mut form: Vec<u8> = lengths.iter().flat_map(|length| part(*length)).collect();
        form.extend_from_slice(b"--b--\r\n");
        assert_eq!(parse(form).await.unwrap(), lengths);
    }

    #[tokio::test]
    async fn endless_heads_and_preambles_are_refused() {
        assert!(parse(vec![b'x'; 200_000]).await.is_err());
        let head = [b"--b\r\nX: ", &[b'x'; 200_000][..]].concat();
        assert!(parse(head).await.is_err());
    }
}
