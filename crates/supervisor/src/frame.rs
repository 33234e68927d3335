//! Frames: what travels over a connection. One byte with the kind, four with the length, then the content.
//!
//! The format of frames, [`Welcome`](crate::message::Welcome) and the request to stop are the same in every version, so
//! that programs of different versions can tell each other so.

use std::io;

use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Most bytes of a stream in one frame.
pub(crate) const MAX_DATA: usize = 64 << 10;
/// Longest message. A command line may have two megabytes.
const MAX_MESSAGE: usize = 8 << 20;
/// Bytes of input that a client may send before they are consumed.
pub(crate) const WINDOW: usize = 256 << 10;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message, as JSON.
    Message = 0,
    /// Standard input; an empty frame is its end.
    Input = 1,
    /// Standard output, or the content of a file.
    Output = 2,
    /// Standard error.
    Errors = 3,
    /// How many bytes of input were consumed, as four bytes.
    Consumed = 4,
    /// The size of the terminal: lines and columns, two bytes each.
    Resize = 5,
}

impl Kind {
    fn new(byte: u8) -> io::Result<Self> {
        let all =
            [Self::Message, Self::Input, Self::Output, Self::Errors, Self::Consumed, Self::Resize];
        all.into_iter()
            .find(|kind| *kind as u8 == byte)
            .ok_or_else(|| invalid(format!("a frame of the unknown kind {byte}")))
    }

    fn limit(self) -> usize {
        match self {
            Self::Message => MAX_MESSAGE,
            Self::Input | Self::Output | Self::Errors => MAX_DATA,
            Self::Consumed | Self::Resize => 4,
        }
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

impl Frame {
    pub(crate) fn message(message: &impl Serialize) -> io::Result<Self> {
        Ok(Self { kind: Kind::Message, bytes: serde_json::to_vec(message)? })
    }

    pub(crate) fn consumed(bytes: u32) -> Self {
        Self { kind: Kind::Consumed, bytes: bytes.to_le_bytes().to_vec() }
    }

    pub(crate) fn resize(size: sandbox::TerminalSize) -> Self {
        let bytes = [size.rows.to_le_bytes(), size.cols.to_le_bytes()].concat();
        Self { kind: Kind::Resize, bytes }
    }

    /// The message in this frame.
    pub(crate) fn parse<M: DeserializeOwned>(&self) -> io::Result<M> {
        match self.kind {
            Kind::Message => serde_json::from_slice(&self.bytes)
                .map_err(|error| invalid(format!("an unreadable message: {error}"))),
            other => Err(invalid(format!("a frame of the kind {other:?} instead of a message"))),
        }
    }

    /// The number in a frame of the kind [`Kind::Consumed`].
    pub(crate) fn count(&self) -> io::Result<u32> {
        let bytes = self.bytes.as_slice().try_into().map_err(|_| invalid("a short frame"))?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// The size in a frame of the kind [`Kind::Resize`].
    pub(crate) fn size(&self) -> io::Result<sandbox::TerminalSize> {
        match self.bytes.as_slice() {
            [a, b, c, d] => Ok(sandbox::TerminalSize {
                rows: u16::from_le_bytes([*a, *b]),
                cols: u16::from_le_bytes([*c, *d]),
            }),
            _ => Err(invalid("a short frame")),
        }
    }
}

/// The other side does not follow the protocol.
pub(crate) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Reads a frame; `None` if the connection was closed between two frames. Not cancel-safe.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let mut header = [0u8; 5];
    match from.read(&mut header).await? {
        0 => return Ok(None),
        n => from.read_exact(&mut header[n..]).await?,
    };
    let [kind, length @ ..] = header;
    let (kind, length) = (Kind::new(kind)?, u32::from_le_bytes(length) as usize);
    if length > kind.limit() {
        return Err(invalid(format!("a frame of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).await?;
    Ok(Some(Frame { kind, bytes }))
}

/// Writes a frame. A message that is too long is an error; longer data must come in several frames.
pub(crate) async fn write(to: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> io::Result<()> {
    if frame.bytes.len() > frame.kind.limit() {
        return Err(invalid(format!("a frame of {} bytes", frame.bytes.len())));
    }
    // One write: a frame in two would wake the reader twice.
    let mut all = Vec::with_capacity(5 + frame.bytes.len());
    all.push(frame.kind as u8);
    all.extend_from_slice(&(frame.bytes.len() as u32).to_le_bytes());
    all.extend_from_slice(&frame.bytes);
    to.write_all(&all).await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn frames_arrive_as_they_were_sent() {
        runtime().block_on(async {
            let sent = [
                Frame::message(&"x").unwrap(),
                Frame { kind: Kind::Input, bytes: Vec::new() },
                Frame { kind: Kind::Output, bytes: vec![7; MAX_DATA] },
                Frame::consumed(70_000),
                Frame::resize(sandbox::TerminalSize { rows: 50, cols: 300 }),
            ];
            let mut bytes = Vec::new();
            for frame in &sent {
                write(&mut bytes, frame).await.unwrap();
            }
            let mut from = bytes.as_slice();
            for frame in &sent {
                assert_eq!(read(&mut from).await.unwrap().as_ref(), Some(frame));
            }
            assert_eq!(read(&mut from).await.unwrap(), None);
            assert_eq!(sent[3].count().unwrap(), 70_000);
            assert_eq!(sent[4].size().unwrap().cols, 300);
            let long = Frame { kind: Kind::Output, bytes: vec![7; MAX_DATA + 1] };
            assert!(write(&mut bytes, &long).await.is_err());
        });
    }

    #[test]
    fn a_frame_that_is_cut_off_or_too_long_is_refused() {
        runtime().block_on(async {
            for bad in [&[0u8][..], &[0, 4, 0, 0, 0, 1], &[1, 0, 0, 2, 0], &[9, 0, 0, 0, 0]] {
                let mut from = bad;
                assert!(read(&mut from).await.is_err(), "{bad:?}");
            }
        });
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            runtime().block_on(async {
                let mut from = bytes.as_slice();
                while let Ok(Some(frame)) = read(&mut from).await {
                    let _ = frame.parse::<crate::message::Request>();
                    let _ = (frame.count(), frame.size());
                }
            });
        }
    }
}
