//! This program's standard streams for a sandboxed program, unbuffered.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Poll, ready},
};

use sandbox::{Input, Output};
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::mpsc,
};

use crate::console::terminal;

const CHUNK: usize = 64 << 10;

/// Standard input, read on a thread of its own: waiting for input must not keep this program from ending. `None` in the
/// background, where reading would stop the process.
pub(crate) fn input() -> Option<Input> {
    if terminal::is_in_background() {
        return None;
    }
    let mut stdin = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    let (sender, receiver) = mpsc::channel(1);
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(move || {
            loop {
                let mut chunk = vec![0; CHUNK];
                let read = match stdin.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(n) => {
                        chunk.truncate(n);
                        Ok(chunk)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let last = read.is_err();
                if sender.blocking_send(read).is_err() || last {
                    return;
                }
            }
        })
        .ok()?;
    Some(Box::new(Chunks { receiver, current: io::Cursor::default() }))
}

/// Chunks from the reading thread.
struct Chunks {
    receiver: mpsc::Receiver<io::Result<Vec<u8>>>,
    current: io::Cursor<Vec<u8>>,
}

impl AsyncRead for Chunks {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.current.position() == self.current.get_ref().len() as u64 {
            match ready!(self.receiver.poll_recv(context)) {
                Some(Ok(chunk)) => self.current = io::Cursor::new(chunk),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Ok(())),
            }
        }
        let wanted = buffer.remaining();
        let read = self.current.read(buffer.initialize_unfilled_to(wanted))?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

/// Standard output.
pub(crate) fn output() -> io::Result<Output> {
    direct(io::stdout().as_fd())
}

/// Standard error.
pub(crate) fn errors() -> io::Result<Output> {
    direct(io::stderr().as_fd())
}

/// Bypasses the standard library's line buffer, which would delay a partial last line.
fn direct(fd: std::os::fd::BorrowedFd<'_>) -> io::Result<Output> {
    let file = File::from(fd.try_clone_to_owned()?);
    Ok(Box::new(tokio::fs::File::from_std(file)))
}
