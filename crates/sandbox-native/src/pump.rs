//! Moves output from pipes and terminals to the caller, asynchronously.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::termios::{Winsize, tcsetwinsize};
use sandbox::{Capture, Captured, Input, Output, OutputCap, TerminalSize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest, unix::AsyncFd},
    net::unix::pipe,
    sync::oneshot,
    time::{Instant, sleep_until},
};

use crate::sys;

const CHUNK: usize = 64 << 10;
/// Capacity of pipes; the kernel's default costs a context switch every 64 KiB.
pub(crate) const PIPE_SIZE: usize = 1 << 20;
/// How long to wait for output after its command has ended.
const OUTPUT_GRACE: Duration = Duration::from_millis(20);

/// Captures one output stream of a command.
pub(crate) struct Collector {
    pipe: pipe::Receiver,
    capture: Capture,
    ended: bool,
}

impl Collector {
    /// Wraps the reading end of a pipe.
    pub(crate) fn new(fd: OwnedFd, cap: OutputCap) -> io::Result<Self> {
        let pipe = pipe::Receiver::from_owned_fd(fd)?;
        Ok(Self { pipe, capture: Capture::new(cap), ended: false })
    }

    /// Waits for output and captures what is there; never returns once the stream has ended.
    pub(crate) async fn fill(&mut self) {
        if self.ended || self.pipe.readable().await.is_err() {
            self.ended = true;
            return std::future::pending().await;
        }
        self.take();
    }

    /// Captures what is there, a bounded amount so that the other stream gets its turn.
    fn take(&mut self) {
        let mut buffer = [0u8; CHUNK];
        for _ in 0..16 {
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => {
                    self.ended = true;
                    return;
                }
                Ok(n) => self.capture.push(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    /// Captures the rest after the command has ended. A background process may keep the pipe open; what it writes later is
    /// discarded.
    pub(crate) async fn finish(mut self) -> Captured {
        let rest = async {
            while !self.ended {
                if self.pipe.readable().await.is_err() {
                    return;
                }
                self.take();
            }
        };
        let _ = tokio::time::timeout(OUTPUT_GRACE, rest).await;
        if !self.ended {
            tokio::spawn(discard(self.pipe));
        }
        self.capture.finish()
    }
}

async fn discard(mut pipe: pipe::Receiver) {
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
}

/// Forwards a program's output until it ends, or until the program has ended and no more arrives.
///
/// A background process may keep the pipe open; what it writes later is discarded, so that it is not killed by SIGPIPE.
pub(crate) async fn forward(
    fd: OwnedFd,
    mut to: Output,
    mut program: oneshot::Receiver<()>,
) -> io::Result<()> {
    let mut pipe = pipe::Receiver::from_owned_fd(fd)?;
    let mut buffer = vec![0u8; CHUNK];
    // Set once the program has ended: when to stop waiting for output.
    let mut until: Option<Instant> = None;
    loop {
        let over = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => {
                    let _ = (&mut program).await;
                }
            }
        };
        tokio::select! {
            biased;
            () = over => match until {
                None => until = Some(Instant::now() + OUTPUT_GRACE),
                Some(_) => {
                    // What a full pipe holds may be the program's, however slowly the caller reads; what follows is
                    // from a background process.
                    let mut left = PIPE_SIZE;
                    while left > 0
                        && let Ok(n @ 1..) = pipe.try_read(&mut buffer)
                    {
                        to.write_all(&buffer[..n]).await?;
                        left = left.saturating_sub(n);
                    }
                    tokio::spawn(discard(pipe));
                    return to.flush().await;
                }
            },
            read = pipe.read(&mut buffer) => {
                match read? {
                    0 => return to.flush().await,
                    n => to.write_all(&buffer[..n]).await?,
                }
                to.flush().await?;
            }
        }
    }
}

/// Copies the caller's input to a program until it ends or the program stops reading.
pub(crate) async fn feed(mut from: Input, fd: OwnedFd) -> io::Result<()> {
    let mut pipe = pipe::Sender::from_owned_fd(fd)?;
    tokio::io::copy(&mut from, &mut pipe).await.map(drop)
}

/// The controlling side of a terminal.
pub(crate) struct Terminal(AsyncFd<OwnedFd>);

impl Terminal {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self(sys::watch(fd)?))
    }

    /// Copies what the program writes until the terminal is closed.
    pub(crate) async fn show(&self, mut to: Output) -> io::Result<()> {
        let mut buffer = vec![0u8; CHUNK];
        loop {
            let read = self
                .0
                .async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd.as_fd(), &mut buffer)?));
            match read.await {
                // The kernel reports the other side's closing as an error.
                Ok(0) | Err(_) => return to.flush().await,
                Ok(n) => to.write_all(&buffer[..n]).await?,
            }
            to.flush().await?;
        }
    }

    /// Copies input to the terminal.
    pub(crate) async fn type_in(&self, mut from: Input) -> io::Result<()> {
        let mut buffer = vec![0u8; 4096];
        loop {
            let n = from.read(&mut buffer).await?;
            if n == 0 {
                // Ctrl-D, the end of file of a terminal.
                buffer[0] = 4;
                self.write(&buffer[..1]).await?;
                return Ok(());
            }
            self.write(&buffer[..n]).await?;
        }
    }

    async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let write = |fd: &OwnedFd| Ok(rustix::io::write(fd.as_fd(), bytes)?);
            let n = self.0.async_io(Interest::WRITABLE, write).await?;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    /// Sets the size of the terminal.
    pub(crate) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(self.0.get_ref(), size)?)
    }
}
